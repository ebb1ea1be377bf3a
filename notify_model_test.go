package headgate_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store/memory"
)

// TestEachThresholdIsToldOnceAWindow compares what is told with a model, in many windows of random charges, debits,
// settlements, cancellations, extensions and replays: a threshold that the level of a window has reached is told once.
func TestEachThresholdIsToldOnceAWindow(t *testing.T) {
	t.Parallel()
	const capacity = 100
	thresholds := []int{50, 80, 100}
	limit := headgate.MustParse("fixed-window 100/1m notify 50%,80%,100%")
	c := newClock("2026-03-01T12:00:00Z")
	s := memory.New(&memory.Config{Clock: c.read})
	l, told := newNotifying(s)
	seed := tier.Seed()
	rng := rand.New(rand.NewPCG(seed, 0))
	ctx := t.Context()
	windows, tellings := tier.Pick(20_000, 100_000, 1_000_000), 0
	type held struct {
		id   string
		cost int
	}
	for w := range windows {
		level, highest := 0, 0
		var open []held
		for i := range 2 + rng.IntN(8) {
			c.advance(time.Second)
			cost := 1 + rng.IntN(60)
			charge := headgate.Charge{Limit: limit, Key: "k", Cost: headgate.Units(int64(cost))}
			id, k := fmt.Sprint(w, " ", i), 0
			if len(open) > 0 {
				k = rng.IntN(len(open))
				id = open[k].id
			}
			once := l.Once(id, time.Minute)
			var err error
			switch verb := rng.IntN(8); {
			case verb == 0:
				_, err = l.Debit(ctx, charge)
				level += cost
			case verb == 1:
				_, err = l.Take(ctx, charge)
				if level+cost <= capacity {
					level += cost
				}
			case len(open) == 0 || verb == 2:
				id = fmt.Sprint(w, " ", i)
				_, err = l.Once(id, time.Minute).Take(ctx, charge)
				if level+cost <= capacity {
					level += cost
					open = append(open, held{id, cost})
				}
			case verb == 3: // a replay
				charge.Cost = headgate.Units(int64(open[k].cost))
				_, err = once.Take(ctx, charge)
				if errors.Is(err, headgate.ErrReused) { // it was extended
					err = nil
				}
			case verb == 4 || verb == 5:
				_, err = once.Extend(ctx, charge)
				if more := cost - open[k].cost; more > 0 && level+more <= capacity {
					level += more
					open[k].cost = cost
				}
			case verb == 6:
				_, err = once.Settle(ctx, charge)
				level += cost - open[k].cost
				open = slices.Delete(open, k, k+1)
			default:
				_, err = once.Cancel(ctx, charge)
				level -= open[k].cost
				open = slices.Delete(open, k, k+1)
			}
			if err != nil {
				t.Fatalf("seed %d, window %d: %v", seed, w, err)
			}
			highest = max(highest, level)
		}
		var want []string
		for _, percent := range thresholds {
			if highest >= percent {
				want = append(want, strconv.Itoa(percent))
			}
		}
		got := strings.Fields(told.take())
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d, window %d: the level was up to %d, and told was %v; want %v", seed, w, highest, got, want)
		}
		tellings += len(got)
		if w%1000 == 0 {
			if _, err := s.Sweep(ctx, 1_000_000); err != nil {
				t.Fatal(err)
			}
		}
		c.now -= c.now % time.Minute.Microseconds()
		c.advance(time.Minute)
	}
	if tellings < windows {
		t.Errorf("%d windows told only %d thresholds", windows, tellings)
	}
}
