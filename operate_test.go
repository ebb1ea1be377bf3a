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

// debitLimits has one limit of each law, of 10 in a minute.
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
			c := func(n int64) headgate.Charge {
				return headgate.Charge{Limit: limit, Key: "k", Cost: headgate.Units(n)}
			}
			for _, step := range []struct {
				cost, level, remaining int64
				over                   bool
			}{{4, 4, 6, false}, {6, 10, 0, false}, {1, 11, 0, true}, {30, 41, 0, true}} {
				d, err := l.Debit(ctx, c(step.cost))
				if err != nil || d.Charged != headgate.Units(step.cost) || d.Level != headgate.Units(step.level) ||
					d.Over != step.over || !d.Decision.Allowed || d.Decision.Remaining != step.remaining ||
					d.Decision.Capacity != 10 {
					t.Fatalf("debit of %d: %+v, %v; want level %d", step.cost, d, err, step.level)
				}
			}
			if d, err := l.Take(ctx, c(1)); err != nil || d.Allowed || d.RetryAfter <= 0 {
				t.Errorf("a take above the capacity: %+v, %v", d, err)
			}
			now.Add(int64(20 * time.Minute))
			if d, err := l.Take(ctx, c(10)); err != nil || !d.Allowed {
				t.Errorf("a take when all has drained: %+v, %v", d, err)
			}
		})
	}
}

func TestOnceDebit(t *testing.T) {
	for name, notation := range debitLimits {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			l, _ := newMemoryLimiter(t)
			c := headgate.Charge{Limit: headgate.MustParse(notation), Key: "k", Cost: headgate.Units(14)}
			once := l.Once("work", 0)
			for _, replayed := range []bool{false, true, true} {
				d, err := once.Debit(ctx, c)
				if err != nil || d.Charged != c.Cost || d.Level != c.Cost || !d.Over || !d.Decision.Allowed ||
					d.Decision.Replayed != replayed {
					t.Fatalf("replayed %t: %+v, %v", replayed, d, err)
				}
			}
			other := c
			other.Cost = headgate.Units(15)
			if _, err := once.Debit(ctx, other); !errors.Is(err, headgate.ErrReused) {
				t.Errorf("the id with another cost: %v", err)
			}
			other.Cost = headgate.Units(3)
			left := int64(3)
			if name == "bucket" {
				left = 4 // above its capacity it gives back the capacity at most
			}
			if by, err := once.Settle(ctx, other); err != nil || by[0] != headgate.Units(14-left) {
				t.Errorf("settled at 3: %v, %v", by, err)
			}
			if d, err := l.Once("more", 0).Debit(ctx, c); err != nil || d.Level != headgate.Units(14+left) {
				t.Errorf("under another id: %+v, %v", d, err)
			}
			huge := c
			huge.Cost = headgate.Units(9_000_000_000_000_000)
			if d, err := l.Once("huge", 0).Debit(ctx, huge); err != nil || d.Decision.Allowed || d.Charged.String() != "0" {
				t.Errorf("more than a cell counts: %+v, %v", d, err)
			}
		})
	}
}

func TestDebitOfMoreThanACellHolds(t *testing.T) {
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

func TestDebitOfAKeyThatIsBlocked(t *testing.T) {
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

func TestDebitBlocksNoKey(t *testing.T) {
	l, now := newMemoryLimiter(t)
	limit := headgate.MustParse("gcra 10/1m burst 10 block 1h")
	c := headgate.Charge{Limit: limit, Key: "k", Cost: headgate.Units(12)}
	if d, err := l.Debit(t.Context(), c); err != nil || !d.Over {
		t.Fatalf("%+v, %v", d, err)
	}
	now.Add(int64(2 * time.Minute))
	if d, err := l.Allow(t.Context(), limit, "k"); err != nil || !d.Allowed {
		t.Errorf("%+v, %v; want no block", d, err)
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
			t.Errorf("debit, %s: %v", name, err)
		}
	}
}

func TestRefundGivesBackWhatIsInUse(t *testing.T) {
	for name, notation := range debitLimits {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			l, now := newMemoryLimiter(t)
			limit := headgate.MustParse(notation)
			c := func(n int64) headgate.Charge {
				return headgate.Charge{Limit: limit, Key: "k", Cost: headgate.Units(n)}
			}
			if name == "sliding log" {
				if _, err := l.Refund(ctx, c(1)); !errors.Is(err, headgate.ErrUnsupported) {
					t.Errorf("%v, want ErrUnsupported", err)
				}
				return
			}
			if back, err := l.Refund(ctx, c(3)); err != nil || back != headgate.Units(0) {
				t.Errorf("of a fresh key: %s, %v", back, err)
			}
			if d, err := l.Take(ctx, c(8)); err != nil || !d.Allowed {
				t.Fatalf("%+v, %v", d, err)
			}
			if back, err := l.Refund(ctx, c(3)); err != nil || back != headgate.Units(3) {
				t.Errorf("of 8, 3: %s, %v", back, err)
			}
			if back, err := l.Refund(ctx, c(30)); err != nil || back != headgate.Units(5) {
				t.Errorf("of the 5 that are left, 30: %s, %v", back, err)
			}
			if d, err := l.Check(ctx, c(10)); err != nil || !d.Allowed {
				t.Errorf("all was given back: %+v, %v", d, err)
			}
			if _, err := l.Take(ctx, c(8)); err != nil {
				t.Fatal(err)
			}
			now.Add(int64(3 * time.Minute))
			if back, err := l.Refund(ctx, c(8)); err != nil || back != headgate.Units(0) {
				t.Errorf("of what has drained: %s, %v", back, err)
			}
		})
	}
}

func TestRefundsAtATimeGiveBackNoMoreThanWasCharged(t *testing.T) {
	l, _ := newMemoryLimiter(t)
	limit := headgate.MustParse("gcra 1000/1h burst 1000")
	ctx := context.Background()
	if d, err := l.Take(ctx, headgate.Charge{Limit: limit, Key: "k", Cost: headgate.Units(100)}); err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	var all sync.WaitGroup
	back := make([]headgate.Cost, 64)
	for i := range back {
		all.Go(func() {
			var err error
			back[i], err = l.Refund(ctx, headgate.Charge{Limit: limit, Key: "k", Cost: headgate.Units(7)})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	sum := 0.0
	for _, b := range back {
		sum += b.Float64()
	}
	if sum > 100 {
		t.Errorf("%v was given back of 100", sum)
	}
	if d, err := l.Check(ctx, headgate.Charge{Limit: limit, Key: "k", Cost: headgate.Units(1000)}); err != nil || !d.Allowed {
		t.Errorf("%+v, %v", d, err)
	}
}
