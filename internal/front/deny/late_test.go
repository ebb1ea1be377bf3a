package deny_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/front/deny"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// slowRefusalStore is a store whose refusal is held until the test releases it.
type slowRefusalStore struct {
	store.Store
	refused chan struct{} // closed when the store has refused
	release chan struct{} // closed by the test
}

func (s *slowRefusalStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	err := s.Store.Apply(ctx, ops, outs)
	if outs[0].Granted == 0 {
		close(s.refused)
		<-s.release
	}
	return err
}

// TestALaterGrantOverridesARefusal checks that a refusal is not repeated after a grant that the store made later,
// whichever of the two arrives first. A repeated one would have a time before the grant's.
func TestALaterGrantOverridesARefusal(t *testing.T) {
	for _, grantFirst := range []bool{true, false} { // whether the grant arrives before the refusal
		synctest.Test(t, func(t *testing.T) {
			inner := &slowRefusalStore{memory.New(nil), make(chan struct{}), make(chan struct{})}
			granted, release := make(chan struct{}), make(chan struct{})
			s := deny.New(&slowGrantStore{inner, granted, release})
			defer s.Close()
			op := take("k", perSecond, 1)
			for range 3 {
				if err := inner.Store.Apply(t.Context(), []law.Op{op}, make([]law.Outcome, 1)); err != nil {
					t.Fatal(err)
				}
			}
			var wg sync.WaitGroup
			wg.Go(func() { mustApply(t, s, op) })
			<-inner.refused
			time.Sleep(1100 * time.Millisecond) // the store grants again; the refusal has not arrived yet
			var grant law.Outcome
			wg.Go(func() { grant = mustApply(t, s, op)[0] })
			<-granted
			if grantFirst {
				close(release)
				synctest.Wait()
				close(inner.release)
			} else {
				close(inner.release)
				synctest.Wait()
				close(release)
			}
			wg.Wait()
			if out := mustApply(t, s, op)[0]; grant.Granted != 1 || out.Granted != 0 || out.Clock < grant.Clock {
				t.Errorf("grant first %t: after %+v got %+v, want a refusal of a later time", grantFirst, grant, out)
			}
		})
	}
}

// slowGrantStore is a store whose grant is held until the test releases it.
type slowGrantStore struct {
	store.Store
	granted chan struct{} // closed when the store has granted
	release chan struct{} // closed by the test
}

func (s *slowGrantStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	err := s.Store.Apply(ctx, ops, outs)
	if outs[0].Granted == 1 {
		close(s.granted)
		<-s.release
	}
	return err
}

// earlyClockStore is a store that reads its clock before it decides.
type earlyClockStore struct {
	store.Store
	lead int64 // how long before, in microseconds
}

func (s *earlyClockStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	err := s.Store.Apply(ctx, ops, outs)
	for i := range outs {
		outs[i].Clock -= s.lead
	}
	return err
}

// TestARefusalThatWaitedForALockEndsAtItsTime has a store that decides 400 ms after it reads its clock.
func TestARefusalThatWaitedForALockEndsAtItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := deny.New(&earlyClockStore{memory.New(nil), 400_000})
		defer s.Close()
		twoPerSecond := perSecond
		twoPerSecond.Drain = 2
		op := take("k", twoPerSecond, 1)
		time.Sleep(time.Second)
		for range 3 {
			mustApply(t, s, op)
		}
		time.Sleep(450 * time.Millisecond)
		if out := mustApply(t, s, op)[0]; out.Granted != 0 || out.Via != law.ViaLocal {
			t.Errorf("before its time: got %+v, want a local refusal", out)
		}
		time.Sleep(100 * time.Millisecond)
		if out := mustApply(t, s, op)[0]; out.Granted != 1 {
			t.Errorf("after its time: got %+v, want it granted", out)
		}
	})
}
