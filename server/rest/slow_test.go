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
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/config"
	"github.com/headgate/headgate/server/load"
	"github.com/headgate/headgate/server/service"
	"github.com/headgate/headgate/store/memory"
)

// TestAClientThatDoesNotReadHoldsNothingForLong asks for long answers and reads none.
func TestAClientThatDoesNotReadHoldsNothingForLong(t *testing.T) {
	t.Parallel()
	most := int64(0)
	// A machine that pauses may not show what was held, so the server has more patience then.
	for _, patience := range []time.Duration{300 * time.Millisecond, 3 * time.Second, 15 * time.Second} {
		if most = max(most, heldFor(t, patience)); most >= load.PerObject*9000 {
			return
		}
	}
	t.Errorf("at most %d bytes were held", most)
}

// heldFor returns how much was held at most for clients that do not read, and waits until nothing is.
func heldFor(t *testing.T, patience time.Duration) (most int64) {
	t.Helper()
	d := newDoor(service.New(headgate.New(memory.New(nil), nil), &config.Config{}, nil),
		slog.New(slog.DiscardHandler), nil)
	d.patience, d.rate = patience, 1<<30
	server := httptest.NewServer(handler(d.routes()))
	defer server.Close()
	defer server.CloseClientConnections()
	body := `{"requests":[` + strings.Repeat(`{"limit":"x","key":"k"},`, 9999) + `{"limit":"x","key":"k"}]}` // 2.8 MB
	for range 3 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(server.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		fmt.Fprintf(conn, "POST /v1/batch HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		held := inFlight(d)
		most = max(most, held)
		if most > 0 && held == 0 {
			return most
		}
		if time.Now().After(end) {
			requests, bytes := d.load.InFlight()
			t.Fatalf("%d bytes in %d requests are held", bytes, requests)
		}
	}
}

// TestAClientThatDoesNotReadKeepsNobodyFromBeingDecided: its answers are just longer than
// what net/http buffers.
func TestAClientThatDoesNotReadKeepsNobodyFromBeingDecided(t *testing.T) {
	t.Parallel()
	d := newDoor(service.New(headgate.New(memory.New(nil), nil), &config.Config{}, nil), slog.New(slog.DiscardHandler),
		&Config{Load: load.New(1, 0)})
	d.patience = time.Hour
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
		_ = conn.SetWriteDeadline(time.Now().Add(400 * time.Millisecond))
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
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		w := httptest.NewRecorder()
		handler(d.routes()).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/take", strings.NewReader(one)))
		n, _ := d.load.InFlight()
		if w.Code == 200 && n == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("another caller: %d, %s; %d requests are being decided", w.Code, w.Body, n)
		}
	}
}

// TestSharesAreGivenBack asks for all kinds of things, good and bad.
func TestSharesAreGivenBack(t *testing.T) {
	t.Parallel()
	d := newDoor(service.New(headgate.New(memory.New(&memory.Config{Names: true}), nil), &config.Config{}, nil),
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
			if requests, bytes := d.load.InFlight(); bytes != 0 || requests != 0 {
				t.Fatalf("%s %.40s (%d bytes): status %d, and %d bytes in %d requests are held", path, body, len(body),
					w.Code, bytes, requests)
			}
		}
	}
}

// inFlight is what requests hold, and how many there are.
func inFlight(d *door) int64 {
	requests, bytes := d.load.InFlight()
	return requests + bytes
}
