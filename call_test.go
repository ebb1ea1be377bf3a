package headgate_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// plainStore hides the methods of a store other than those of store.Store.
type plainStore struct{ store.Store }

// TestTakeOneDecidesAsABatchDoes compares a store that has TakeOne with the same store without it.
func TestTakeOneDecidesAsABatchDoes(t *testing.T) {
	t.Parallel()
	seed := tier.Pick(1, 1, rand.Uint64())
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, notation := range []string{
		"token-bucket 10/s burst 5", "interval 3/2s burst 4", "fixed-window 5/10s", "fixed-window 5/10s from-first",
		"token-bucket 10/s burst 5 block 3s", "sliding-log 5/2s", "sliding-window 5/2s",
		"fixed-window 5/minute Europe/Berlin",
	} {
		c := newClock("2026-03-01T12:00:00Z")
		storeConfig := &memory.Config{Clock: c.read}
		config := &headgate.Config{Clock: c.read}
		limit := headgate.MustParse(notation)
		takeOneLimiter := headgate.New(memory.New(storeConfig), config)
		batchLimiter := headgate.New(plainStore{memory.New(storeConfig)}, config)
		for range 300 {
			c.advance(time.Duration(rng.IntN(400)) * time.Millisecond)
			charge := headgate.Charge{
				Limit: limit, Key: "k",
				Cost: headgate.MustCost([]string{"1", "2", "0.5", "3.25", "6"}[rng.IntN(5)]),
			}
			want, err1 := batchLimiter.Take(context.Background(), charge)
			got, err2 := takeOneLimiter.Take(context.Background(), charge)
			if !reflect.DeepEqual(got, want) || err1 != nil || err2 != nil {
				t.Fatalf("seed %d: %s: Take %+v (%v), in a batch %+v (%v)", seed, notation, got, err2, want, err1)
			}
		}
	}
}

func TestTakeOneReturnsTheErrorsOfABatch(t *testing.T) {
	t.Parallel()
	l := headgate.New(memory.New(nil), nil)
	limit := headgate.MustParse("token-bucket 10/s burst 5")
	for name, call := range map[string]func() error{
		"a NUL in the key": func() error { _, err := l.Allow(context.Background(), limit, "a\x00b"); return err },
		"a cost of nothing": func() error {
			_, err := l.Take(context.Background(), headgate.Charge{Limit: limit, Key: "k", Cost: headgate.Units(0)})
			return err
		},
		"no limit": func() error { _, err := l.Allow(context.Background(), headgate.Limit{}, "k"); return err },
		"a concurrency limit": func() error {
			_, err := l.Allow(context.Background(), headgate.MustParse("concurrency 5 ttl 1m"), "k")
			return err
		},
	} {
		if err := call(); !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	endedCtx, cancel := context.WithCancel(context.Background())
	cancel()
	for range 3 {
		if d, err := l.Allow(endedCtx, limit, "k"); !errors.Is(err, context.Canceled) || d.Allowed {
			t.Errorf("the context has ended: %+v, %v; want context.Canceled", d, err)
		}
	}
}

func TestTakeOneAllocatesNothing(t *testing.T) {
	l := headgate.New(memory.New(nil), nil)
	limit := headgate.MustParse("token-bucket 10/h burst 500")
	cost := headgate.MustCost("1.5")
	if n := testing.AllocsPerRun(1000, func() {
		_, _ = l.Allow(context.Background(), limit, "k")
		_, _ = l.Take(context.Background(), headgate.Charge{Limit: limit, Key: "k", Cost: cost})
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
