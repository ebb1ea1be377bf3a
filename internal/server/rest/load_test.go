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

func TestRequestsThatAreDecidedAreCapped(t *testing.T) {
	t.Parallel()
	l := load.New(2, 0)
	s, addr := slowServer(t, &rest.Config{Load: l})
	body := bodies["/v1/take"]
	begin := func() net.Conn {
		c := conn(t, addr)
		fmt.Fprintf(c, "POST /v1/take HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		return c
	}
	for range 20 { // whose bodies have not come
		fmt.Fprintf(conn(t, addr), "POST /v1/take HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n{", len(body))
	}
	a, b := begin(), begin()
	<-s.asked
	<-s.asked
	if n, _ := l.InFlight(); n != 2 {
		t.Errorf("%d requests are being decided, want 2", n)
	}
	s.answer <- struct{}{}
	s.answer <- struct{}{}
	for _, c := range []net.Conn{a, b} {
		if status, p, _ := answer(t, c); status != http.StatusOK {
			t.Errorf("status %d, %+v", status, p)
		}
	}
	// A request waits for the store for some seconds. These two keep their places for as long as the machine needs.
	x, y := l.Share(), l.Share()
	if err := errors.Join(x.Enter(), y.Enter()); err != nil {
		t.Fatal(err)
	}
	for _, pattern := range rest.Patterns() {
		method, path, _ := strings.Cut(pattern, " ")
		if path == "/healthz" || path == "/readyz" {
			continue // these are not counted, and call the store
		}
		c := conn(t, addr)
		fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n%s", method, path+queries[path],
			proxied, len(bodies[path]), bodies[path])
		status, p, header := answer(t, c)
		switch {
		case path == "/openapi.yaml", path == "/livez":
			if status != http.StatusOK {
				t.Errorf("%s: status %d", pattern, status)
			}
		case path == "/healthz" || path == "/readyz":
			if status != http.StatusServiceUnavailable || p.Type != api.Unavailable {
				t.Errorf("%s: status %d, %+v", pattern, status, p)
			}
		case path == "/v1/auth":
			if status != http.StatusServiceUnavailable || p.Type != reduced || header.Get("Retry-After") != "1" {
				t.Errorf("%s: status %d, %+v, %v", pattern, status, p, header)
			}
		case status != http.StatusServiceUnavailable || p.Type != api.Busy ||
			!strings.Contains(p.Detail, "Nothing was charged") || header.Get("Retry-After") != "1":
			t.Errorf("%s: status %d, %+v, %v", pattern, status, p, header)
		}
	}
	x.Release()
	y.Release()
	c := begin()
	s.answer <- struct{}{}
	if status, p, _ := answer(t, c); status != http.StatusOK {
		t.Errorf("with room again: status %d, %+v", status, p)
	}
}

func TestMemoryOfBodiesIsCapped(t *testing.T) {
	t.Parallel()
	held := load.New(0, 1<<20)
	h := rest.New(service.New(headgate.New(memory.New(nil), nil), &config.Config{}, nil), slog.New(slog.DiscardHandler),
		&rest.Config{Load: held})
	server := httptest.NewServer(h)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	addr := strings.TrimPrefix(server.URL, "http://")
	long := `{"limit":"token-bucket 1/s","key":"k"` + strings.Repeat(" ", 200<<10) + `}`
	send := func(body string) (int, api.Problem) {
		c := conn(t, addr)
		fmt.Fprintf(c, "POST /v1/take HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", len(body))
		_, _ = io.WriteString(c, body)
		status, p, _ := answer(t, c)
		return status, p
	}
	if status, p := send(long); status != http.StatusOK {
		t.Fatalf("status %d, %+v", status, p)
	}
	// Each after the one before it: two that are read at once could both find no room, and give back what they held.
	var stalled []*net.TCPConn
	for i := range int64(5) {
		await.Until(t, "what was read before", func() bool {
			_, bytes := held.InFlight()
			return bytes == i*(252<<10) // of 200 KiB: a buffer of 256, of which 4 are free
		})
		if i < 4 {
			c := conn(t, addr)
			fmt.Fprintf(c, "POST /v1/take HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n%s", long[:200<<10])
			stalled = append(stalled, c)
		}
	}
	if status, p := send(long); status != http.StatusServiceUnavailable || p.Type != api.Busy {
		t.Errorf("a body beside others that hold nearly all: status %d, %+v", status, p)
	}
	if status, p := send(bodies["/v1/take"]); status != http.StatusOK { // a small one passes
		t.Errorf("a small request meanwhile: %d, %+v", status, p)
	}
	for _, c := range stalled {
		c.Close()
	}
	await.Until(t, "what was held to be given back", func() bool {
		status, _ := send(long)
		return status == http.StatusOK
	})
}

func TestBodiesAreBoundedByPath(t *testing.T) {
	t.Parallel()
	h, _ := handler(t, "")
	for path, body := range bodies {
		most := 4 << 20
		switch path {
		case "/v1/fill-up", "/v1/inspect", "/v1/reset", "/v1/block", "/v1/observe", "/v1/explain", "/v1/override",
			"/v1/rollback":
			most = 64 << 10
		}
		for n, want := range map[int]bool{most: true, most + 1: false} {
			if want && most > 64<<10 && path != "/v1/take" && tier.Pick(true, false, false) {
				continue // to parse what is read of megabytes takes most of the time
			}
			text := strings.TrimSuffix(body, "}") + strings.Repeat(" ", n-len(body)) + "}"
			for _, announced := range []int64{int64(n), -1} {
				r := httptest.NewRequest(http.MethodPost, path, io.MultiReader(strings.NewReader(text)))
				r.ContentLength = announced
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if read := w.Code != http.StatusRequestEntityTooLarge; read != want {
					t.Errorf("%s: %d bytes (announced %d): status %d, %s", path, n, announced, w.Code, w.Body)
				}
			}
		}
	}
}

func TestTheAnswerOfABatchIsBounded(t *testing.T) {
	t.Parallel()
	part := tier.Pick(30, 1, 1) // of the requests that a batch may have
	most := 16 << 20 / part
	var limits strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&limits, "  a-limit-with-a-name-that-is-as-long-as-names-may-be-%010d: token-bucket 5/1m\n", i)
	}
	named, _ := handler(t, "allow_notations: true\nlimits:\n"+limits.String())
	for name, one := range map[string]string{
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
		n := min(9999, (4<<20-30)/(len(one)+1)) / part
		if strings.Contains(one, "charges") {
			n = min(4999/part, n)
		}
		body := `{"requests":[` + strings.Repeat(one+",", n) + one + `]}`
		w := httptest.NewRecorder()
		named.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/batch", strings.NewReader(body)))
		t.Logf("%s: %d requests, %d bytes, are answered with %d", name, n+1, len(body), w.Body.Len())
		if w.Code != http.StatusOK || w.Body.Len() > most || !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s: status %d, %d bytes, %.300s", name, w.Code, w.Body.Len(), w.Body)
		}
	}
}
