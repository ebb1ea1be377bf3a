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

// late is a store of which a refusal arrives late.
type late struct {
	store.Store
	refused chan struct{} // closed when it has refused
	arrives chan struct{} // a refusal waits until this is closed
}

func (l *late) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	err := l.Store.Apply(ctx, ops, outs)
	if outs[0].Granted == 0 {
		close(l.refused)
		<-l.arrives
	}
	return err
}

// TestARefusalThatArrivesAfterALaterGrantIsNotRepeated: callers who have seen that the
// cell grants again would be told of a time before.
func TestARefusalThatArrivesAfterALaterGrantIsNotRepeated(t *testing.T) {
	for _, before := range []bool{true, false} { // the grant is heard before or after the refusal
		synctest.Test(t, func(t *testing.T) {
			inner := &late{memory.New(nil), make(chan struct{}), make(chan struct{})}
			grants, arrives := make(chan struct{}), make(chan struct{})
			s := deny.New(&gated{inner, grants, arrives})
			defer s.Close()
			op := take("k", perSecond, 1)
			for range 3 {
				if err := inner.Store.Apply(t.Context(), []law.Op{op}, make([]law.Outcome, 1)); err != nil {
					t.Fatal(err)
				}
			}
			var wg sync.WaitGroup
			wg.Go(func() { ask(t, s, op) })
			<-inner.refused
			time.Sleep(1100 * time.Millisecond) // the store grants again, and is asked before the refusal arrives
			var granted law.Outcome
			wg.Go(func() { granted = ask(t, s, op)[0] })
			<-grants
			if before {
				close(arrives)
				synctest.Wait()
				close(inner.arrives)
			} else {
				close(inner.arrives)
				synctest.Wait()
				close(arrives)
			}
			wg.Wait()
			if out := ask(t, s, op)[0]; granted.Granted != 1 || out.Granted != 0 || out.Clock < granted.Clock {
				t.Errorf("after %+v, heard before the refusal (%t), the next is told %+v", granted, before, out)
			}
		})
	}
}

// gated is a store of which a grant arrives late.
type gated struct {
	store.Store
	granted, arrives chan struct{}
}

func (g *gated) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	err := g.Store.Apply(ctx, ops, outs)
	if outs[0].Granted == 1 {
		close(g.granted)
		<-g.arrives
	}
	return err
}

// early is a store that reads its clock some microseconds before it decides.
type early struct {
	store.Store
	by int64
}

func (e *early) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	err := e.Store.Apply(ctx, ops, outs)
	for i := range outs {
		outs[i].Clock -= e.by
	}
	return err
}

// TestAStoreThatWaitedForALock decides 400 ms after it has read its clock. The refusal is not repeated for 400 ms
// beyond its time.
func TestAStoreThatWaitedForALock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := deny.New(&early{memory.New(nil), 400_000})
		defer s.Close()
		twice := perSecond
		twice.Drain = 2
		op := take("k", twice, 1)
		time.Sleep(time.Second)
		for range 3 {
			ask(t, s, op)
		}
		time.Sleep(450 * time.Millisecond)
		if out := ask(t, s, op)[0]; out.Granted != 0 || out.Via != law.ViaLocal {
			t.Errorf("before its time: %+v", out)
		}
		time.Sleep(100 * time.Millisecond)
		if out := ask(t, s, op)[0]; out.Granted != 1 {
			t.Errorf("after its time: %+v", out)
		}
	})
}
