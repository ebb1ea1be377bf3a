package rest_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/rest"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// slow is a store that answers when it is let, when nobody waits any more, or when the test is over.
type slow struct {
	store.Store
	asked, answer chan struct{}
	probed        chan struct{} // as asked, by probes: an answer may come before its probe ends
	over          <-chan struct{}
}

func (s *slow) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if strings.HasPrefix(ops[0].Cell.Key, "healthz ") {
		s.probed <- struct{}{}
	} else {
		s.asked <- struct{}{}
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.over:
		return context.Canceled
	case <-s.answer:
		return s.Store.Apply(ctx, ops, outs)
	}
}

func (s *slow) Cells(ctx context.Context, _ store.Query) ([]store.Cell, int64, error) {
	s.asked <- struct{}{}
	<-ctx.Done()
	return nil, 0, ctx.Err()
}

func (s *slow) Entries(context.Context, law.Cell, int) ([]law.Entry, error) { return nil, nil }

func (s *slow) KeyCounts(context.Context) ([]store.KeyCount, error) { return nil, nil }

// slowServer serves from a store that is let to answer by sending to it.
func slowServer(t *testing.T, c *rest.Config) (*slow, string) {
	t.Helper()
	s := &slow{
		memory.New(nil), make(chan struct{}, 10_000), make(chan struct{}), make(chan struct{}, 10_000),
		t.Context().Done(),
	}
	server := httptest.NewServer(rest.New(service.New(headgate.New(s, nil), &config.Config{}, nil),
		slog.New(slog.DiscardHandler), c))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return s, strings.TrimPrefix(server.URL, "http://")
}

// conn returns a connection with a deadline.
func conn(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(await.Patience))
	return c.(*net.TCPConn)
}

// answer reads an answer.
func answer(t *testing.T, c net.Conn) (status int, p api.Problem, header http.Header) {
	t.Helper()
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	_ = json.NewDecoder(res.Body).Decode(&p)
	return res.StatusCode, p, res.Header
}

const (
	charge = `"limit":"token-bucket 5/1m","key":"k"`
	held   = `"limit":"concurrency 1 ttl 30s","key":"k"`
)

// bodies are of each path that has one.
var bodies = map[string]string{
	"/v1/take": `{` + charge + `}`, "/v1/check": `{` + charge + `}`, "/v1/fill-up": `{` + charge + `}`,
	"/v1/batch":  `{"requests":[{` + charge + `}]}`,
	"/v1/extend": `{` + charge + `,"id":"i"}`, "/v1/debit": `{` + charge + `,"id":"i"}`,
	"/v1/refund":  `{` + charge + `,"cost":2}`,
	"/v1/reserve": `{` + charge + `}`, "/v1/settle": `{` + charge + `,"cost":1,"id":"i"}`, "/v1/cancel": `{` + charge +
		`,"id":"i"}`,
	"/v1/acquire": `{` + held + `}`, "/v1/renew": `{"held":[{` + held + `,"number":1}]}`, "/v1/release": `{"held":[{` +
		held + `,"number":1}]}`,
	"/v1/inspect": `{` + charge + `}`, "/v1/reset": `{` + charge + `}`, "/v1/block": `{` + charge + `,"for":"1h"}`,
	"/v1/observe": `{` + charge + `,"status":429,"headers":{"Retry-After":"9"}}`,
	"/v1/explain": `{"method":"GET","uri":"/"}`, "/v1/auth/settle": `{"n":1}`,
	"/v1/rollback": `{"version":1}`,
	"/v1/limit":    `{"name":"api","limit":"token-bucket 5/1m"}`, "/v1/plan": `{"key":"k","plan":"pro"}`,
	"/v1/override": `{"limit":"api","key":"k","override":"token-bucket 5/1m"}`,
}

// queries are of each path that needs one.
var queries = map[string]string{
	"/v1/usage": "?key=k", "/v1/auth": "?limit=token-bucket+5/1m&key=k", "/v1/difference": "?from=0&to=1",
}

// proxied are headers of proxies, which two paths need. The second one names a limit and the member n of
// the body.
const proxied = "X-Forwarded-Uri: /\r\nHeadgate-Settle: eyJpZCI6ImkiLCJjaGFyZ2VzIjpbeyJsaW1pdCI6InRva2VuLWJ1Y2tldCA1LzFtIiwia2V5IjoiayIsImpzb24iOiJuIn1dfQ\r\n"

// reduced is the type of problem that end users get behind a proxy.
const reduced = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"

// unasked are paths that do not call the store, with their status. Here the limits are those of a file, which has no
// versions, and which nobody can change.
var unasked = map[string]int{
	"/v1/explain": http.StatusOK, "/v1/limits": http.StatusOK, "/openapi.yaml": http.StatusOK, "/livez": http.StatusOK,
	"/v1/me": http.StatusOK, "/v1/audit": http.StatusOK, "/v1/traffic": http.StatusOK,
	"/v1/override": http.StatusNotImplemented, "/v1/rollback": http.StatusNotImplemented,
	"/v1/limit": http.StatusNotImplemented, "/v1/plan": http.StatusNotImplemented,
	"/v1/catalog": http.StatusNotImplemented, "/v1/versions": http.StatusNotImplemented,
	"/v1/difference": http.StatusNotImplemented, "/v1/overrides": http.StatusNotImplemented,
}

// TestAHalfClosedConnectionGetsAProblem closes its side of the connection before the
// answer, which ends the context of the request.
func TestAHalfClosedConnectionGetsAProblem(t *testing.T) {
	t.Parallel()
	s, addr := slowServer(t, nil)
	for _, pattern := range rest.Patterns() {
		method, path, _ := strings.Cut(pattern, " ")
		body, known := bodies[path]
		if method == "POST" && !known {
			t.Errorf("%s: no body is known here", path)
		}
		c := conn(t, addr)
		fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n%s", method, path+queries[path], proxied,
			len(body), body)
		if unasked[path] == 0 && path != "/readyz" { // which shares the probe of /healthz
			asked := s.asked
			if path == "/healthz" {
				asked = s.probed
			}
			await.Receive(t, pattern+" to ask the store", asked)
		}
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		status, p, _ := answer(t, c)
		switch {
		case unasked[path] != 0:
			if status != unasked[path] {
				t.Errorf("%s: status %d, %+v, want %d", pattern, status, p, unasked[path])
			}
		case path == "/healthz" || path == "/readyz":
			if status != http.StatusServiceUnavailable || p.Type != api.Unavailable {
				t.Errorf("%s: status %d, %+v", pattern, status, p)
			}
		case path == "/v1/auth":
			if status != http.StatusServiceUnavailable || p.Type != reduced {
				t.Errorf("%s: status %d, %+v", pattern, status, p)
			}
		case status != http.StatusServiceUnavailable || p.Type != api.OutcomeUnknown ||
			!strings.Contains(p.Detail, "not known"):
			t.Errorf("%s: status %d, %+v", pattern, status, p)
		}
	}
}

func TestABodyThatIsCutOffSaysWhere(t *testing.T) {
	t.Parallel()
	_, addr := slowServer(t, nil)
	for _, tt := range []struct{ request, says string }{
		{
			"Content-Length: 60\r\n\r\n" + `{"limit":"token-bucket 1/s","key":"k"}`,
			"body: ends after byte 38 of 60 that were announced",
		},
		{"Content-Length: 60\r\n\r\n", "body: ends after byte 0 of 60"},
		{
			"Transfer-Encoding: chunked\r\n\r\n26\r\n" + `{"limit":"token-bucket 1/s","key":"k"}` + "\r\n",
			"body: ends in the middle (after byte 38)",
		},
		{"Content-Length: 20\r\n\r\n" + `{"limit":"token-buck`, "body: ends in the middle (after byte 20)"},
		{
			"Content-Length: 60000\r\n\r\n" + `{"limit":"token-bucket 1/s","key":"k","id":"` + strings.Repeat("i", 9000),
			"body: ends after byte 9044 of 60000",
		},
	} {
		for _, path := range []string{"/v1/take", "/v1/check"} {
			c := conn(t, addr)
			fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\n%s", path, tt.request)
			_ = c.CloseWrite()
			if status, p, _ := answer(t, c); status != http.StatusBadRequest || !strings.Contains(p.Detail, tt.says) {
				t.Errorf("%s %.80q: status %d, %+v; want %s", path, tt.request, status, p, tt.says)
			}
		}
	}
}

// TestABodyThatComesTooLateSaysWhere: the server's read timeout ends a body like this reader does.
func TestABodyThatComesTooLateSaysWhere(t *testing.T) {
	t.Parallel()
	h, _ := handler(t, "")
	late := io.MultiReader(strings.NewReader(`{"limit":`), iotest.ErrReader(os.ErrDeadlineExceeded))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/take", late))
	const want = "the rest of the body did not arrive in time (after byte 9); nothing was charged"
	if w.Code != http.StatusRequestTimeout || !strings.Contains(w.Body.String(), want) {
		t.Errorf("status %d, %s; want %q", w.Code, w.Body, want)
	}
}

// TestOtherMethodsWorkAsTheyDo looks at HEAD and at clients that ask before they send.
func TestOtherMethodsWorkAsTheyDo(t *testing.T) {
	t.Parallel()
	h, _ := handler(t, "")
	server := httptest.NewServer(h)
	defer server.Close()
	for _, path := range []string{"/v1/cells", "/v1/usage?key=k", "/v1/limits", "/healthz", "/openapi.yaml"} {
		if res := head(t, server.URL+path); res != http.StatusOK {
			t.Errorf("HEAD %s: status %d", path, res)
		}
	}
	for path, want := range map[string]int{"/v1/take": 405, "/nothing": 404} {
		if res := head(t, server.URL+path); res != want {
			t.Errorf("HEAD %s: status %d, want %d", path, res, want)
		}
	}
	c := conn(t, strings.TrimPrefix(server.URL, "http://"))
	body := bodies["/v1/take"]
	fmt.Fprintf(c, "POST /v1/take HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", len(body))
	r := bufio.NewReader(c)
	if line, err := r.ReadString('\n'); err != nil || line != "HTTP/1.1 100 Continue\r\n" {
		t.Fatalf("%q, %v", line, err)
	}
	_, _ = r.ReadString('\n')
	_, _ = io.WriteString(c, body)
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Errorf("status %d", res.StatusCode)
	}
	// What is too long is not asked for.
	c = conn(t, strings.TrimPrefix(server.URL, "http://"))
	fmt.Fprintf(c, "POST /v1/reset HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1000000\r\n\r\n")
	if status, _, _ := answer(t, c); status != http.StatusRequestEntityTooLarge {
		t.Errorf("status %d", status)
	}
}

func head(t *testing.T, url string) int {
	t.Helper()
	res, err := http.Head(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	return res.StatusCode
}

// TestFailuresWithinABatchAreLogged has one line for each class, with a count.
func TestFailuresWithinABatchAreLogged(t *testing.T) {
	t.Parallel()
	s := memory.New(nil)
	var out bytes.Buffer
	h := rest.New(service.New(headgate.New(failing{s}, nil), &config.Config{}, nil),
		slog.New(slog.NewTextHandler(&out, nil)), nil)
	body := `{"requests":[{"limit":"token-bucket 5/1m","key":"full"},{},` +
		strings.Repeat(`{"limit":"token-bucket 5/1m","key":"away"},`, 99) + `{"limit":"token-bucket 5/1m","key":"k"}]}`
	code, got, _ := ask(h, "POST", "/v1/batch", body)
	if code != http.StatusOK {
		t.Fatalf("status %d, %v", code, got)
	}
	text := out.String()
	if strings.Count(text, "\n") != 2 || !strings.Contains(text, `class="store is full" count=1`) ||
		!strings.Contains(text, `class="store unavailable" count=99`) {
		t.Errorf("logged:\n%s", text)
	}
}

// failing fails for some keys.
type failing struct{ *memory.Store }

func (s failing) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	err := s.Store.Apply(ctx, ops, outs)
	for i := range ops {
		switch ops[i].Cell.Key {
		case "full":
			outs[i] = law.Outcome{Err: store.ErrFull}
		case "away":
			outs[i] = law.Outcome{Err: store.ErrUnavailable}
		}
	}
	return err
}
