package headgate_test

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// cutOffStore is a store that can be cut off.
type cutOffStore struct {
	store.Store
	cut atomic.Bool
	why error // nil: ErrUnavailable
}

func (s *cutOffStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if s.cut.Load() {
		return cmp.Or(s.why, store.ErrUnavailable)
	}
	return s.Store.Apply(ctx, ops, outs)
}

func TestLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		l := headgate.New(memory.New(nil), nil)
		ask := charges("k", "1 of concurrency 2 ttl 30s")
		acquire := func(want bool) *headgate.Lease {
			t.Helper()
			lease, err := l.Acquire(ctx, ask...)
			if err != nil || lease.Decision.Allowed != want {
				t.Fatalf("%+v, %v", lease, err)
			}
			return lease
		}
		a, b := acquire(true), acquire(true)
		refused := acquire(false)
		time.Sleep(10 * time.Minute) // they are renewed
		acquire(false)
		if err := a.Release(ctx); err != nil || !errors.Is(a.Err(), headgate.ErrReleased) {
			t.Errorf("release: %v, %v", err, a.Err())
		}
		if err := a.Release(ctx); !errors.Is(err, headgate.ErrReleased) {
			t.Errorf("released twice: %v", err)
		}
		if err := refused.Release(ctx); !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("released what was refused: %v", err)
		}
		c := acquire(true)
		if _, err := l.Reset(ctx, ask[0].Limit, "k"); err != nil {
			t.Fatal(err)
		}
		for _, lease := range []*headgate.Lease{b, c} {
			<-lease.Lost()
			if err := lease.Release(ctx); !errors.Is(err, headgate.ErrLeaseLost) ||
				!errors.Is(lease.Err(), headgate.ErrLeaseLost) {
				t.Errorf("a lease whose key was reset: %v, %v", err, lease.Err())
			}
		}
	})
}

func TestLeaseOfAStoreThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		s := &cutOffStore{Store: memory.New(nil)}
		l := headgate.New(s, nil)
		ask := charges("k", "1 of concurrency 1 ttl 30s")
		lease, err := l.Acquire(ctx, ask...)
		if err != nil {
			t.Fatal(err)
		}
		s.cut.Store(true)
		time.Sleep(25 * time.Second)
		s.cut.Store(false)
		time.Sleep(time.Hour)
		if lease.Err() != nil {
			t.Errorf("the store was away for less than the time to live: %v", lease.Err())
		}
		s.cut.Store(true)
		begin := time.Now()
		<-lease.Lost()
		if d := time.Since(begin); d < 20*time.Second || d > 30*time.Second {
			t.Errorf("it knows after %v, the lease ended 20 to 30 s after it was cut off", d)
		}
		s.cut.Store(false)
		if next, err := l.Await(ctx, ask...); err != nil || time.Since(begin) > 31*time.Second {
			t.Errorf("the next one has it after %v: %+v, %v", time.Since(begin), next, err)
		} else if err := next.Release(ctx); err != nil {
			t.Error(err)
		}
	})
}

// TestLeaseWithRateLimits acquires a concurrency limit and rate limits in one request, all or none.
func TestLeaseWithRateLimits(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l, _ := newExampleLimiter()
	ask := charges("k", "1 of fixed-window 2/1h", "1 of concurrency 1 ttl 30s")
	first, err := l.Acquire(ctx, ask...)
	if err != nil || !first.Decision.Allowed {
		t.Fatalf("%+v, %v", first, err)
	}
	if second, err := l.Acquire(ctx, ask...); err != nil || second.Decision.Allowed ||
		second.Decision.LimitName != "concurrency 1 ttl 30s" {
		t.Errorf("%+v, %v", second, err)
	}
	if err := first.Release(ctx); err != nil {
		t.Error(err)
	}
	if got := inUse(t, l, "fixed-window 2/1h", "k"); got != "1" {
		t.Errorf("%s of the rate limit are used: a refusal or a release changed it", got)
	}
	if lease, err := l.Acquire(ctx, charges("k", "2 of concurrency 1 ttl 30s")...); err != nil ||
		lease.Decision.RetryAfter != headgate.Never {
		t.Errorf("a cost above the amount: %+v, %v", lease, err)
	}
	for name, bad := range map[string][]headgate.Charge{
		"only a rate limit": ask[:1], "no charge": nil,
		"no limit": {{Key: "k"}},
	} {
		if _, err := l.Acquire(ctx, bad...); !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDetachedLeases renews and releases detached leases in another process.
func TestDetachedLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		m := memory.New(nil)
		here, there := headgate.New(m, nil), headgate.New(m, nil)
		ask := charges("k", "2 of concurrency 2 ttl 30s", "1 of fixed-window 9/1d")
		lease, err := here.Acquire(ctx, ask...)
		if err != nil {
			t.Fatal(err)
		}
		held := lease.Detach()
		if len(held) != 1 || lease.Detach() != nil {
			t.Fatalf("detached %+v", held)
		}
		if err := lease.Release(ctx); !errors.Is(err, headgate.ErrReleased) {
			t.Errorf("released after it was detached: %v", err)
		}
		for range 5 {
			time.Sleep(20 * time.Second)
			if err := there.Renew(ctx, held...); err != nil {
				t.Errorf("renew: %v", err)
			}
		}
		if next, err := here.Acquire(ctx, ask...); err != nil || next.Decision.Allowed {
			t.Errorf("another holds it: %+v, %v", next, err)
		}
		if err := there.Release(ctx, held...); err != nil {
			t.Error(err)
		}
		for _, do := range []func(context.Context, ...headgate.LeaseToken) error{there.Renew, there.Release} {
			if err := do(ctx, held...); !errors.Is(err, headgate.ErrLeaseLost) {
				t.Errorf("after its release: %v", err)
			}
			for _, bad := range [][]headgate.LeaseToken{
				nil,
				{{}},
				{{Limit: ask[1].Limit, Key: "k", Number: 1}},
				{{Limit: ask[0].Limit, Key: "k"}},
				{{Limit: ask[0].Limit, Key: "\x00", Number: 1}},
			} {
				if err := do(ctx, bad...); !errors.Is(err, headgate.ErrInvalid) {
					t.Errorf("%+v: %v", bad, err)
				}
			}
		}
		if next, err := here.Acquire(ctx, ask...); err != nil || !next.Decision.Allowed || next.Release(ctx) != nil {
			t.Errorf("all of it is free: %+v, %v", next, err)
		}
	})
}

// TestReleaseCanBeTriedAgain releases a lease again after the store was away.
func TestReleaseCanBeTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		s := &cutOffStore{Store: memory.New(nil)}
		l := headgate.New(s, nil)
		ask := charges("k", "1 of concurrency 1 ttl 1h")
		lease, err := l.Acquire(ctx, ask...)
		if err != nil {
			t.Fatal(err)
		}
		s.cut.Store(true)
		if err := lease.Release(ctx); err == nil || errors.Is(err, headgate.ErrLeaseLost) {
			t.Errorf("the store is away: %v", err)
		}
		if held := lease.Detach(); held != nil {
			t.Errorf("detached while it is released: %v", held)
		}
		s.cut.Store(false)
		if err := lease.Release(ctx); err != nil {
			t.Errorf("tried again: %v", err)
		}
		if err := lease.Release(ctx); !errors.Is(err, headgate.ErrReleased) {
			t.Errorf("released twice: %v", err)
		}
		next, err := l.Acquire(ctx, ask...)
		if err != nil || !next.Decision.Allowed {
			t.Errorf("%+v, %v", next, err)
		}
		_ = next.Release(ctx)
	})
}

// TestReleaseReportsALeaseLostUnnoticed releases a lease that was lost while the store was away.
func TestReleaseReportsALeaseLostUnnoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		s := &cutOffStore{Store: memory.New(nil)}
		l := headgate.New(s, nil)
		ask := charges("k", "1 of concurrency 1 ttl 1h")
		lease, err := l.Acquire(context.Background(), ask...)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Reset(context.Background(), ask[0].Limit, "k"); err != nil {
			t.Fatal(err)
		}
		if err := lease.Release(ctx); !errors.Is(err, context.Canceled) || lease.Err() != nil {
			t.Errorf("under an ended context: %v, %v", err, lease.Err())
		}
		s.cut.Store(true)
		if err := lease.Release(context.Background()); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("the store is away: %v", err)
		}
		s.cut.Store(false)
		if err := lease.Release(context.Background()); !errors.Is(err, headgate.ErrLeaseLost) {
			t.Errorf("%v, want the lease lost", err)
		}
	})
}

// TestALeaseSurvivesARenewalWithoutAnswer loses the answer of the first renewal.
func TestALeaseSurvivesARenewalWithoutAnswer(t *testing.T) {
	for _, ttl := range []string{"3s", "7s", "30s"} {
		synctest.Test(t, func(t *testing.T) {
			l := headgate.New(&lostRenewalStore{Store: memory.New(nil)}, nil)
			lease, err := l.Acquire(t.Context(), charges("k", "1 of concurrency 1 ttl "+ttl)...)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Minute)
			if err := lease.Release(t.Context()); err != nil {
				t.Errorf("ttl %s: %v", ttl, err)
			}
			time.Sleep(time.Second) // a renewal began at the same time
		})
	}
}

// lostRenewalStore is a store that does not answer the first renewal.
type lostRenewalStore struct {
	store.Store
	once bool
}

func (s *lostRenewalStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if ops[0].Verb == law.Renew && !s.once {
		s.once = true
		<-ctx.Done()
		return ctx.Err()
	}
	return s.Store.Apply(ctx, ops, outs)
}
