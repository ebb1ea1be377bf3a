// Outgoing keeps an outgoing quota: an http.Client that sends no more than a limit allows.
//
//	go run ./examples/outgoing                          # calls a server of its own
//	go run ./examples/outgoing -store sqlite:quota.db   # run it twice: both share the quota
//	go run ./examples/outgoing -url https://example.com/ -limit 'token-bucket 1/s' -calls 3
//
// Requests wait for their start instead of failing. When the server answers 429 with Retry-After, every process that
// shares the store pauses its requests to that host until then, and the request is sent again.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/store/open"
)

// newClient returns a client that sends no more requests to each host than the limit allows.
func newClient(limiter *headgate.Limiter, limit headgate.Limit, out io.Writer) (*http.Client, error) {
	transport, err := httplimit.New(limiter, limit, &httplimit.Config{
		MaxWait: time.Minute, // a request that would have to wait longer fails at once
		Retries: 2,           // of requests that are idempotent
		OnBackoff: func(b httplimit.Backoff) {
			fmt.Fprintf(out, "%s answers %d: hold back for %v\n", b.Key, b.Status, b.For.Round(time.Second))
		},
	})
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: transport}, nil
}

// busyServer returns a server that answers its third request with 429, to be sent again after a second.
func busyServer() *httptest.Server {
	var requests atomic.Int64
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) == 3 {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many requests", http.StatusTooManyRequests)
		}
	}))
}

// get sends one request and reads its answer.
func get(ctx context.Context, client *http.Client, url string) (status string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	// headgate.ErrDenied: the limit refused. What was sent, if anything, was answered with 429, 503 or 403.
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body) // so that the connection can be used again
	return resp.Status, err
}

// limit bounds the requests to each host.
var limit = headgate.MustParseNamed("outgoing", "token-bucket 5/s burst 1")

func main() {
	storeURL := flag.String("store", "memory:", "URL of the store, such as sqlite:FILE")
	url := flag.String("url", "", "URL to call instead of a server of this program")
	flag.Var(&limit, "limit", "the limit for each host")
	calls := flag.Int("calls", 10, "number of requests")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, *storeURL, *url, *calls)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, storeURL, url string, calls int) error {
	if url == "" {
		server := busyServer()
		defer server.Close()
		url = server.URL
	}
	limiter, s, err := open.Limiter(ctx, storeURL, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	return call(ctx, out, limiter, limit, url, calls)
}

// call sends requests, one after another, and prints when they were answered.
func call(ctx context.Context, out io.Writer, limiter *headgate.Limiter, limit headgate.Limit, url string,
	calls int,
) error {
	client, err := newClient(limiter, limit, out)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()

	start := time.Now()
	for i := range calls {
		status, err := get(ctx, client, url)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%.1fs: request %d: %s\n", time.Since(start).Seconds(), i+1, status)
	}
	return nil
}
