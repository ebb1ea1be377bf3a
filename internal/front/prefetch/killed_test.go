package prefetch_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/front/prefetch"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/store/postgres"
)

const killedLimit = "token-bucket 500/s burst 100 prefetch 20%/400ms"

// runIfChild returns, unless this is a child process of TestKilledProcessesKeepTheBound: then it takes from one key
// until it is killed, and prints between which times each charge passed, and its Via.
func runIfChild() {
	dsn := dbtest.Task()
	if dsn == "" {
		return
	}
	ctx := context.Background()
	pg, err := postgres.Open(ctx, dsn, nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	l := headgate.New(prefetch.New(pg), &headgate.Config{Timeout: time.Minute}) // a busy machine answers late
	limit := headgate.MustParse(killedLimit)
	out := bufio.NewWriterSize(os.Stdout, 64)
	for {
		startedAt := time.Now().UnixMicro()
		d, err := l.Allow(ctx, limit, "k")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if d.Allowed {
			fmt.Fprintln(out, startedAt, time.Now().UnixMicro(), d.Via)
			out.Flush()
		}
	}
}

// admission is a charge that passed between two times.
type admission struct {
	startedAt, endedAt int64
	via                string
}

// TestKilledProcessesKeepTheBound lets four processes take from one key of a PostgreSQL, and kills three of them while
// the last one goes on. In no interval may more pass than the bound.
func TestKilledProcessesKeepTheBound(t *testing.T) {
	dsn := migrated.Postgres(t)
	var mu sync.Mutex
	var admissions []admission
	var perProcess [4]int
	prefetched := 0
	var readers sync.WaitGroup
	var processes []*dbtest.Child
	waitUntil := func(what string, condition func() bool) {
		t.Helper()
		await.Until(t, what, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return condition()
		})
	}
	for i := range perProcess {
		process := dbtest.StartChild(t, dsn)
		processes = append(processes, process)
		readers.Go(func() {
			for lines := bufio.NewScanner(process.Out); lines.Scan(); {
				var p admission
				if n, _ := fmt.Sscan(lines.Text(), &p.startedAt, &p.endedAt, &p.via); n != 3 {
					return // the process was killed in the middle of a line
				}
				mu.Lock()
				admissions = append(admissions, p)
				perProcess[i]++
				if p.via == headgate.ViaPrefetch.String() {
					prefetched++
				}
				mu.Unlock()
			}
		})
	}
	waitUntil("50 charges of each process, and 50 prefetched", func() bool { return slices.Min(perProcess[:]) >= 50 && prefetched >= 50 })
	for _, p := range processes[:3] {
		p.Kill()
	}
	mu.Lock()
	survivorCount := perProcess[3]
	mu.Unlock()
	waitUntil("600 charges more of the last process", func() bool { return perProcess[3] >= survivorCount+600 })
	processes[3].Kill()
	readers.Wait()
	for _, p := range processes {
		_ = p.Wait()
	}
	bound := headgate.MustParse(killedLimit).Bound()
	slices.SortFunc(admissions, func(a, b admission) int { return int(a.endedAt - b.endedAt) })
	for _, first := range admissions {
		count := 0 // started at or after first, and have ended by now
		maxCount := 0.0
		for _, last := range admissions {
			if last.startedAt < first.startedAt {
				continue
			}
			count++
			d := time.Duration(last.endedAt-first.startedAt) * time.Microsecond
			if float64(count) <= maxCount { // by a shorter interval
				continue
			}
			if maxCount = bound.In(d).Float64(); float64(count) > maxCount {
				t.Fatalf("got %d charges in %v, want %v at most", count, d, maxCount)
			}
		}
	}
	t.Logf("%d charges passed, %d of them prefetched", len(admissions), prefetched)
}
