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
	"slices"
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

// TestReplicasHoldBackTogether lets three processes share a store. One of them
// is answered 429 with Retry-After 2 while the others have not begun: none sends
// a request in those two seconds. A second 429 comes while they all send as much
// as they may, and 27 of them stand in line.
func TestReplicasHoldBackTogether(t *testing.T) {
	const asked = 2 * time.Second
	var mu sync.Mutex
	var got []arrived
	refuse, since := true, time.Time{} // the next is answered 429; when the last was
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		got = append(got, arrived{now, r.URL.Path})
		if refuse {
			refuse, since = false, now
			w.Header().Set("Retry-After", strconv.Itoa(int(asked.Seconds())))
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
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
	time.Sleep(asked + 2*time.Second)

	mu.Lock()
	first, before := since, slices.Clone(got)
	refuse = true
	mu.Unlock()
	time.Sleep(asked + 2*time.Second)
	for _, w := range say {
		w.Close()
	}
	mu.Lock()
	defer mu.Unlock()
	second, after := since, got[len(before):]

	check(t, "idle replicas", before, first, 0, asked)
	// What was on its way when the answer came, and until the store was told.
	check(t, "busy replicas", after, second, 300*time.Millisecond, asked)
}

// check checks that between a 429, plus what it takes to tell of it, and the end
// of what it asks for nothing came, and after it from each replica.
func check(t *testing.T, name string, got []arrived, refused time.Time, telling, asked time.Duration) {
	t.Helper()
	late, from := 0, map[string]int{}
	for _, a := range got {
		switch d := a.at.Sub(refused); {
		case d > telling && d < asked:
			t.Errorf("%s: %s sent %v after the 429", name, a.replica, d)
		case d > 0 && d <= telling:
			late++
		case d >= asked:
			from[a.replica]++
		}
	}
	t.Logf("%s: %d requests in the first %v after the 429, none until %v, then %v", name, late, telling, asked, from)
	if len(from) != 3 {
		t.Errorf("%s: after the 429 requests came from %v, want all three", name, from)
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
