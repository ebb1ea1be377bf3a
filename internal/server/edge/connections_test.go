package edge_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/server/edge"
	"github.com/headgate/headgate/internal/testing/await"
)

// conn is the client's side of a connection.
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
	_ = c.SetDeadline(time.Now().Add(await.Patience))
	return conn{c, bufio.NewReader(c)}
}

// send sends a request and returns the status of the answer, or 0 if the connection was closed.
func (c conn) send(path string) int {
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

// closed reports whether the server closes the connection within a time, or sends something.
func (c conn) closed(within time.Duration) bool {
	_ = c.SetReadDeadline(time.Now().Add(within))
	_, err := c.r.Peek(1)
	var timeout net.Error
	return !errors.As(err, &timeout) || !timeout.Timeout()
}

// TestTheLongestIdleConnectionMakesRoom checks that a fourth connection, if 3 may be open, closes the longest idle one.
func TestTheLongestIdleConnectionMakesRoom(t *testing.T) {
	t.Parallel()
	addr, server := serve(t, "127.0.0.1:0", hello, &edge.Config{MaxConnections: 3})
	a, b, c := dial(t, addr), dial(t, addr), dial(t, addr)
	for i, client := range []conn{a, b, c, a} { // so b is the longest without a request
		if got := client.send("/"); got != 200 {
			t.Fatalf("request %d: %d", i, got)
		}
		// net/http reports a connection as idle only after it has sent the answer.
		await.Until(t, "all to be idle", server.AllIdle)
	}
	d := dial(t, addr)
	if got := d.send("/"); got != 200 {
		t.Errorf("the fourth connection: got status %d, want 200", got)
	}
	if !b.closed(await.Patience) {
		t.Error("the longest idle connection is open")
	}
	for i, client := range []conn{a, c, d} {
		if got := client.send("/"); got != 200 {
			t.Errorf("connection %d of the three that stay: got status %d, want 200", i, got)
		}
	}
}

// TestHeadersAreBounded checks the bounds on bytes and lines of a header, also for the next request on a connection.
func TestHeadersAreBounded(t *testing.T) {
	t.Parallel()
	addr := serveWithoutTimeout(t, nil)
	c := dial(t, addr)
	for i, tt := range []struct {
		header, body string
		want         int
	}{
		{strings.Repeat("a:\r\n", 97), "", 200}, // 100 lines with the first three; the blank line does not count
		{strings.Repeat("a:\n", 97), "", 200},
		{"", strings.Repeat("\n", 3000), 200}, // the lines of a body do not count
		{"x: " + strings.Repeat("x", 16_000) + "\r\n", "", 200},
		{"", strings.Repeat("\r\n", 100_000), 200},
		{strings.Repeat("a:\r\n", 97), "", 200},
	} {
		fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n%s\r\n%s", len(tt.body), tt.header,
			tt.body)
		res, err := http.ReadResponse(c.r, nil)
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		if res.Body.Close(); res.StatusCode != tt.want {
			t.Errorf("request %d: status %d, want %d", i, res.StatusCode, tt.want)
		}
	}
	for _, header := range []string{ // they follow two lines, so 99 are one too many
		strings.Repeat("a:\r\n", 99), strings.Repeat("a:\n", 99), strings.Repeat("a:\r\n", 3000),
		"x: " + strings.Repeat("x", 24<<10) + "\r\n", // net/http adds twice 4 KiB to the bound
		strings.Repeat(" \r\n", 99), "\r\n\r\n" + strings.Repeat("a:\r\n", 3000),
	} {
		for _, end := range []string{"", "\r\n"} { // without an end, the server must not wait for more
			for _, second := range []bool{false, true} {
				passes, err := sendHeader(t, addr, second, header+end)
				if passes && !strings.HasPrefix(header, "\r\n") || errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("%d bytes of header that begin with %.8q and end with %q: status 200 is %v, %v",
						len(header), header, end, passes, err)
				}
			}
		}
	}
}

// sendHeader sends a header over a new connection, after another request if second is true. It returns whether the
// answer is 200, or an error if there is no answer.
func sendHeader(t *testing.T, addr string, second bool, header string) (passes bool, err error) {
	t.Helper()
	c := dial(t, addr)
	if second {
		if status := c.send("/"); status != 200 {
			t.Fatal(status)
		}
	}
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\n"+header)
	res, err := http.ReadResponse(c.r, nil)
	if err == nil {
		res.Body.Close()
	}
	return err == nil && res.StatusCode == http.StatusOK, err
}

// TestIncompleteRequestsKeepNobodyOut checks that a client is served beside 50 incomplete requests.
func TestIncompleteRequestsKeepNobodyOut(t *testing.T) {
	t.Parallel()
	addr := serveWithoutTimeout(t, &edge.Config{MaxConnections: 10})
	for range 50 {
		_, _ = io.WriteString(dial(t, addr), "GET / HT")
	}
	if got := dial(t, addr).send("/"); got != 200 {
		t.Errorf("got status %d, want 200", got)
	}
}

// TestAConnectionWaitsWhileAllAreBusy checks that a third connection waits while 2 of 2 are busy, and that one that
// waits does not delay Shutdown.
func TestAConnectionWaitsWhileAllAreBusy(t *testing.T) {
	t.Parallel()
	release, began := make(chan struct{}), make(chan struct{}, 10)
	var s *edge.Server
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if n := s.OpenCount(); n > 2 {
			t.Errorf("%s is answered over one of %d connections", r.URL.Path, n)
		}
		if r.URL.Path == "/slow" {
			began <- struct{}{}
			<-release
		}
	})
	warningLines := make(warnings, 10)
	s = edge.NewServer(h, slog.New(slog.NewTextHandler(warningLines, nil)), &edge.Config{MaxConnections: 2})
	addr := listen(t, "127.0.0.1:0", s)
	answers := make(chan int, 10)
	for range 2 {
		busy := dial(t, addr)
		go func() { answers <- busy.send("/slow") }()
		<-began
	}
	third := dial(t, addr)
	go func() { answers <- third.send("/") }()
	await.Receive(t, "the third connection to wait", warningLines)
	release <- struct{}{}
	for range 2 { // the slow request that was released, and the request of the third connection
		if got := <-answers; got != 200 {
			t.Errorf("got status %d, want 200", got)
		}
	}

	fourth := dial(t, addr)
	go func() { answers <- fourth.send("/slow") }() // it takes the place of an idle one
	<-began
	await.Receive(t, "the idle connection to make room", warningLines)
	dial(t, addr) // this one waits
	await.Receive(t, "the last connection to wait", warningLines)
	stopped := make(chan error, 1)
	go func() { stopped <- s.Shutdown(t.Context()) }()
	await.Until(t, "the server to accept no more", func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	close(release)
	if err := await.Receive(t, "the server to stop", stopped); err != nil {
		t.Error(err)
	}
}

// warnings receives a value for each line of a log, as far as it has room.
type warnings chan struct{}

func (w warnings) Write(line []byte) (int, error) {
	select {
	case w <- struct{}{}:
	default:
	}
	return len(line), nil
}

// TestShutdownWaitsForRequests checks that Shutdown waits for a request until its context ends.
func TestShutdownWaitsForRequests(t *testing.T) {
	t.Parallel()
	began, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	addr, s := serve(t, "127.0.0.1:0", http.HandlerFunc(
		func(http.ResponseWriter, *http.Request) { close(began); <-release }), nil)
	c := dial(t, addr)
	go c.send("/")
	<-began
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
}
