package rest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/load"
	"github.com/headgate/headgate/internal/server/rest"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store/memory"
)

// TestRequestsThatAreDecidedAreCapped checks that all paths that need a role are answered 503 while 2 of 2 requests are
// being decided.
func TestRequestsThatAreDecidedAreCapped(t *testing.T) {
	t.Parallel()
	bounds := load.New(2, 0)
	s, addr := serveSlowStore(t, &rest.Config{Load: bounds})
	body := bodies["/v1/take"]
	begin := func() net.Conn {
		c := dial(t, addr)
		fmt.Fprintf(c, "POST /v1/take HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		return c
	}
	for range 20 { // requests whose bodies have not arrived do not count
		fmt.Fprintf(dial(t, addr), "POST /v1/take HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n{", len(body))
	}
	first, second := begin(), begin()
	<-s.calls
	<-s.calls
	if n, _ := bounds.InFlight(); n != 2 {
		t.Errorf("%d requests are being decided, want 2", n)
	}
	s.proceed <- struct{}{}
	s.proceed <- struct{}{}
	for _, c := range []net.Conn{first, second} {
		if status, p, _ := readAnswer(t, c); status != http.StatusOK {
			t.Errorf("status %d, %+v, want 200", status, p)
		}
	}
	// A request holds its place only for some seconds, so two shares hold the places until the test releases them.
	firstShare, secondShare := bounds.Share(), bounds.Share()
	if err := errors.Join(firstShare.Enter(), secondShare.Enter()); err != nil {
		t.Fatal(err)
	}
	for _, pattern := range rest.Patterns() {
		method, path, _ := strings.Cut(pattern, " ")
		if path == "/healthz" || path == "/readyz" {
			continue // not counted, and they call the store
		}
		c := dial(t, addr)
		fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n%s", method, path+queries[path],
			proxyHeaders, len(bodies[path]), bodies[path])
		status, p, header := readAnswer(t, c)
		switch {
		case path == "/openapi.yaml", path == "/livez":
			if status != http.StatusOK {
				t.Errorf("%s: status %d, want 200", pattern, status)
			}
		case path == "/v1/auth":
			if status != http.StatusServiceUnavailable || p.Type != reducedCapacity ||
				header.Get("Retry-After") != "1" {
				t.Errorf("%s: status %d, %+v, %v", pattern, status, p, header)
			}
		case status != http.StatusServiceUnavailable || p.Type != api.Busy ||
			!strings.Contains(p.Detail, "Nothing was charged") || header.Get("Retry-After") != "1":
			t.Errorf("%s: status %d, %+v, %v", pattern, status, p, header)
		}
	}
	firstShare.Release()
	secondShare.Release()
	c := begin()
	s.proceed <- struct{}{}
	if status, p, _ := readAnswer(t, c); status != http.StatusOK {
		t.Errorf("after the release: status %d, %+v, want 200", status, p)
	}
}

// TestMemoryOfBodiesIsCapped checks that a large body is answered 503 while 4 others hold 4 x 252 of 1024 KiB.
func TestMemoryOfBodiesIsCapped(t *testing.T) {
	t.Parallel()
	bounds := load.New(0, 1<<20)
	h := rest.New(service.New(headgate.New(memory.New(nil), nil), &config.Config{}, nil), slog.New(slog.DiscardHandler),
		&rest.Config{Load: bounds})
	server := httptest.NewServer(h)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	addr := strings.TrimPrefix(server.URL, "http://")
	longBody := `{"limit":"token-bucket 1/s","key":"k"` + strings.Repeat(" ", 200<<10) + `}`
	post := func(body string) (int, api.Problem) {
		c := dial(t, addr)
		fmt.Fprintf(c, "POST /v1/take HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", len(body))
		_, _ = io.WriteString(c, body)
		status, p, _ := readAnswer(t, c)
		return status, p
	}
	if status, p := post(longBody); status != http.StatusOK {
		t.Fatalf("status %d, %+v, want 200", status, p)
	}
	// One after the other: two bodies that are read at once could both find no room, and release what they hold.
	var stalled []*net.TCPConn
	for i := range int64(5) {
		await.Until(t, "what was read before", func() bool {
			_, bytes := bounds.InFlight()
			return bytes == i*(252<<10) // a body of 200 KiB takes a buffer of 256 KiB, of which 4 KiB are not counted
		})
		if i < 4 {
			c := dial(t, addr)
			fmt.Fprintf(c, "POST /v1/take HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n%s", longBody[:200<<10])
			stalled = append(stalled, c)
		}
	}
	if status, p := post(longBody); status != http.StatusServiceUnavailable || p.Type != api.Busy {
		t.Errorf("a large body beside the others: status %d, %+v, want 503", status, p)
	}
	if status, p := post(bodies["/v1/take"]); status != http.StatusOK {
		t.Errorf("a small body beside the others: status %d, %+v, want 200", status, p)
	}
	for _, c := range stalled {
		c.Close()
	}
	await.Until(t, "the memory of the closed requests to be released", func() bool {
		status, _ := post(longBody)
		return status == http.StatusOK
	})
}

func TestBodiesAreBoundedByPath(t *testing.T) {
	t.Parallel()
	h, _ := newHandler(t, "")
	for path, body := range bodies {
		maxBytes := 4 << 20
		switch path {
		case "/v1/fill-up", "/v1/debit", "/v1/observe", "/v1/inspect", "/v1/explain", "/v1/reset", "/v1/refund",
			"/v1/block",
			"/v1/override", "/v1/limit", "/v1/plan", "/v1/rollback":
			maxBytes = 64 << 10
		}
		readBytes := maxBytes
		if maxBytes > 64<<10 && path != "/v1/take" {
			// Parsing 4 MiB takes most of the time of this test: for make test, more than the smaller bound is enough.
			readBytes = tier.Pick(64<<10+1, maxBytes, maxBytes)
		}
		for n, want := range map[int]bool{readBytes: true, maxBytes + 1: false} {
			text := strings.TrimSuffix(body, "}") + strings.Repeat(" ", n-len(body)) + "}"
			for _, contentLength := range []int64{int64(n), -1} {
				r := httptest.NewRequest(http.MethodPost, path, io.MultiReader(strings.NewReader(text)))
				r.ContentLength = contentLength
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if read := w.Code != http.StatusRequestEntityTooLarge; read != want {
					t.Errorf("%s: %d bytes (announced %d): status %d, %s, want it read: %v", path, n, contentLength,
						w.Code, w.Body, want)
				}
			}
		}
	}
}

func TestTheAnswerOfABatchIsBounded(t *testing.T) {
	t.Parallel()
	divisor := tier.Pick(30, 1, 1) // a part of the requests that a batch may have is enough for the fast tier
	maxBytes := 16 << 20 / divisor
	var limits strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&limits, "  a-limit-with-a-name-that-is-as-long-as-names-may-be-%010d: token-bucket 5/1m\n", i)
	}
	h, _ := newHandler(t, "allow_notations: true\nlimits:\n"+limits.String())
	for name, request := range map[string]string{
		"empty":            `{}`,
		"unknown names":    `{"limit":"x","key":""}`,
		"bad notations":    `{"limit":"` + strings.Repeat(`\"`, 190) + `","key":""}`,
		"long bad names":   `{"limit":"` + strings.Repeat(`<`, 380) + `","key":""}`,
		"long limits":      `{"limit":"fixed-window 1000000000000/31d Antarctica/DumontDUrville block 365d","key":""}`,
		"keys to escape":   `{"charges":[{"limit":"token-bucket 1000000/s","key":""},{"limit":"fixed-window 5/day","key":"` + strings.Repeat("\u2028", 170) + `"}]}`,
		"keys with angles": `{"charges":[{"limit":"token-bucket 1000000/s","key":""},{"limit":"fixed-window 5/day","key":"` + strings.Repeat("<", 512) + `"}]}`,
		"keys with both":   `{"charges":[{"limit":"token-bucket 1000000/s","key":""},{"limit":"fixed-window 5/day","key":"` + strings.Repeat("<", 510) + `é"}]}`,
		"bad algorithms":   `{"limit":"` + strings.Repeat(`<`, 150) + ` 5/1m","key":""}`,
		"bad costs":        `{"limit":"token-bucket 5/1m","key":"","cost":-` + strings.Repeat("9", 300) + `}`,
		"bad ids":          `{"limit":"token-bucket 5/1m","key":"","id":"` + strings.Repeat(`\u0001`, 50) + `"}`,
		"bad lives": `{"limit":"token-bucket 5/1m","key":"","id":"x","life":"` +
			strings.Repeat(`\"`, 100) + `"}`,
	} {
		n := min(9999, (4<<20-30)/(len(request)+1)) / divisor
		if strings.Contains(request, "charges") {
			n = min(4999/divisor, n)
		}
		body := `{"requests":[` + strings.Repeat(request+",", n) + request + `]}`
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/batch", strings.NewReader(body)))
		t.Logf("%s: %d requests, %d bytes, are answered with %d", name, n+1, len(body), w.Body.Len())
		if w.Code != http.StatusOK || w.Body.Len() > maxBytes || !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s: status %d, %d bytes, want at most %d: %.300s", name, w.Code, w.Body.Len(), maxBytes, w.Body)
		}
	}
}
