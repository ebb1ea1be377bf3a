package httplimit_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/store/sqlite"
)

// A replica has senders goroutines that send. In a second replicaLimit lets more requests pass than there are senders.
const (
	replicaLimit = "token-bucket 100/s burst 1"
	senders      = 10
)

// runIfChild runs a replica if the process's task names a number, a store and a server; else it returns false. The
// replica sends one request for the line "one", and as many as it may for "many", until its input ends. It prints
// "told" for each Retry-After that it has stored.
func runIfChild() bool {
	args := strings.Fields(dbtest.Task())
	if len(args) != 3 {
		return false
	}
	ctx, cancel := context.WithCancel(context.Background())
	s, err := sqlite.Open(ctx, args[1], nil)
	exitOn(err)
	l := headgate.New(s, &headgate.Config{Timeout: time.Minute})
	onBackoff := func(httplimit.Backoff) { fmt.Println("told") }
	rt, err := httplimit.New(l, headgate.MustParse(replicaLimit), &httplimit.Config{
		MaxWait: headgate.Never, Retries: 5, Key: func(*http.Request) string { return "far" }, OnBackoff: onBackoff,
	})
	exitOn(err)
	client := &http.Client{Transport: rt}
	send := func(ctx context.Context, client *http.Client) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, args[2]+"/"+args[0], nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
	var wg sync.WaitGroup
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		switch lines.Text() {
		case "one":
			noWaitTripper, err := httplimit.New(l, headgate.MustParse(replicaLimit), &httplimit.Config{
				Key: func(*http.Request) string { return "far" }, OnBackoff: onBackoff,
			})
			exitOn(err)
			exitOn(send(ctx, &http.Client{Transport: noWaitTripper}))
		case "many":
			for range senders {
				wg.Go(func() {
					for ctx.Err() == nil {
						if err := send(ctx, client); err != nil && ctx.Err() == nil {
							exitOn(err)
						}
					}
				})
			}
		}
	}
	cancel()
	wg.Wait()
	exitOn(s.Close())
	return true
}

// exitOn ends the process if there is an error.
func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// arrivedRequest is a request that the server got.
type arrivedRequest struct {
	at      time.Time
	replica string
}

// refusingServer answers a request with 429 and Retry-After after refuseNext, and then no other before resume.
type refusingServer struct {
	retryAfter time.Duration

	mu        sync.Mutex
	requests  []arrivedRequest
	refuse    bool          // whether the next request is answered with 429
	refusedAt time.Time     // when the last request was answered with 429
	paused    bool          // from refusedAt until resume
	resumed   chan struct{} // closed by resume
}

func (s *refusingServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	now := time.Now()
	s.requests = append(s.requests, arrivedRequest{now, r.URL.Path})
	if s.refuse {
		s.refuse, s.refusedAt, s.paused, s.resumed = false, now, true, make(chan struct{})
		s.mu.Unlock()
		w.Header().Set("Retry-After", strconv.Itoa(int(s.retryAfter.Seconds())))
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	paused, resumed := s.paused, s.resumed
	s.mu.Unlock()
	if paused {
		<-resumed
	}
}

// refuseNext makes the server answer the next request with 429.
func (s *refusingServer) refuseNext() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = true
}

// resume makes the server answer waiting and further requests. Before, the store must have the Retry-After.
func (s *refusingServer) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = false
	close(s.resumed)
}

// countEarly waits until each of the three replicas has sent a request after the end of the last Retry-After. It
// returns how many requests came between the 429 and that end.
func (s *refusingServer) countEarly(t *testing.T, name string) (early int) {
	t.Helper()
	await.Until(t, "all three "+name+" to send requests after the 429", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		early = 0
		replicas := map[string]bool{}
		for _, r := range s.requests {
			switch d := r.at.Sub(s.refusedAt); {
			case d > 0 && d < s.retryAfter:
				early++
			case d >= s.retryAfter:
				replicas[r.replica] = true
			}
		}
		return len(replicas) == 3
	})
	t.Logf("%s: %d requests between the 429 and the end of its Retry-After", name, early)
	return early
}

// TestReplicasHoldBackTogether lets three processes share a store. One of them is answered with 429 and Retry-After 1
// before the others send: none may send a request in that second. A second 429 comes while they all send as much as
// they may: only requests that were on their way may come early.
func TestReplicasHoldBackTogether(t *testing.T) {
	t.Parallel()
	server := &refusingServer{retryAfter: time.Second, refuse: true}
	srv := httptest.NewServer(server)
	t.Cleanup(srv.Close) // after the replicas have ended
	storeURL := "sqlite:" + filepath.Join(t.TempDir(), "state.db") + "?synchronous=normal"
	inputs, lines := startReplicas(t, storeURL, srv.URL)

	fmt.Fprintln(inputs[0], "one")
	await.Receive(t, "the store to have the first Retry-After", lines)
	server.resume()
	for _, w := range inputs {
		fmt.Fprintln(w, "many")
	}
	if early := server.countEarly(t, "idle replicas"); early != 0 {
		t.Errorf("idle replicas: got %d early requests, want 0", early)
	}
	server.refuseNext()
	await.Receive(t, "the store to have the second Retry-After", lines)
	server.resume()
	if early := server.countEarly(t, "busy replicas"); early >= len(inputs)*senders {
		t.Errorf("busy replicas: got %d early requests, want less than %d", early, len(inputs)*senders)
	}
	for _, w := range inputs {
		w.Close()
	}
}

// startReplicas starts three processes, which end when their inputs are closed. lines has the lines that they print.
func startReplicas(t *testing.T, storeURL, serverURL string) (inputs []io.WriteCloser, lines <-chan string) {
	t.Helper()
	output := make(chan string, 100)
	for i := range 3 {
		c := dbtest.StartChild(t, fmt.Sprint(i, " ", storeURL, " ", serverURL))
		var reader sync.WaitGroup
		reader.Go(func() {
			for scanner := bufio.NewScanner(c.Out); scanner.Scan(); {
				output <- scanner.Text()
			}
		})
		t.Cleanup(func() {
			c.In.Close()
			reader.Wait()
			if err := c.Wait(); err != nil {
				t.Errorf("replica %d: %v", i, err)
			}
		})
		inputs = append(inputs, c.In)
	}
	return inputs, output
}
