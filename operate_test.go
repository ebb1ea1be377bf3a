package headgate_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
)

// debitLimits has limits of 10 per minute of each law, by their names in tests.
var debitLimits = map[string]string{
	"bucket":         "gcra 10/1m burst 10",
	"fixed window":   "fixed-window 10/1m",
	"sliding window": "sliding-window 10/1m",
	"sliding log":    "sliding-log 10/1m",
}

// newMemoryLimiter returns a limiter over a memory store, and the store's clock in nanoseconds.
func newMemoryLimiter(t *testing.T) (*headgate.Limiter, *atomic.Int64) {
	now := new(atomic.Int64)
	now.Store(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano())
	s := memory.New(&memory.Config{Clock: func() int64 { return now.Load() / 1000 }})
	t.Cleanup(func() { s.Close() })
	return headgate.New(s, nil), now
}

func TestDebitChargesWhateverTheLevel(t *testing.T) {
	for name, notation := range debitLimits {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			l, now := newMemoryLimiter(t)
			limit := headgate.MustParse(notation)
			chargeOf := func(n int64) headgate.Charge {
				return headgate.Charge{Limit: limit, Key: "k", Cost: headgate.Units(n)}
			}
			for _, step := range []struct {
				cost, level, remaining int64
				over                   bool
			}{{4, 4, 6, false}, {6, 10, 0, false}, {1, 11, 0, true}, {30, 41, 0, true}} {
				d, err := l.Debit(ctx, chargeOf(step.cost))
				if err != nil || d.Charged != headgate.Units(step.cost) || d.Level != headgate.Units(step.level) ||
					d.Over != step.over || !d.Decision.Allowed || d.Decision.Remaining != step.remaining ||
					d.Decision.Capacity != 10 {
					t.Fatalf("debit of %d: %+v, %v; want level %d", step.cost, d, err, step.level)
				}
			}
			if d, err := l.Take(ctx, chargeOf(1)); err != nil || d.Allowed || d.RetryAfter <= 0 {
				t.Errorf("a take above the capacity: %+v, %v; want a refusal", d, err)
			}
			now.Add(int64(20 * time.Minute))
			if d, err := l.Take(ctx, chargeOf(10)); err != nil || !d.Allowed {
				t.Errorf("a take when all has drained: %+v, %v; want an admission", d, err)
			}
		})
	}
}

func TestOnceDebit(t *testing.T) {
	for name, notation := range debitLimits {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			l, _ := newMemoryLimiter(t)
			charge := headgate.Charge{Limit: headgate.MustParse(notation), Key: "k", Cost: headgate.Units(14)}
			once := l.Once("work", 0)
			for _, replayed := range []bool{false, true, true} {
				d, err := once.Debit(ctx, charge)
				if err != nil || d.Charged != charge.Cost || d.Level != charge.Cost || !d.Over || !d.Decision.Allowed ||
					d.Decision.Replayed != replayed {
					t.Fatalf("got %+v, %v; want a level of 14, replayed %t", d, err, replayed)
				}
			}
			other := charge
			other.Cost = headgate.Units(15)
			if _, err := once.Debit(ctx, other); !errors.Is(err, headgate.ErrReused) {
				t.Errorf("the id with another cost: %v, want ErrReused", err)
			}
			other.Cost = headgate.Units(3)
			level := int64(3)
			if name == "bucket" {
				level = 4 // 14 less the capacity of 10, which is the most that a bucket gives back
			}
			if returned, err := once.Settle(ctx, other); err != nil || returned[0] != headgate.Units(14-level) {
				t.Errorf("settled at 3: returned %v, %v; want %d", returned, err, 14-level)
			}
			if d, err := l.Once("more", 0).Debit(ctx, charge); err != nil || d.Level != headgate.Units(14+level) {
				t.Errorf("under another id: %+v, %v; want a level of %d", d, err, 14+level)
			}
			huge := charge
			huge.Cost = headgate.Units(9_000_000_000_000_000)
			if d, err := l.Once("huge", 0).Debit(ctx, huge); err != nil || d.Decision.Allowed || d.Charged.String() != "0" {
				t.Errorf("more than a cell counts: %+v, %v; want that nothing was charged", d, err)
			}
		})
	}
}

func TestDebitFarAboveTheCapacity(t *testing.T) {
	for name, notation := range debitLimits {
		t.Run(name, func(t *testing.T) {
			l, _ := newMemoryLimiter(t)
			c := headgate.Charge{
				Limit: headgate.MustParse(notation), Key: "k", Cost: headgate.Units(4_000_000_000),
			}
			for range 3 {
				d, err := l.Debit(t.Context(), c)
				if err != nil || !d.Over {
					t.Fatalf("%+v, %v; want a level above the capacity", d, err)
				}
			}
		})
	}
}

func TestDebitOfABlockedKeyChargesNothing(t *testing.T) {
	l, _ := newMemoryLimiter(t)
	limit := headgate.MustParse("gcra 10/1m burst 10")
	if _, err := l.Block(t.Context(), limit, "k", time.Hour, "because"); err != nil {
		t.Fatal(err)
	}
	d, err := l.Debit(t.Context(), headgate.Charge{Limit: limit, Key: "k"})
	if err != nil || d.Decision.Allowed || !d.Charged.IsZero() && d.Charged != headgate.Units(0) {
		t.Errorf("%+v, %v; want that nothing was charged", d, err)
	}
}

func TestDebitAboveTheCapacityBlocksNoKey(t *testing.T) {
	l, now := newMemoryLimiter(t)
	limit := headgate.MustParse("gcra 10/1m burst 10 block 1h")
	c := headgate.Charge{Limit: limit, Key: "k", Cost: headgate.Units(12)}
	if d, err := l.Debit(t.Context(), c); err != nil || !d.Over {
		t.Fatalf("got %+v, %v; want a level above the capacity", d, err)
	}
	now.Add(int64(2 * time.Minute))
	if d, err := l.Allow(t.Context(), limit, "k"); err != nil || !d.Allowed {
		t.Errorf("got %+v, %v; want an admission, as no block was set", d, err)
	}
}

func TestDebitErrors(t *testing.T) {
	l, _ := newMemoryLimiter(t)
	gcra := headgate.MustParse("gcra 10/1m burst 10")
	for name, c := range map[string]headgate.Charge{
		"no limit":    {Key: "k"},
		"concurrency": {Limit: headgate.MustParse("concurrency 10 ttl 1m"), Key: "k"},
		"headroom":    {Limit: gcra, Key: "k", Keep: headgate.Percent(10)},
		"a NUL byte":  {Limit: gcra, Key: "a\x00b"},
		"nothing":     {Limit: gcra, Key: "k", Cost: headgate.Units(0)},
	} {
		if _, err := l.Debit(t.Context(), c); !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("debit, %s: %v, want ErrInvalid", name, err)
		}
	}
}

func TestRefundGivesBackWhatIsInUse(t *testing.T) {
	for name, notation := range debitLimits {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			l, now := newMemoryLimiter(t)
			limit := headgate.MustParse(notation)
			chargeOf := func(n int64) headgate.Charge {
				return headgate.Charge{Limit: limit, Key: "k", Cost: headgate.Units(n)}
			}
			if name == "sliding log" {
				if _, err := l.Refund(ctx, chargeOf(1)); !errors.Is(err, headgate.ErrUnsupported) {
					t.Errorf("got %v, want ErrUnsupported", err)
				}
				return
			}
			if returned, err := l.Refund(ctx, chargeOf(3)); err != nil || returned != headgate.Units(0) {
				t.Errorf("refund of an unused key: returned %s, %v; want 0", returned, err)
			}
			if d, err := l.Take(ctx, chargeOf(8)); err != nil || !d.Allowed {
				t.Fatalf("got %+v, %v; want an admission", d, err)
			}
			if returned, err := l.Refund(ctx, chargeOf(3)); err != nil || returned != headgate.Units(3) {
				t.Errorf("refund of 3 of 8: returned %s, %v; want 3", returned, err)
			}
			if returned, err := l.Refund(ctx, chargeOf(30)); err != nil || returned != headgate.Units(5) {
				t.Errorf("refund of 30 with 5 in use: returned %s, %v; want 5", returned, err)
			}
			if d, err := l.Check(ctx, chargeOf(10)); err != nil || !d.Allowed {
				t.Errorf("check after all was returned: %+v, %v; want an admission", d, err)
			}
			if _, err := l.Take(ctx, chargeOf(8)); err != nil {
				t.Fatal(err)
			}
			now.Add(int64(3 * time.Minute))
			if returned, err := l.Refund(ctx, chargeOf(8)); err != nil || returned != headgate.Units(0) {
				t.Errorf("refund of a drained charge: returned %s, %v; want 0", returned, err)
			}
		})
	}
}

func TestConcurrentRefundsReturnNoMoreThanWasCharged(t *testing.T) {
	l, _ := newMemoryLimiter(t)
	limit := headgate.MustParse("gcra 1000/1h burst 1000")
	ctx := context.Background()
	if d, err := l.Take(ctx, headgate.Charge{Limit: limit, Key: "k", Cost: headgate.Units(100)}); err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	var wg sync.WaitGroup
	returned := make([]headgate.Cost, 64)
	for i := range returned {
		wg.Go(func() {
			var err error
			returned[i], err = l.Refund(ctx, headgate.Charge{Limit: limit, Key: "k", Cost: headgate.Units(7)})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	sum := 0.0
	for _, cost := range returned {
		sum += cost.Float64()
	}
	if sum > 100 {
		t.Errorf("%v was returned, want at most the 100 that were charged", sum)
	}
	if d, err := l.Check(ctx, headgate.Charge{Limit: limit, Key: "k", Cost: headgate.Units(1000)}); err != nil || !d.Allowed {
		t.Errorf("check of the whole capacity after all refunds: %+v, %v; want an admission", d, err)
	}
}
