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

// child hammers one key, and prints between which times each charge passed.
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
	l := headgate.New(prefetch.New(pg), &headgate.Config{Timeout: time.Minute}) // a busy machine answers late
	limit := headgate.MustParse(killedLimit)
	out := bufio.NewWriterSize(os.Stdout, 64)
	for {
		asked := time.Now().UnixMicro()
		d, err := l.Allow(ctx, limit, "k")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if d.Allowed {
			fmt.Fprintln(out, asked, time.Now().UnixMicro(), d.Via)
			out.Flush()
		}
	}
}

// passage is a charge that passed between two times.
type passage struct {
	asked, answered int64
	via             string
}

// TestKilledNodesTakeNothingWithThemButWhatTheyHeld lets four processes hammer
// one key of a PostgreSQL, and kills three of them.
func TestKilledNodesTakeNothingWithThemButWhatTheyHeld(t *testing.T) {
	dsn := migrated.Postgres(t)
	var mu sync.Mutex
	var passed []passage
	var each [4]int
	ahead := 0
	var readers sync.WaitGroup
	var processes []*dbtest.Child
	until := func(what string, so func() bool) {
		t.Helper()
		await.Until(t, what, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return so()
		})
	}
	for i := range each {
		process := dbtest.StartChild(t, dsn)
		processes = append(processes, process)
		readers.Go(func() {
			for lines := bufio.NewScanner(process.Out); lines.Scan(); {
				var p passage
				if n, _ := fmt.Sscan(lines.Text(), &p.asked, &p.answered, &p.via); n != 3 {
					return // cut off
				}
				mu.Lock()
				passed = append(passed, p)
				each[i]++
				if p.via == headgate.ViaPrefetch.String() {
					ahead++
				}
				mu.Unlock()
			}
		})
	}
	until("each to be admitted, and something to be taken ahead", func() bool { return slices.Min(each[:]) >= 50 && ahead >= 50 })
	for _, p := range processes[:3] {
		p.Kill()
	}
	mu.Lock()
	before := each[3]
	mu.Unlock()
	until("the last one to be admitted when the others are gone", func() bool { return each[3] >= before+600 })
	processes[3].Kill()
	readers.Wait()
	for _, p := range processes {
		_ = p.Wait()
	}
	bound := headgate.MustParse(killedLimit).Bound()
	slices.SortFunc(passed, func(a, b passage) int { return int(a.answered - b.answered) })
	for _, first := range passed {
		sure := 0 // were asked and answered since first was asked
		for _, last := range passed {
			if last.asked < first.asked {
				continue
			}
			sure++
			d := time.Duration(last.answered-first.asked) * time.Microsecond
			if float64(sure) > 100+500*(d.Seconds()+0.4)+1e-6 {
				t.Fatalf("%d passed in %v, the bound is %v", sure, d, bound.In(d))
			}
		}
	}
	t.Logf("%d passed, %d of them taken ahead", len(passed), ahead)
}
