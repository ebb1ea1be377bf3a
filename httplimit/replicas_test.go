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
	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/store/sqlite"
)

// replicaLimit lets those of whom all wait stand in line for more than a second.
const replicaLimit = "token-bucket 20/s burst 1"

// child is a replica, if its task says so: number, store and server. It sends one
// request for "one" on its input, says so, and sends as many as it may for "many",
// until its input ends.
func child() bool {
	job := strings.Fields(dbtest.Task())
	if len(job) != 3 {
		return false
	}
	ctx, cancel := context.WithCancel(context.Background())
	st, err := sqlite.Open(ctx, job[1], nil)
	exit(err)
	rt, err := httplimit.New(headgate.New(st, nil), headgate.MustParse(replicaLimit), &httplimit.Config{
		MaxWait: headgate.Never, Retries: 5, Key: func(*http.Request) string { return "far" },
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
			impatient, err := httplimit.New(headgate.New(st, nil), headgate.MustParse(replicaLimit), &httplimit.Config{
				Key: func(*http.Request) string { return "far" },
			})
			exit(err)
			exit(get(ctx, &http.Client{Transport: impatient}))
			fmt.Println("done")
		case "many":
			for range 10 {
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

// refusing is a server that answers 429 with Retry-After when it is told to.
type refusing struct {
	asks time.Duration // in Retry-After

	mu     sync.Mutex
	got    []arrived
	refuse bool      // the next is answered 429
	since  time.Time // when the last was
}

func (f *refusing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	f.got = append(f.got, arrived{now, r.URL.Path})
	if f.refuse {
		f.refuse, f.since = false, now
		w.Header().Set("Retry-After", strconv.Itoa(int(f.asks.Seconds())))
		w.WriteHeader(http.StatusTooManyRequests)
	}
}

// refuseNext has the next request answered 429.
func (f *refusing) refuseNext() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = true
}

// held waits until all three replicas have sent a request after what the last 429 asks for. It
// returns the requests that came between that 429, plus what it takes to tell of it, and the end of
// what it asks for. There are none.
func (f *refusing) held(t *testing.T, name string, telling time.Duration) (early []string) {
	t.Helper()
	from := map[string]int{}
	for end := time.Now().Add(time.Minute); len(from) < 3; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: after the 429 requests came from %v, want all three", name, from)
		}
		f.mu.Lock()
		late := 0
		early, from = nil, map[string]int{}
		for _, a := range f.got {
			switch d := a.at.Sub(f.since); {
			case f.refuse: // it was not answered 429 yet
			case d > telling && d < f.asks:
				early = append(early, fmt.Sprintf("%s sent %v after the 429", a.replica, d))
			case d > 0 && d <= telling:
				late++
			case d >= f.asks:
				from[a.replica]++
			}
		}
		f.mu.Unlock()
		if len(from) == 3 {
			t.Logf("%s: %d requests in the first %v after the 429, then %v", name, late, telling, from)
		}
	}
	return early
}

// TestReplicasHoldBackTogether lets three processes share a store. One of them
// is answered 429 with Retry-After 2 while the others have not begun: none sends
// a request in those two seconds. A second 429 comes while they all send as much
// as they may, and 27 of them stand in line.
func TestReplicasHoldBackTogether(t *testing.T) {
	f := &refusing{asks: 2 * time.Second, refuse: true}
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close) // after the replicas have ended
	url := "sqlite:" + filepath.Join(t.TempDir(), "state.db") + "?synchronous=normal"
	say, hear := replicas(t, url, srv.URL)

	fmt.Fprintln(say[0], "one")
	if line, err := hear[0].ReadString('\n'); err != nil || line != "done\n" {
		t.Fatalf("replica 0: %q, %v", line, err)
	}
	for _, w := range say {
		fmt.Fprintln(w, "many")
	}
	if early := f.held(t, "idle replicas", 0); early != nil {
		t.Errorf("idle replicas: %q", early)
	}
	// What was on its way when the answer came, and until the store was told, which takes as long as this process
	// needs for it, more or less. The machine may pause then, so one of three tries is enough.
	st, err := sqlite.Open(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	for try := 1; ; try++ {
		begin := time.Now()
		_, err := headgate.New(st, nil).Block(t.Context(), headgate.MustParse(replicaLimit), "near", time.Second, "")
		if err != nil {
			t.Fatal(err)
		}
		telling := 300*time.Millisecond + 10*time.Since(begin)
		f.refuseNext()
		early := f.held(t, "busy replicas", telling)
		if early == nil {
			break
		}
		t.Logf("busy replicas, try %d: %q", try, early)
		if try == 3 {
			t.Errorf("busy replicas: %q", early)
			break
		}
	}
	for _, w := range say {
		w.Close()
	}
}

// replicas starts three processes, which end when what they are told does.
func replicas(t *testing.T, store, server string) (say []io.WriteCloser, hear []*bufio.Reader) {
	t.Helper()
	for i := range 3 {
		c := dbtest.StartChild(t, fmt.Sprint(i, " ", store, " ", server))
		t.Cleanup(func() {
			c.In.Close()
			if err := c.Wait(); err != nil {
				t.Errorf("replica %d: %v", i, err)
			}
		})
		say, hear = append(say, c.In), append(hear, bufio.NewReader(c.Out))
	}
	return say, hear
}
