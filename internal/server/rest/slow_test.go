package rest

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/load"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/store/memory"
)

// TestAClientThatDoesNotReadHoldsNothingForLong asks for long answers and reads none, of a server that has much
// patience, which holds them, and of one that has little.
func TestAClientThatDoesNotReadHoldsNothingForLong(t *testing.T) {
	t.Parallel()
	d, _ := serverToNoReaders(t, time.Hour)
	await.Until(t, "long answers to be held", func() bool { return inFlight(d) >= load.PerObject*9000 })
	d, closed := serverToNoReaders(t, 300*time.Millisecond)
	await.Until(t, "all to be given up", func() bool { return closed.Load() == noReaders })
	await.Until(t, "nothing to be held", func() bool { return inFlight(d) == 0 })
}

const noReaders = 2

// serverToNoReaders has clients ask that do not read, and counts the connections that the server closes.
func serverToNoReaders(t *testing.T, patience time.Duration) (d *server, closed *atomic.Int64) {
	t.Helper()
	d = newServer(service.New(headgate.New(memory.New(nil), nil), &config.Config{}, nil),
		slog.New(slog.DiscardHandler), nil)
	d.writeTimeout, d.writeRate = patience, 1<<30
	closed = new(atomic.Int64)
	server := httptest.NewUnstartedServer(handler(d.routes()))
	server.Config.ConnState = func(conn net.Conn, to http.ConnState) {
		switch to {
		case http.StateNew:
			_ = conn.(*net.TCPConn).SetWriteBuffer(4 << 10) // the kernel would take the answer
		case http.StateClosed:
			closed.Add(1)
		}
	}
	server.Start()
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	body := `{"requests":[` + strings.Repeat(`{"limit":"x","key":"k"},`, 9999) + `{"limit":"x","key":"k"}]}` // 2.8 MB
	for range noReaders {
		conn, err := net.Dial("tcp", strings.TrimPrefix(server.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		fmt.Fprintf(conn, "POST /v1/batch HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	return d, closed
}

// TestAClientThatDoesNotReadKeepsNobodyFromBeingDecided: its answers are just longer than
// what net/http buffers.
func TestAClientThatDoesNotReadKeepsNobodyFromBeingDecided(t *testing.T) {
	t.Parallel()
	d := newServer(service.New(headgate.New(memory.New(nil), nil), &config.Config{}, nil),
		slog.New(slog.DiscardHandler), &Config{Load: load.New(1, 0)})
	d.writeTimeout = time.Hour
	server := httptest.NewServer(handler(d.routes()))
	defer server.Close()
	defer server.CloseClientConnections()
	conn, err := net.Dial("tcp", strings.TrimPrefix(server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	one := `{"limit":"token-bucket 5/1m burst 5","key":"k"}`
	body := `{"requests":[` + strings.Repeat(one+",", 29) + one + `]}`
	request := fmt.Sprintf("POST /v1/batch HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	many, rest := strings.Repeat(request, 100), ""
	for stalled := 0; stalled < 3; { // until the server reads no more, since it cannot write
		if rest == "" {
			rest = many
		}
		_ = conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		n, err := io.WriteString(conn, rest)
		rest = rest[n:]
		if stalled++; n > 0 {
			stalled = 0
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
	}
	// A slow machine may still decide what it has read, one request after the other. What it cannot write it holds
	// for an hour.
	await.Until(t, "another caller to be decided", func() bool {
		w := httptest.NewRecorder()
		handler(d.routes()).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/take", strings.NewReader(one)))
		n, _ := d.Load.InFlight()
		return w.Code == http.StatusOK && n == 0
	})
}

// TestSharesAreGivenBack asks for all kinds of things, good and bad.
func TestSharesAreGivenBack(t *testing.T) {
	t.Parallel()
	d := newServer(service.New(headgate.New(memory.New(&memory.Config{Names: true}), nil), &config.Config{}, nil),
		slog.New(slog.DiscardHandler), &Config{Load: load.New(1, 1<<20)})
	h := handler(d.routes())
	good := `{"limit":"token-bucket 5/1m","key":"k"`
	for _, body := range []string{
		good + "}", good, good + strings.Repeat(" ", 5000) + "}", good + strings.Repeat(" ", 300<<10) + "}",
		good + strings.Repeat(" ", 900<<10) + "}", good + strings.Repeat(" ", 5<<20) + "}",
		`{"requests":[` + strings.Repeat(good+"},", 300) + good + `}]}`, `{"requests":[` +
			strings.Repeat(good+"},", 1000) + good + `}]}`, `{"requests":[` + strings.Repeat("{},", 20_000) + "{}]}",
	} {
		for _, path := range []string{
			"/v1/take", "/v1/fill-up", "/v1/batch", "/v1/inspect", "/v1/cells", "/v1/cells?max=10000",
			"/v1/limits", "/v1/usage", "/v1/usage?key=k", "/v1/usage?key=k&limit=nope", "/v1/usage?key=k&limit=5/1m",
		} {
			method := "POST"
			if path[4] == 'c' || path[4] == 'l' || path[4] == 'u' {
				method = "GET"
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(method, path, io.MultiReader(strings.NewReader(body))))
			if requests, bytes := d.Load.InFlight(); bytes != 0 || requests != 0 {
				t.Fatalf("%s %.40s (%d bytes): status %d, and %d bytes in %d requests are held", path, body, len(body),
					w.Code, bytes, requests)
			}
		}
	}
}

// inFlight returns what requests hold, and how many there are.
func inFlight(d *server) int64 {
	requests, bytes := d.Load.InFlight()
	return requests + bytes
}
