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

// TestWriteTimeoutReleasesTheMemory sends batches whose answers no client reads. It checks that their memory is held
// until the write timeout is over, and is released then.
func TestWriteTimeoutReleasesTheMemory(t *testing.T) {
	t.Parallel()
	srv, _ := serveSilentClients(t, time.Hour)
	// Its 10,000 requests are held, but for the few of load.FreeObjects; 9000 are enough to tell.
	await.Until(t, "a batch of 10,000 to be held", func() bool { return heldBytes(srv) >= load.BytesPerObject*9000 })
	srv, closed := serveSilentClients(t, 300*time.Millisecond)
	await.Until(t, "all connections to be closed", func() bool { return closed.Load() == silentClients })
	await.Until(t, "no memory to be held", func() bool { return heldBytes(srv) == 0 })
}

const silentClients = 2

// serveSilentClients serves clients that send a batch and read no answer. closed counts the closed connections.
func serveSilentClients(t *testing.T, writeTimeout time.Duration) (srv *server, closed *atomic.Int64) {
	t.Helper()
	srv = newServer(service.New(headgate.New(memory.New(nil), nil), &config.Config{}, nil),
		slog.New(slog.DiscardHandler), nil)
	srv.writeTimeout, srv.writeRate = writeTimeout, 1<<30 // so great a rate that it adds no time
	closed = new(atomic.Int64)
	ts := httptest.NewUnstartedServer(handler(srv.routes()))
	ts.Config.ConnState = func(conn net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			_ = conn.(*net.TCPConn).SetWriteBuffer(4 << 10) // otherwise the kernel would buffer the whole answer
		case http.StateClosed:
			closed.Add(1)
		}
	}
	ts.Start()
	t.Cleanup(func() { ts.CloseClientConnections(); ts.Close() })
	// The body has 24 bytes for each of 10,000 requests, 240 kB. Each is answered with a problem, in all about 2.8 MB.
	body := `{"requests":[` + strings.Repeat(`{"limit":"x","key":"k"},`, 9999) + `{"limit":"x","key":"k"}]}`
	for range silentClients {
		conn, err := net.Dial("tcp", strings.TrimPrefix(ts.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		fmt.Fprintf(conn, "POST /v1/batch HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	return srv, closed
}

// TestAClientThatDoesNotReadBlocksNoDecision checks that a server which decides one request at a time decides others
// while it writes to a client that reads nothing. The answers are just longer than what net/http buffers.
func TestAClientThatDoesNotReadBlocksNoDecision(t *testing.T) {
	t.Parallel()
	srv := newServer(service.New(headgate.New(memory.New(nil), nil), &config.Config{}, nil),
		slog.New(slog.DiscardHandler), &Config{Load: load.New(1, 0)})
	srv.writeTimeout = time.Hour
	ts := httptest.NewServer(handler(srv.routes()))
	defer ts.Close()
	defer ts.CloseClientConnections()
	conn, err := net.Dial("tcp", strings.TrimPrefix(ts.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	charge := `{"limit":"token-bucket 5/1m burst 5","key":"k"}`
	body := `{"requests":[` + strings.Repeat(charge+",", 29) + charge + `]}`
	request := fmt.Sprintf("POST /v1/batch HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	unsent := ""
	for stalls := 0; stalls < 3; { // until the server stops reading, since it cannot write
		if unsent == "" {
			unsent = strings.Repeat(request, 100)
		}
		_ = conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		n, err := io.WriteString(conn, unsent)
		unsent = unsent[n:]
		if stalls++; n > 0 {
			stalls = 0
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
	}
	// A slow machine may first decide what it has read, one after the other, so wait. No write timeout ends meanwhile.
	await.Until(t, "a request of another client to be decided", func() bool {
		w := httptest.NewRecorder()
		handler(srv.routes()).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/take", strings.NewReader(charge)))
		requests, _ := srv.Load.InFlight()
		return w.Code == http.StatusOK && requests == 0
	})
}

// TestLoadIsReleased checks that no request and no memory is counted after a request, whether it succeeds or fails.
func TestLoadIsReleased(t *testing.T) {
	t.Parallel()
	srv := newServer(service.New(headgate.New(memory.New(&memory.Config{Names: true}), nil), &config.Config{}, nil),
		slog.New(slog.DiscardHandler), &Config{Load: load.New(1, 1<<20)})
	h := handler(srv.routes())
	unclosed := `{"limit":"token-bucket 5/1m","key":"k"` // without the brace at its end
	for _, body := range []string{
		unclosed + "}", unclosed, unclosed + strings.Repeat(" ", 5000) + "}",
		unclosed + strings.Repeat(" ", 300<<10) + "}", unclosed + strings.Repeat(" ", 900<<10) + "}",
		unclosed + strings.Repeat(" ", 5<<20) + "}",
		`{"requests":[` + strings.Repeat(unclosed+"},", 300) + unclosed + `}]}`,
		`{"requests":[` + strings.Repeat(unclosed+"},", 1000) + unclosed + `}]}`,
		`{"requests":[` + strings.Repeat("{},", 20_000) + "{}]}",
	} {
		for _, path := range []string{
			"/v1/take", "/v1/fill-up", "/v1/batch", "/v1/inspect", "/v1/cells", "/v1/cells?max=10000",
			"/v1/limits", "/v1/usage", "/v1/usage?key=k", "/v1/usage?key=k&limit=nope", "/v1/usage?key=k&limit=5/1m",
		} {
			method := "POST"
			switch route, _, _ := strings.Cut(path, "?"); route {
			case "/v1/cells", "/v1/limits", "/v1/usage":
				method = "GET"
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(method, path, io.MultiReader(strings.NewReader(body))))
			if requests, bytes := srv.Load.InFlight(); bytes != 0 || requests != 0 {
				t.Fatalf("%s %.40s (%d bytes): status %d, %d requests and %d bytes are counted, want none", path, body,
					len(body), w.Code, requests, bytes)
			}
		}
	}
}

// heldBytes returns how many bytes the requests in flight hold.
func heldBytes(srv *server) int64 {
	_, bytes := srv.Load.InFlight()
	return bytes
}
