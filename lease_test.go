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

// cutOffStore is a store that fails every batch, without applying it, while cut is set.
type cutOffStore struct {
	store.Store
	cut     atomic.Bool
	failure error // the error of a batch while cut is set; nil: ErrUnavailable
}

func (s *cutOffStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if s.cut.Load() {
		return cmp.Or(s.failure, store.ErrUnavailable)
	}
	return s.Store.Apply(ctx, ops, outs)
}

func TestLeaseRenewsItselfUntilReleaseOrReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		l := headgate.New(memory.New(nil), nil)
		request := charges("k", "1 of concurrency 2 ttl 30s")
		acquire := func(allowed bool) *headgate.Lease {
			t.Helper()
			lease, err := l.Acquire(ctx, request...)
			if err != nil || lease.Decision.Allowed != allowed {
				t.Fatalf("got %+v, %v; want allowed %v", lease, err, allowed)
			}
			return lease
		}
		first, second := acquire(true), acquire(true)
		refused := acquire(false)
		time.Sleep(10 * time.Minute) // both leases renew themselves meanwhile
		acquire(false)
		if err := first.Release(ctx); err != nil || !errors.Is(first.Err(), headgate.ErrReleased) {
			t.Errorf("release: %v, then Err: %v, want nil and ErrReleased", err, first.Err())
		}
		if err := first.Release(ctx); !errors.Is(err, headgate.ErrReleased) {
			t.Errorf("second release: %v, want ErrReleased", err)
		}
		if err := refused.Release(ctx); !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("release of a refused lease: %v, want ErrInvalid", err)
		}
		third := acquire(true)
		if _, err := l.Reset(ctx, request[0].Limit, "k"); err != nil {
			t.Fatal(err)
		}
		for _, lease := range []*headgate.Lease{second, third} {
			<-lease.Lost()
			if err := lease.Release(ctx); !errors.Is(err, headgate.ErrLeaseLost) ||
				!errors.Is(lease.Err(), headgate.ErrLeaseLost) {
				t.Errorf("a lease whose key was reset: %v, %v; want ErrLeaseLost", err, lease.Err())
			}
		}
	})
}

func TestLeaseOfAStoreThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		s := &cutOffStore{Store: memory.New(nil)}
		l := headgate.New(s, nil)
		request := charges("k", "1 of concurrency 1 ttl 30s")
		lease, err := l.Acquire(ctx, request...)
		if err != nil {
			t.Fatal(err)
		}
		s.cut.Store(true)
		time.Sleep(25 * time.Second)
		s.cut.Store(false)
		time.Sleep(time.Hour)
		if lease.Err() != nil {
			t.Errorf("the store was away for less than the time to live: %v, want a lease that is held", lease.Err())
		}
		s.cut.Store(true)
		begin := time.Now()
		<-lease.Lost()
		if d := time.Since(begin); d < 20*time.Second || d > 30*time.Second {
			t.Errorf("Lost is closed %v after the store was cut off, want 20 to 30 s", d)
		}
		s.cut.Store(false)
		if next, err := l.Await(ctx, request...); err != nil || time.Since(begin) > 31*time.Second {
			t.Errorf("the next caller holds a lease after %v: %+v, %v; want within 31 s", time.Since(begin), next, err)
		} else if err := next.Release(ctx); err != nil {
			t.Error(err)
		}
	})
}

// TestLeaseWithRateLimits checks that Acquire charges both limits or none, and that Release frees only the lease.
func TestLeaseWithRateLimits(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l, _ := newExampleLimiter()
	request := charges("k", "1 of fixed-window 2/1h", "1 of concurrency 1 ttl 30s")
	first, err := l.Acquire(ctx, request...)
	if err != nil || !first.Decision.Allowed {
		t.Fatalf("got %+v, %v; want a lease", first, err)
	}
	if second, err := l.Acquire(ctx, request...); err != nil || second.Decision.Allowed ||
		second.Decision.LimitName != "concurrency 1 ttl 30s" {
		t.Errorf("got %+v, %v; want a refusal by the concurrency limit", second, err)
	}
	if err := first.Release(ctx); err != nil {
		t.Error(err)
	}
	if got := inUse(t, l, "fixed-window 2/1h", "k"); got != "1" {
		t.Errorf("%s of the rate limit are used, want 1: a refusal or a release changed it", got)
	}
	if lease, err := l.Acquire(ctx, charges("k", "2 of concurrency 1 ttl 30s")...); err != nil ||
		lease.Decision.RetryAfter != headgate.Never {
		t.Errorf("a cost above the amount: %+v, %v; want RetryAfter Never", lease, err)
	}
	for name, invalid := range map[string][]headgate.Charge{
		"only a rate limit": request[:1], "no charge": nil, "no limit": {{Key: "k"}},
	} {
		if _, err := l.Acquire(ctx, invalid...); !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
}

// TestAnotherLimiterRenewsAndReleasesALease checks that a second Limiter can do so after the first has detached it.
func TestAnotherLimiterRenewsAndReleasesALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		m := memory.New(nil)
		holder, other := headgate.New(m, nil), headgate.New(m, nil)
		request := charges("k", "2 of concurrency 2 ttl 30s", "1 of fixed-window 9/1d")
		lease, err := holder.Acquire(ctx, request...)
		if err != nil {
			t.Fatal(err)
		}
		tokens := lease.Detach()
		if len(tokens) != 1 || lease.Detach() != nil {
			t.Fatalf("detached %+v, want one token, and none when detached again", tokens)
		}
		if err := lease.Release(ctx); !errors.Is(err, headgate.ErrReleased) {
			t.Errorf("release after Detach: %v, want ErrReleased", err)
		}
		for range 5 {
			time.Sleep(20 * time.Second)
			if err := other.Renew(ctx, tokens...); err != nil {
				t.Errorf("renew: %v", err)
			}
		}
		if next, err := holder.Acquire(ctx, request...); err != nil || next.Decision.Allowed {
			t.Errorf("a second lease beside the detached one: %+v, %v; want a refusal", next, err)
		}
		if err := other.Release(ctx, tokens...); err != nil {
			t.Error(err)
		}
		for _, call := range []func(context.Context, ...headgate.LeaseToken) error{other.Renew, other.Release} {
			if err := call(ctx, tokens...); !errors.Is(err, headgate.ErrLeaseLost) {
				t.Errorf("renew or release after the release: %v, want ErrLeaseLost", err)
			}
			for _, invalid := range [][]headgate.LeaseToken{
				nil,
				{{}},
				{{Limit: request[1].Limit, Key: "k", Number: 1}},
				{{Limit: request[0].Limit, Key: "k"}},
				{{Limit: request[0].Limit, Key: "\x00", Number: 1}},
			} {
				if err := call(ctx, invalid...); !errors.Is(err, headgate.ErrInvalid) {
					t.Errorf("%+v: %v, want ErrInvalid", invalid, err)
				}
			}
		}
		next, err := holder.Acquire(ctx, request...)
		if err != nil || !next.Decision.Allowed || next.Release(ctx) != nil {
			t.Errorf("after the release: %+v, %v; want a lease that can be released", next, err)
		}
	})
}

// TestReleaseCanBeRetried checks that a Release that failed while the store was away succeeds when it is back.
func TestReleaseCanBeRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		s := &cutOffStore{Store: memory.New(nil)}
		l := headgate.New(s, nil)
		request := charges("k", "1 of concurrency 1 ttl 1h")
		lease, err := l.Acquire(ctx, request...)
		if err != nil {
			t.Fatal(err)
		}
		s.cut.Store(true)
		if err := lease.Release(ctx); err == nil || errors.Is(err, headgate.ErrLeaseLost) {
			t.Errorf("release while the store is away: %v, want its error and not ErrLeaseLost", err)
		}
		if tokens := lease.Detach(); tokens != nil {
			t.Errorf("detached after a failed release: %v, want nil", tokens)
		}
		s.cut.Store(false)
		if err := lease.Release(ctx); err != nil {
			t.Errorf("second release: %v", err)
		}
		if err := lease.Release(ctx); !errors.Is(err, headgate.ErrReleased) {
			t.Errorf("third release: %v, want ErrReleased", err)
		}
		next, err := l.Acquire(ctx, request...)
		if err != nil || !next.Decision.Allowed {
			t.Errorf("after the release: %+v, %v; want a lease", next, err)
		}
		_ = next.Release(ctx)
	})
}

// TestReleaseAfterResetReturnsErrLeaseLost resets the key before the lease is renewed. Release must return ErrLeaseLost
// even after two releases that did not reach the store: one under an ended context, one while the store was away.
func TestReleaseAfterResetReturnsErrLeaseLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		endedCtx, cancel := context.WithCancel(context.Background())
		cancel()
		s := &cutOffStore{Store: memory.New(nil)}
		l := headgate.New(s, nil)
		request := charges("k", "1 of concurrency 1 ttl 1h")
		lease, err := l.Acquire(context.Background(), request...)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Reset(context.Background(), request[0].Limit, "k"); err != nil {
			t.Fatal(err)
		}
		if err := lease.Release(endedCtx); !errors.Is(err, context.Canceled) || lease.Err() != nil {
			t.Errorf("under an ended context: %v, then Err: %v; want context.Canceled and nil", err, lease.Err())
		}
		s.cut.Store(true)
		if err := lease.Release(context.Background()); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("while the store is away: %v, want ErrUnavailable", err)
		}
		s.cut.Store(false)
		if err := lease.Release(context.Background()); !errors.Is(err, headgate.ErrLeaseLost) {
			t.Errorf("got %v, want ErrLeaseLost", err)
		}
	})
}

// TestLeaseSurvivesALostRenewal checks that a lease is still held after its first renewal was lost and timed out.
func TestLeaseSurvivesALostRenewal(t *testing.T) {
	for _, ttl := range []string{"3s", "7s", "30s"} {
		synctest.Test(t, func(t *testing.T) {
			l := headgate.New(&renewalLosingStore{Store: memory.New(nil)}, nil)
			lease, err := l.Acquire(t.Context(), charges("k", "1 of concurrency 1 ttl "+ttl)...)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Minute)
			if err := lease.Release(t.Context()); err != nil {
				t.Errorf("ttl %s: release: %v, want nil", ttl, err)
			}
			time.Sleep(time.Second) // lets a renewal end that began with the release
		})
	}
}

// renewalLosingStore is a store that the first renewal does not reach: its call waits until the context ends.
type renewalLosingStore struct {
	store.Store
	lostOne bool // the first renewal was lost
}

func (s *renewalLosingStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if ops[0].Verb == law.Renew && !s.lostOne {
		s.lostOne = true
		<-ctx.Done()
		return ctx.Err()
	}
	return s.Store.Apply(ctx, ops, outs)
}
