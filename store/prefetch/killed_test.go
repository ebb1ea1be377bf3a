package prefetch_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/store/prefetch"
)

const killedLimit = "token-bucket 500/s burst 100 prefetch 20%/400ms"

// child hammers one key, and prints the time at which each charge passed.
func child() bool {
	dsn := dbtest.Task()
	if dsn == "" {
		return false
	}
	ctx := context.Background()
	pg, err := postgres.Open(ctx, dsn, nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	l, limit := headgate.New(prefetch.New(pg, nil), nil), headgate.MustParse(killedLimit)
	out := bufio.NewWriterSize(os.Stdout, 32)
	for {
		d, err := l.Allow(ctx, limit, "k")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if d.Allowed {
			fmt.Fprintln(out, time.Now().UnixMicro(), d.Via)
			out.Flush()
		} else {
			time.Sleep(min(d.RetryAfter, time.Millisecond))
		}
	}
}

// TestKilledNodesTakeNothingWithThemButWhatTheyHeld lets four processes hammer
// one key of a PostgreSQL, and kills three of them.
func TestKilledNodesTakeNothingWithThemButWhatTheyHeld(t *testing.T) {
	dsn := dbtest.Postgres(t)
	pg, err := postgres.Open(context.Background(), dsn, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer pg.Close()
	if _, err := pg.Migrate(context.Background()); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var passed []int64
	vias := map[string]int{}
	var readers sync.WaitGroup
	var nodes []*dbtest.Child
	var began [4]bool
	until := func(what string, so func() bool) {
		t.Helper()
		enough := func() bool {
			mu.Lock()
			defer mu.Unlock()
			return so()
		}
		for end := time.Now().Add(time.Minute); !enough(); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("not within a minute: %s", what)
			}
		}
	}
	for i := range 4 {
		node := dbtest.StartChild(t, dsn)
		nodes = append(nodes, node)
		readers.Go(func() {
			for lines := bufio.NewScanner(node.Out); lines.Scan(); {
				at, via, ok := strings.Cut(lines.Text(), " ")
				n, err := strconv.ParseInt(at, 10, 64)
				if !ok || err != nil {
					return // cut off
				}
				mu.Lock()
				passed, began[i] = append(passed, n), true
				vias[via]++
				mu.Unlock()
			}
		})
	}
	until("each node is admitted", func() bool { return began == [4]bool{true, true, true, true} })
	time.Sleep(time.Second)
	var killed int64
	for i, n := range nodes {
		if i == 3 { // the fourth goes on until 300 of some 500 a second have passed, which a pause delays
			killed = time.Now().UnixMicro()
			until("300 pass in a second after the others were killed", func() bool {
				late := slices.DeleteFunc(slices.Clone(passed), func(at int64) bool { return at <= killed+500_000 })
				slices.Sort(late)
				for k := 300; k < len(late); k++ {
					if late[k]-late[k-300] < 1_000_000 {
						return true
					}
				}
				return false
			})
		}
		n.Kill()
	}
	readers.Wait()
	for _, n := range nodes {
		_ = n.Wait()
	}
	slices.Sort(passed)
	bound := headgate.MustParse(killedLimit).Bound()
	for i := range passed {
		for j := i; j < len(passed); j++ {
			d := time.Duration(passed[j]-passed[i]) * time.Microsecond
			if float64(j-i+1) > 100+500*(d.Seconds()+0.4)+1e-6 {
				t.Fatalf("%d passed in %v, the bound is %v", j-i+1, d, bound.In(d))
			}
		}
	}
	elapsed := time.Duration(passed[len(passed)-1]-passed[0]) * time.Microsecond
	t.Logf("%d passed in %v (%v); the bound is %v", len(passed), elapsed, vias, bound.In(elapsed))
	if vias["prefetch"] == 0 {
		t.Errorf("%v: nothing was taken ahead", vias)
	}
}
