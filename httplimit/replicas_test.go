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

// replicaLimit lets many more pass in the time of a Retry-After than there are that send.
const replicaLimit, sending = "token-bucket 100/s burst 1", 10

// child runs a replica, if its task names a number, a store and a server. It sends one
// request for "one" on its input, and as many as it may for "many", until its
// input ends. It reports once the store has a Retry-After.
func child() bool {
	job := strings.Fields(dbtest.Task())
	if len(job) != 3 {
		return false
	}
	ctx, cancel := context.WithCancel(context.Background())
	st, err := sqlite.Open(ctx, job[1], nil)
	exit(err)
	l := headgate.New(st, &headgate.Config{Timeout: time.Minute})
	told := func(httplimit.Backoff) { fmt.Println("told") }
	rt, err := httplimit.New(l, headgate.MustParse(replicaLimit), &httplimit.Config{
		MaxWait: headgate.Never, Retries: 5, Key: func(*http.Request) string { return "far" }, OnBackoff: told,
	})
	exit(err)
	client := &http.Client{Transport: rt}
	get := func(ctx context.Context, client *http.Client) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, job[2]+"/"+job[0], nil)
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
	var all sync.WaitGroup
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		switch lines.Text() {
		case "one":
			impatient, err := httplimit.New(l, headgate.MustParse(replicaLimit), &httplimit.Config{
				Key: func(*http.Request) string { return "far" }, OnBackoff: told,
			})
			exit(err)
			exit(get(ctx, &http.Client{Transport: impatient}))
		case "many":
			for range sending {
				all.Go(func() {
					for ctx.Err() == nil {
						if err := get(ctx, client); err != nil && ctx.Err() == nil {
							exit(err)
						}
					}
				})
			}
		}
	}
	cancel()
	all.Wait()
	exit(st.Close())
	return true
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// arrived is a request that the server got.
type arrived struct {
	at      time.Time
	replica string
}

// refusing is a server that answers 429 with Retry-After when it is told to. It answers no other request before the
// store knows of that.
type refusing struct {
	asks time.Duration // in Retry-After

	mu      sync.Mutex
	got     []arrived
	refuse  bool          // the next is answered 429
	since   time.Time     // when the last was
	untold  chan struct{} // closed once the store knows of it
	unknown bool          // it does not yet
}

func (f *refusing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	now := time.Now()
	f.got = append(f.got, arrived{now, r.URL.Path})
	if f.refuse {
		f.refuse, f.since, f.unknown, f.untold = false, now, true, make(chan struct{})
		f.mu.Unlock()
		w.Header().Set("Retry-After", strconv.Itoa(int(f.asks.Seconds())))
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	unknown, untold := f.unknown, f.untold
	f.mu.Unlock()
	if unknown {
		<-untold
	}
}

// refuseNext has the next request answered 429.
func (f *refusing) refuseNext() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = true
}

// told has requests answered again.
func (f *refusing) told() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unknown = false
	close(f.untold)
}

// held waits until all three replicas have sent a request after what the last 429 asks for. It
// returns how many requests came between that 429 and the end of what it asks for.
func (f *refusing) held(t *testing.T, name string) (early int) {
	t.Helper()
	await.Until(t, "all three "+name+" to send requests after the 429", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		early = 0
		from := map[string]int{}
		for _, a := range f.got {
			switch d := a.at.Sub(f.since); {
			case d > 0 && d < f.asks:
				early++
			case d >= f.asks:
				from[a.replica]++
			}
		}
		return len(from) == 3
	})
	t.Logf("%s: %d requests between the 429 and the end of what it asks for", name, early)
	return early
}

// TestReplicasHoldBackTogether lets three processes share a store. One of them
// is answered 429 with Retry-After 1 while the others have not begun: none sends
// a request in that second. A second 429 comes while they all send as much
// as they may: each sends those requests at most that were on their way.
func TestReplicasHoldBackTogether(t *testing.T) {
	t.Parallel()
	f := &refusing{asks: time.Second, refuse: true}
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close) // after the replicas have ended
	url := "sqlite:" + filepath.Join(t.TempDir(), "state.db") + "?synchronous=normal"
	say, told := replicas(t, url, srv.URL)

	fmt.Fprintln(say[0], "one")
	await.Receive(t, "the store to be told of the first 429", told)
	f.told()
	for _, w := range say {
		fmt.Fprintln(w, "many")
	}
	if early := f.held(t, "idle replicas"); early != 0 {
		t.Errorf("idle replicas sent %d requests early", early)
	}
	f.refuseNext()
	await.Receive(t, "the store to be told of the second 429", told)
	f.told()
	if early := f.held(t, "busy replicas"); early >= len(say)*sending {
		t.Errorf("%d senders, of which one got a 429, sent %d requests early", len(say)*sending, early)
	}
	for _, w := range say {
		w.Close()
	}
}

// replicas starts three processes, which end when what they are told does. What they say is passed on.
func replicas(t *testing.T, store, server string) (say []io.WriteCloser, told <-chan string) {
	t.Helper()
	lines := make(chan string, 100)
	for i := range 3 {
		c := dbtest.StartChild(t, fmt.Sprint(i, " ", store, " ", server))
		var read sync.WaitGroup
		read.Go(func() {
			for said := bufio.NewScanner(c.Out); said.Scan(); {
				lines <- said.Text()
			}
		})
		t.Cleanup(func() {
			c.In.Close()
			read.Wait()
			if err := c.Wait(); err != nil {
				t.Errorf("replica %d: %v", i, err)
			}
		})
		say = append(say, c.In)
	}
	return say, lines
}
