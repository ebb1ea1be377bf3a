package headgate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/redis"
)

// grantRecordingStore is a store that records the takes of batches that are granted in full. With refusesSlots it
// refuses reservations of several keys, as a Redis Cluster does whose keys lie in several slots.
type grantRecordingStore struct {
	store.Store
	refusesSlots bool

	mu       sync.Mutex
	grants   []grant
	refusals int // reservations of several keys that failed with ErrUnsupported
}

type grant struct {
	cell     law.Cell
	at       int64 // the time of the decision
	deferred bool  // the op could start later
}

func (s *grantRecordingStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	isDeferredElsewhere := func(op law.Op) bool { return op.Deferred && op.Cell.Key != ops[0].Cell.Key }
	if s.refusesSlots && slices.ContainsFunc(ops, isDeferredElsewhere) {
		for i := range outs {
			outs[i] = law.Outcome{Err: fmt.Errorf("slots: %w", store.ErrUnsupported)}
		}
	} else if err := s.Store.Apply(ctx, ops, outs); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if errors.Is(outs[0].Err, store.ErrUnsupported) {
		s.refusals++
	}
	if slices.ContainsFunc(outs, func(o law.Outcome) bool { return o.Err != nil || o.Granted == 0 }) {
		return nil
	}
	for i := range ops {
		if ops[i].Verb == law.Take {
			s.grants = append(s.grants, grant{ops[i].Cell, outs[i].Clock, ops[i].Deferred})
		}
	}
	return nil
}

// checkBounds fails the test if a key has more grants, each of one unit, in some interval than its limit allows.
func (s *grantRecordingStore) checkBounds(t *testing.T, limits map[string]headgate.Limit) {
	t.Helper()
	for _, limit := range limits {
		p := limit.Params()
		timesByKey := map[string][]int64{}
		for _, g := range s.grants {
			if g.cell.Limit == limit.Name() {
				timesByKey[g.cell.Key] = append(timesByKey[g.cell.Key], g.at)
			}
		}
		for key, times := range timesByKey {
			slices.Sort(times)
			for i := range times {
				for k := i; k < len(times); k++ {
					if sum, d := int64(k-i+1)*p.Unit, times[k]-times[i]; sum > p.Capacity+(d+p.Step-1)/p.Step*p.Drain {
						t.Fatalf("%s, %s: %d were granted within %d us", limit, key, k-i+1, d)
					}
				}
			}
		}
	}
}

// chargesOverSlots returns charges of one user, of the user's team, and of the organization. Their keys differ.
func chargesOverSlots(limits map[string]headgate.Limit, user int) []headgate.Charge {
	return []headgate.Charge{
		{Limit: limits["org"], Key: "acme"},
		{Limit: limits["team"], Key: fmt.Sprint("team ", user%3)},
		{Limit: limits["user"], Key: fmt.Sprint("user ", user)},
	}
}

// TestWaitOverSlotsRetries checks that Wait retries if the store cannot reserve several keys: callers of one Limiter
// are admitted in order, each all or none. One whose deadline comes before its start fails without a charge.
func TestWaitOverSlotsRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &grantRecordingStore{Store: memory.New(nil), refusesSlots: true}
		l := headgate.New(s, nil)
		limits := map[string]headgate.Limit{
			"org":  headgate.MustParse("token-bucket 10/s burst 1"),
			"team": headgate.MustParse("gcra 100/s burst 100"),
			"user": headgate.MustParse("token-bucket 1/s burst 5"),
		}
		if _, err := l.Reserve(t.Context(), time.Second, chargesOverSlots(limits, 1)...); !errors.Is(
			err, headgate.ErrUnsupported) {
			t.Errorf("a reservation that may start later: %v, want ErrUnsupported", err)
		}
		if _, err := l.Once("id", 0).Reserve(t.Context(), time.Second, chargesOverSlots(limits, 1)...); !errors.Is(
			err, headgate.ErrUnsupported) {
			t.Errorf("the same with an id: %v, want ErrUnsupported", err)
		}
		if len(s.grants) > 0 {
			t.Fatalf("%+v were charged", s.grants)
		}
		begin := time.Now()
		var order []int
		var mu sync.Mutex
		var wg sync.WaitGroup
		for n := range 20 {
			wg.Go(func() {
				wait := l.Wait
				if n%2 == 0 {
					wait = func(ctx context.Context, c ...headgate.Charge) error {
						return l.WaitAtMost(ctx, time.Minute, c...)
					}
				}
				if err := wait(t.Context(), chargesOverSlots(limits, n%4)...); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, n)
			})
			synctest.Wait()
		}
		wg.Wait()
		if took := time.Since(begin); took < 1900*time.Millisecond || took > 2*time.Second || !slices.IsSorted(order) {
			t.Errorf("20 at 10/s took %s, in the order %v", took, order)
		}
		s.checkBounds(t, limits)
		// 22 refusals: 20 callers and the two reservations. 60 grants: 20 callers of 3 charges.
		if s.refusals != 22 || len(s.grants) != 60 ||
			slices.ContainsFunc(s.grants, func(g grant) bool { return g.deferred }) {
			t.Errorf("%d reservations were refused, %d charges made; want 22 and 60, none of them deferred", s.refusals,
				len(s.grants))
		}

		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		for name, err := range map[string]error{
			"WaitAtMost": l.WaitAtMost(t.Context(), 30*time.Millisecond, chargesOverSlots(limits, 5)...),
			"Wait":       l.Wait(ctx, chargesOverSlots(limits, 5)...),
		} {
			if !errors.Is(err, headgate.ErrDeadline) || !errors.Is(err, headgate.ErrDenied) {
				t.Errorf("%s: %v, want ErrDeadline and ErrDenied", name, err)
			}
		}
		if len(s.grants) != 60 {
			t.Errorf("a caller that missed its deadline was charged: %+v", s.grants[60:])
		}
		// A charge of one key is still reserved.
		if err := l.Wait(t.Context(), headgate.Charge{Limit: limits["org"], Key: "acme"}); err != nil ||
			!s.grants[60].deferred {
			t.Errorf("one key: %v, %+v; want a deferred charge", err, s.grants[60:])
		}
	})
}

// TestWaitersOverSlotsOfACluster checks that all callers of two Limiters pass, no faster than the bounds, and that each
// is charged under all three limits.
func TestWaitersOverSlotsOfACluster(t *testing.T) {
	tier.Engines(t)
	const callers, rounds = 12, 3
	limits := map[string]headgate.Limit{
		"org": headgate.MustParse("token-bucket 40/s burst 2"), "team": headgate.MustParse("gcra 30/s burst 3"),
		"user": headgate.MustParse("leaky-bucket 20/s capacity 2"),
	}
	clusterURL := dbtest.RedisCluster(t)
	var total grantRecordingStore
	var stores [2]*grantRecordingStore
	for i := range stores {
		s, err := redis.Open(t.Context(), clusterURL, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		stores[i] = &grantRecordingStore{Store: s}
	}
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	var wg sync.WaitGroup
	begin := time.Now()
	limiters := [2]*headgate.Limiter{headgate.New(stores[0], nil), headgate.New(stores[1], nil)}
	for n := range callers {
		wg.Go(func() {
			for range rounds {
				if err := limiters[n%2].Wait(ctx, chargesOverSlots(limits, n)...); err != nil {
					t.Errorf("caller %d: %v", n, err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d passed in %s", callers*rounds, time.Since(begin).Round(time.Millisecond))
	for _, s := range stores {
		total.grants = append(total.grants, s.grants...)
		total.refusals += s.refusals
	}
	total.checkBounds(t, limits)
	countByCell := map[law.Cell]int{}
	for _, g := range total.grants {
		countByCell[g.cell]++
	}
	for n := range callers {
		if got := countByCell[law.Cell{Limit: limits["user"].Name(), Key: fmt.Sprint("user ", n)}]; got != rounds {
			t.Errorf("user %d was charged %d times, want %d", n, got, rounds)
		}
	}
	for name, limit := range limits {
		sum := 0
		for cell, n := range countByCell {
			if cell.Limit == limit.Name() {
				sum += n
			}
		}
		if sum != callers*rounds || total.refusals != callers*rounds {
			t.Errorf("%s was charged %d times, and %d reservations refused; want %d", name, sum, total.refusals,
				callers*rounds)
		}
	}
}
