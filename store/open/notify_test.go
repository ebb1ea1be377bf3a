package open_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store/open"
)

// told is an observer that counts the crossings of each threshold of each key.
type told struct {
	mu     sync.Mutex
	counts map[string]int
}

func (*told) Decided(context.Context, headgate.Event) {}

func (o *told) Crossed(_ context.Context, c headgate.Crossing) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.counts[fmt.Sprintf("%s %d", c.Key, c.Percent)]++
}

// TestEachStoreTellsAThresholdOnce lets the callers of two limiters charge, extend, replay, settle and cancel, on each
// store and behind all wrappers. A threshold that the level of a key has reached is told once, and no other.
func TestEachStoreTellsAThresholdOnce(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]func() string{
		"sqlite":   func() string { return "sqlite:" + filepath.ToSlash(filepath.Join(t.TempDir(), "headgate.db")) },
		"postgres": func() string { return migrated.Postgres(t) },
		"mariadb":  func() string { return migrated.MariaDB(t) },
		"redis":    func() string { return dbtest.Redis(t) },
	} {
		t.Run(name, func(t *testing.T) { testTellingOnce(t, url()) })
	}
}

func testTellingOnce(t *testing.T, url string) {
	limit := headgate.MustParse("fixed-window 100/30d from-first notify 50%,80%,100%")
	observer := &told{counts: map[string]int{}}
	seed, keys := tier.Seed(), tier.Pick(10, 100, 1000)
	var wg sync.WaitGroup
	for i := range 2 {
		l, s, err := open.Limiter(t.Context(), url, &headgate.Config{Observer: observer, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for caller := range 4 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(seed, uint64(i*4+caller)))
				for n := range keys {
					testCharges(t, l, rng, limit, fmt.Sprint(n), fmt.Sprint(i, caller))
				}
			})
		}
	}
	wg.Wait()
	for n := range keys {
		for _, percent := range []int{50, 80, 100} { // all are reached in the end
			if got := observer.counts[fmt.Sprintf("%d %d", n, percent)]; got != 1 {
				t.Errorf("seed %d, key %d: %d%% was told %d times", seed, n, percent, got)
			}
		}
	}
	if len(observer.counts) != 3*keys {
		t.Errorf("seed %d: told %v", seed, observer.counts)
	}
}

// testCharges charges a key at random, and more than its limit lets pass in the end.
func testCharges(t *testing.T, l *headgate.Limiter, rng *rand.Rand, limit headgate.Limit, key, caller string) {
	ctx := context.Background()
	charge := headgate.Charge{Limit: limit, Key: key} // never given back, so that the window of the key does not end
	if _, err := l.Take(ctx, charge); err != nil {
		t.Error(err)
	}
	cost := func() headgate.Charge {
		charge.Cost = headgate.Units(1 + rng.Int64N(15))
		return charge
	}
	for i := range 6 {
		id := l.Once(fmt.Sprint(caller, " ", i), 0)
		c := cost()
		d, err := id.Take(ctx, c)
		if err != nil {
			t.Error(err)
		}
		if !d.Allowed {
			continue
		}
		if d, err := id.Take(ctx, c); err != nil || !d.Replayed || d.Crossed != 0 {
			t.Errorf("a replay: %+v, %v", d, err)
		}
		switch rng.IntN(4) {
		case 0:
			_, err = id.Extend(ctx, cost())
		case 1:
			_, err = id.Settle(ctx, cost())
		case 2:
			_, err = id.Cancel(ctx, c)
		}
		if err != nil {
			t.Error(err)
		}
	}
	charge.Cost = headgate.Units(20)
	if _, err := l.Debit(ctx, charge); err != nil {
		t.Error(err)
	}
}
