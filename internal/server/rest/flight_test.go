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

// slowStore is a store whose Apply and Cells wait for the end of the context; Apply also for proceed or the test's end.
type slowStore struct {
	store.Store
	calls, probes chan struct{} // receive a value for each call; probes of /healthz have their own channel
	proceed       chan struct{}
	testDone      <-chan struct{}
}

func (s *slowStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if strings.HasPrefix(ops[0].Cell.Key, "healthz ") {
		s.probes <- struct{}{}
	} else {
		s.calls <- struct{}{}
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.testDone:
		return context.Canceled
	case <-s.proceed:
		return s.Store.Apply(ctx, ops, outs)
	}
}

func (s *slowStore) Cells(ctx context.Context, _ store.Query) ([]store.Cell, int64, error) {
	s.calls <- struct{}{}
	<-ctx.Done()
	return nil, 0, ctx.Err()
}

func (s *slowStore) Entries(context.Context, law.Cell, int) ([]law.Entry, error) { return nil, nil }

func (s *slowStore) KeyCounts(context.Context) ([]store.KeyCount, error) { return nil, nil }

// serveSlowStore serves from a slowStore, and returns the store and the address of the server.
func serveSlowStore(t *testing.T, c *rest.Config) (*slowStore, string) {
	t.Helper()
	s := &slowStore{
		memory.New(nil), make(chan struct{}, 10_000), make(chan struct{}, 10_000), make(chan struct{}),
		t.Context().Done(),
	}
	server := httptest.NewServer(rest.New(service.New(headgate.New(s, nil), &config.Config{}, nil),
		slog.New(slog.DiscardHandler), c))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return s, strings.TrimPrefix(server.URL, "http://")
}

// dial returns a connection with a deadline.
func dial(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(await.Patience))
	return c.(*net.TCPConn)
}

// readAnswer reads an answer; p is its body if that is a problem.
func readAnswer(t *testing.T, c net.Conn) (status int, p api.Problem, header http.Header) {
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
	lease  = `"limit":"concurrency 1 ttl 30s","key":"k"`
)

// bodies has a valid body for each path that takes one.
var bodies = map[string]string{
	"/v1/take": `{` + charge + `}`, "/v1/check": `{` + charge + `}`, "/v1/fill-up": `{` + charge + `}`,
	"/v1/batch":  `{"requests":[{` + charge + `}]}`,
	"/v1/extend": `{` + charge + `,"id":"i"}`, "/v1/debit": `{` + charge + `,"id":"i"}`,
	"/v1/refund":  `{` + charge + `,"cost":2}`,
	"/v1/reserve": `{` + charge + `}`, "/v1/settle": `{` + charge + `,"cost":1,"id":"i"}`, "/v1/cancel": `{` + charge +
		`,"id":"i"}`,
	"/v1/acquire": `{` + lease + `}`, "/v1/renew": `{"held":[{` + lease + `,"number":1}]}`,
	"/v1/release": `{"held":[{` + lease + `,"number":1}]}`,
	"/v1/inspect": `{` + charge + `}`, "/v1/reset": `{` + charge + `}`, "/v1/block": `{` + charge + `,"for":"1h"}`,
	"/v1/observe": `{` + charge + `,"status":429,"headers":{"Retry-After":"9"}}`,
	"/v1/explain": `{"method":"GET","uri":"/"}`, "/v1/auth/settle": `{"n":1}`,
	"/v1/rollback": `{"version":1}`,
	"/v1/limit":    `{"name":"api","limit":"token-bucket 5/1m"}`, "/v1/plan": `{"key":"k","plan":"pro"}`,
	"/v1/override": `{"limit":"api","key":"k","override":"token-bucket 5/1m"}`,
}

// queries has a valid query for each path that needs one.
var queries = map[string]string{
	"/v1/usage": "?key=k", "/v1/auth": "?limit=token-bucket+5/1m&key=k", "/v1/difference": "?from=0&to=1",
}

// proxyHeaders are headers of proxies: /v1/auth needs the first one, /v1/auth/settle the second one, which names a
// limit and the member n of the body.
const proxyHeaders = "X-Forwarded-Uri: /\r\nHeadgate-Settle: eyJpZCI6ImkiLCJjaGFyZ2VzIjpbeyJsaW1pdCI6InRva2VuLWJ1Y2tldCA1LzFtIiwia2V5IjoiayIsImpzb24iOiJuIn1dfQ\r\n"

// reducedCapacity is the type of problem that end users get behind a proxy.
const reducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"

// statusWithoutStore has the status of each path that does not call the store. The limits of these tests are those of a
// file, so the paths that need a catalog are not implemented.
var statusWithoutStore = map[string]int{
	"/v1/explain": http.StatusOK, "/v1/limits": http.StatusOK, "/openapi.yaml": http.StatusOK, "/livez": http.StatusOK,
	"/v1/me": http.StatusOK, "/v1/audit": http.StatusOK, "/v1/traffic": http.StatusOK,
	"/v1/override": http.StatusNotImplemented, "/v1/rollback": http.StatusNotImplemented,
	"/v1/limit": http.StatusNotImplemented, "/v1/plan": http.StatusNotImplemented,
	"/v1/catalog": http.StatusNotImplemented, "/v1/versions": http.StatusNotImplemented,
	"/v1/difference": http.StatusNotImplemented, "/v1/overrides": http.StatusNotImplemented,
}

// TestAHalfClosedConnectionGetsAProblem closes the client's side of a connection while the server waits for the store.
func TestAHalfClosedConnectionGetsAProblem(t *testing.T) {
	t.Parallel()
	s, addr := serveSlowStore(t, nil)
	for _, pattern := range rest.Patterns() {
		method, path, _ := strings.Cut(pattern, " ")
		body, ok := bodies[path]
		if method == "POST" && !ok {
			t.Errorf("%s: no body is known here", path)
		}
		c := dial(t, addr)
		fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n%s", method, path+queries[path],
			proxyHeaders, len(body), body)
		if statusWithoutStore[path] == 0 && path != "/readyz" { // /healthz shares the probe of /readyz
			calls := s.calls
			if path == "/healthz" {
				calls = s.probes
			}
			await.Receive(t, pattern+" to call the store", calls)
		}
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		status, p, _ := readAnswer(t, c)
		switch {
		case statusWithoutStore[path] != 0:
			if status != statusWithoutStore[path] {
				t.Errorf("%s: status %d, %+v, want %d", pattern, status, p, statusWithoutStore[path])
			}
		case path == "/healthz" || path == "/readyz":
			if status != http.StatusServiceUnavailable || p.Type != api.Unavailable {
				t.Errorf("%s: status %d, %+v", pattern, status, p)
			}
		case path == "/v1/auth":
			if status != http.StatusServiceUnavailable || p.Type != reducedCapacity {
				t.Errorf("%s: status %d, %+v", pattern, status, p)
			}
		case status != http.StatusServiceUnavailable || p.Type != api.OutcomeUnknown ||
			!strings.Contains(p.Detail, "not known"):
			t.Errorf("%s: status %d, %+v", pattern, status, p)
		}
	}
}

// TestABodyThatIsCutOffSaysWhere checks that the problem has the number of bytes that arrived.
func TestABodyThatIsCutOffSaysWhere(t *testing.T) {
	t.Parallel()
	_, addr := serveSlowStore(t, nil)
	for _, tt := range []struct{ request, want string }{
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
			c := dial(t, addr)
			fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\n%s", path, tt.request)
			_ = c.CloseWrite()
			status, p, _ := readAnswer(t, c)
			if status != http.StatusBadRequest || !strings.Contains(p.Detail, tt.want) {
				t.Errorf("%s %.80q: status %d, %+v; want %s", path, tt.request, status, p, tt.want)
			}
		}
	}
}

// TestABodyThatComesTooLateSaysWhere checks the answer to a body that fails as the read timeout of a server makes it.
func TestABodyThatComesTooLateSaysWhere(t *testing.T) {
	t.Parallel()
	h, _ := newHandler(t, "")
	body := io.MultiReader(strings.NewReader(`{"limit":`), iotest.ErrReader(os.ErrDeadlineExceeded))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/take", body))
	const want = "the rest of the body did not arrive in time (after byte 9); nothing was charged"
	if w.Code != http.StatusRequestTimeout || !strings.Contains(w.Body.String(), want) {
		t.Errorf("status %d, %s; want %q", w.Code, w.Body, want)
	}
}

// TestHEADAndExpectContinue checks HEAD and "Expect: 100-continue", the latter also with a body that is too large.
func TestHEADAndExpectContinue(t *testing.T) {
	t.Parallel()
	h, _ := newHandler(t, "")
	server := httptest.NewServer(h)
	defer server.Close()
	for _, path := range []string{"/v1/cells", "/v1/usage?key=k", "/v1/limits", "/healthz", "/openapi.yaml"} {
		if status := head(t, server.URL+path); status != http.StatusOK {
			t.Errorf("HEAD %s: status %d, want 200", path, status)
		}
	}
	for path, want := range map[string]int{"/v1/take": 405, "/nothing": 404} {
		if status := head(t, server.URL+path); status != want {
			t.Errorf("HEAD %s: status %d, want %d", path, status, want)
		}
	}
	c := dial(t, strings.TrimPrefix(server.URL, "http://"))
	body := bodies["/v1/take"]
	fmt.Fprintf(c, "POST /v1/take HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", len(body))
	r := bufio.NewReader(c)
	if line, err := r.ReadString('\n'); err != nil || line != "HTTP/1.1 100 Continue\r\n" {
		t.Fatalf("got %q, %v, want 100 Continue", line, err)
	}
	_, _ = r.ReadString('\n')
	_, _ = io.WriteString(c, body)
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Errorf("status %d, want 200", res.StatusCode)
	}
	// A body that is too large is refused before it is sent.
	c = dial(t, strings.TrimPrefix(server.URL, "http://"))
	fmt.Fprintf(c, "POST /v1/reset HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1000000\r\n\r\n")
	if status, _, _ := readAnswer(t, c); status != http.StatusRequestEntityTooLarge {
		t.Errorf("status %d, want 413", status)
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

// TestFailuresWithinABatchAreLogged checks that each class of the store's errors has one line, with a count.
func TestFailuresWithinABatchAreLogged(t *testing.T) {
	t.Parallel()
	s := memory.New(nil)
	var log bytes.Buffer
	h := rest.New(service.New(headgate.New(partlyFailingStore{s}, nil), &config.Config{}, nil),
		slog.New(slog.NewTextHandler(&log, nil)), nil)
	body := `{"requests":[{"limit":"token-bucket 5/1m","key":"full"},{},` +
		strings.Repeat(`{"limit":"token-bucket 5/1m","key":"away"},`, 99) + `{"limit":"token-bucket 5/1m","key":"k"}]}`
	code, answer, _ := send(h, "POST", "/v1/batch", body)
	if code != http.StatusOK {
		t.Fatalf("status %d, %v", code, answer)
	}
	lines := log.String()
	if strings.Count(lines, "\n") != 2 || !strings.Contains(lines, `class="store is full" count=1`) ||
		!strings.Contains(lines, `class="store unavailable" count=99`) {
		t.Errorf("got the lines\n%s, want one for 1 full and one for 99 unavailable", lines)
	}
}

// partlyFailingStore applies all ops, and answers those of the keys full and away with errors.
type partlyFailingStore struct{ *memory.Store }

func (s partlyFailingStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
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
