package edge_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/server/edge"
)

// conn is a connection of a client.
type conn struct {
	net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, addr string) conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return conn{c, bufio.NewReader(c)}
}

// ask sends a request and returns the status of the answer, or 0 if the connection was
// closed.
func (c conn) ask(path string) int {
	if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		return 0
	}
	res, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode
}

// ended reports whether the server has closed the connection, within a while.
func (c conn) ended(within time.Duration) bool {
	_ = c.SetReadDeadline(time.Now().Add(within))
	_, err := c.r.Peek(1)
	var timeout net.Error
	return !errors.As(err, &timeout) || !timeout.Timeout()
}

func TestTheLongestIdleConnectionMakesRoom(t *testing.T) {
	t.Parallel()
	addr, server := serve(t, "127.0.0.1:0", hello, &edge.Config{MaxConnections: 3})
	a, b, c := dial(t, addr), dial(t, addr), dial(t, addr)
	for i, one := range []conn{a, b, c, a} { // so b is the longest without a request
		if got := one.ask("/"); got != 200 {
			t.Fatalf("request %d: %d", i, got)
		}
		// net/http tells that a connection is idle after it has sent the answer.
		for !server.AllQuiet() {
			time.Sleep(time.Millisecond)
		}
	}
	d := dial(t, addr)
	if got := d.ask("/"); got != 200 {
		t.Errorf("the fourth connection: %d", got)
	}
	if !b.ended(time.Minute) {
		t.Error("the longest idle connection is open")
	}
	for i, one := range []conn{a, c, d} {
		if got := one.ask("/"); got != 200 {
			t.Errorf("connection %d of those that may stay: %d", i, got)
		}
	}
}

// TestHeadersAreBounded by their bytes and by their lines, of which each takes much
// memory. The count starts again with the next request on a connection.
func TestHeadersAreBounded(t *testing.T) {
	t.Parallel()
	addr, _ := serve(t, "127.0.0.1:0", hello, nil)
	c := dial(t, addr)
	for i, tt := range []struct {
		header, body string
		want         int
	}{
		{strings.Repeat("a:\r\n", 97), "", 200}, // with the first line and Host, and the blank one
		{strings.Repeat("a:\n", 97), "", 200},
		{"", strings.Repeat("\n", 3000), 200}, // a body may have as many as it likes
		{"x: " + strings.Repeat("x", 16_000) + "\r\n", "", 200},
		{"", strings.Repeat("\r\n", 100_000), 200},
		{strings.Repeat("a:\r\n", 97), "", 200},
	} {
		fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n%s\r\n%s", len(tt.body),
			strings.TrimPrefix(tt.header, "a:\r\n"), tt.body)
		res, err := http.ReadResponse(c.r, nil)
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		if res.Body.Close(); res.StatusCode != tt.want {
			t.Errorf("request %d: status %d, want %d", i, res.StatusCode, tt.want)
		}
	}
	for _, header := range []string{
		strings.Repeat("a:\r\n", 101), strings.Repeat("a:\n", 101), strings.Repeat("a:\r\n", 3000),
		"x: " + strings.Repeat("x", 30_000) + "\r\n",
		strings.Repeat(" \r\n", 101), "\r\n\r\n" + strings.Repeat("a:\r\n", 3000),
	} {
		for _, end := range []string{"", "\r\n"} { // a header that is not over is not waited for
			for _, first := range []string{"", "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"} {
				passes, took := sendHeader(t, addr, first, header+end)
				for try := 1; took > 3*time.Second && try < 3; try++ { // the machine may pause
					passes, took = sendHeader(t, addr, first, header+end)
				}
				if passes && !strings.HasPrefix(header, "\r\n") || took > 3*time.Second {
					t.Errorf("%d bytes of header that begin with %.8q and end with %q: status 200 is %v, after %v",
						len(header), header, end, passes, took)
				}
			}
		}
	}
}

// sendHeader sends a header over a connection, perhaps after another request. It returns whether the
// answer is 200, and how long it takes until there is one or the connection is closed.
func sendHeader(t *testing.T, addr, first, header string) (passes bool, took time.Duration) {
	t.Helper()
	c := dial(t, addr)
	if first != "" {
		if status := c.ask("/"); status != 200 {
			t.Fatal(status)
		}
	}
	began := time.Now()
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\n"+header)
	res, err := http.ReadResponse(c.r, nil)
	if err == nil {
		res.Body.Close()
	}
	return err == nil && res.StatusCode == http.StatusOK, time.Since(began)
}

// TestConnectionsThatSayNothingKeepNobodyOut opens many that send no request at all.
func TestConnectionsThatSayNothingKeepNobodyOut(t *testing.T) {
	t.Parallel()
	addr, _ := serve(t, "127.0.0.1:0", hello, &edge.Config{MaxConnections: 10})
	var took []time.Duration
	for len(took) < 3 && (len(took) == 0 || took[len(took)-1] > 3*time.Second) { // the machine may pause
		for range 50 {
			_, _ = io.WriteString(dial(t, addr), "GET / HT")
		}
		start := time.Now()
		if got := dial(t, addr).ask("/"); got != 200 {
			t.Errorf("status %d", got)
		}
		took = append(took, time.Since(start))
	}
	if slices.Min(took) > 3*time.Second { // the time for a header is 5 s
		t.Errorf("it was answered after %v", took)
	}
}

func TestAConnectionWaitsWhileAllAreAtWork(t *testing.T) {
	t.Parallel()
	release, began := make(chan struct{}), make(chan struct{}, 10)
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			began <- struct{}{}
			<-release
		}
	})
	addr, s := serve(t, "127.0.0.1:0", h, &edge.Config{MaxConnections: 2})
	answers := make(chan int, 10)
	for range 2 {
		one := dial(t, addr)
		go func() { answers <- one.ask("/slow") }()
		<-began
	}
	third := dial(t, addr)
	go func() { answers <- third.ask("/") }()
	select {
	case got := <-answers:
		t.Fatalf("answered with %d while two requests were under way of two", got)
	case <-time.After(200 * time.Millisecond):
	}
	release <- struct{}{}
	for range 2 { // the slow one, and the one that waited
		if got := <-answers; got != 200 {
			t.Errorf("status %d", got)
		}
	}

	// One that waits does not keep a server from stopping.
	d := dial(t, addr)
	go func() { answers <- d.ask("/slow") }() // it takes the place of an idle one
	<-began
	dial(t, addr) // and this one waits
	stopped := make(chan error, 1)
	go func() { stopped <- s.Shutdown(t.Context()) }()
	time.Sleep(100 * time.Millisecond)
	close(release)
	select {
	case err := <-stopped:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the server does not stop")
	}
}

func TestShutdownWaitsForRequestsAsLongAsItMay(t *testing.T) {
	t.Parallel()
	began, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	addr, s := serve(t, "127.0.0.1:0", http.HandlerFunc(
		func(http.ResponseWriter, *http.Request) { close(began); <-release }), nil)
	c := dial(t, addr)
	go c.ask("/")
	<-began
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}
