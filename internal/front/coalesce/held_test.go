package coalesce_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/front/coalesce"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// holding is a store of which somebody else holds the keys that begin with a text: a batch with others passes it by
// after a second, one without others waits for it.
type holding struct {
	store.Store
	key string

	mu      sync.Mutex
	free    chan struct{} // closed when nobody holds the key any more
	batches int
}

func (h *holding) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if !store.PassesHeld(ctx) {
		return h.Store.Apply(ctx, ops, outs)
	}
	h.mu.Lock()
	h.batches++
	h.mu.Unlock()
	var others []law.Op
	for _, op := range ops {
		if !strings.HasPrefix(op.Cell.Key, h.key) {
			others = append(others, op)
		}
	}
	select {
	case <-h.free:
		return h.Store.Apply(ctx, ops, outs)
	default:
	}
	switch len(others) {
	case len(ops):
		return h.Store.Apply(ctx, ops, outs)
	case 0:
		select {
		case <-h.free:
			return h.Store.Apply(ctx, ops, outs)
		case <-ctx.Done():
			return store.ErrConflict
		}
	}
	time.Sleep(time.Second)
	answers := make([]law.Outcome, len(others))
	err := h.Store.Apply(ctx, others, answers)
	for i, op := range ops {
		if strings.HasPrefix(op.Cell.Key, h.key) {
			outs[i] = law.Outcome{Err: store.ErrHeld}
		} else {
			outs[i], answers = answers[0], answers[1:]
		}
	}
	return err
}

// TestAKeyThatIsHeldDelaysOthersOnce asks for a held key and for others. The callers in the
// same batch wait for one second, and later callers do not wait.
func TestAKeyThatIsHeldDelaysOthersOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &holding{Store: memory.New(nil), key: "a", free: make(chan struct{})}
		s := coalesce.New(h, &coalesce.Config{Flights: 1})
		ctx := context.Background()
		begin := time.Now()
		var wg sync.WaitGroup
		for _, ops := range [][]law.Op{{take("b", 1)}, {take("a", 1)}} {
			both := append(append([]law.Op(nil), ops...), take("c", 1))
			both[1].Group = 2
			wg.Go(func() {
				outs := make([]law.Outcome, len(both))
				if err := s.Apply(ctx, both, outs); err != nil || outs[1].Granted != 1 {
					t.Errorf("%v: %+v, %v", both, outs, err)
				}
				if both[0].Cell.Key == "a" && !errors.Is(outs[0].Err, store.ErrHeld) {
					t.Errorf("a caller with a part that could be done: %+v", outs)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		if d := time.Since(begin); d != time.Second {
			t.Errorf("those in a batch with the key waited for %v, want 1s", d)
		}
		s.Close()
	})
}

// TestAKeyThatIsHeldGetsALaneOfItsOwn: its callers wait, and others pass them.
func TestAKeyThatIsHeldGetsALaneOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &holding{Store: memory.New(nil), key: "a", free: make(chan struct{})}
		first := &waits{holding: h, gate: make(chan struct{})}
		s := coalesce.New(first, &coalesce.Config{Flights: 1})
		ctx := context.Background()
		ask(ctx, s, take("x", 1)) // is under way while the next ones come
		held, other := ask(ctx, s, take("a", 1)), ask(ctx, s, take("b", 1))
		close(first.gate)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if held.outs[0].Granted != 0 || held.err != nil || other.outs[0].Granted != 1 || other.err != nil {
			t.Errorf("after two seconds: %+v, want no answer; and %+v, want one", held, other)
		}
		again := ask(ctx, s, take("a", 1)) // waits behind it
		begin := time.Now()
		next := ask(ctx, s, take("b", 1))
		if next.outs[0].Granted != 1 || time.Since(begin) != 0 {
			t.Errorf("another key while it is held: %+v after %v", next, time.Since(begin))
		}
		close(h.free)
		synctest.Wait()
		if held.outs[0].Used != 1000 || again.outs[0].Used != 2000 || held.err != nil || again.err != nil {
			t.Errorf("then: %+v and %+v, want both granted in their order", held, again)
		}
		s.Close()
	})
}

// waits is a holding whose batches wait for a gate first.
type waits struct {
	*holding
	gate chan struct{}
}

func (w *waits) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	<-w.gate
	return w.holding.Apply(ctx, ops, outs)
}

// TestMoreKeysAreHeldThanThereAreLanes: the callers of a key for which there is no lane wait
// in a flight, and have no error.
func TestMoreKeysAreHeldThanThereAreLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &holding{Store: memory.New(nil), key: "a", free: make(chan struct{})}
		gated := &waits{holding: h}
		s := coalesce.New(gated, &coalesce.Config{Flights: 1})
		ctx := context.Background()
		var held []*asked
		for _, key := range []string{"a1", "a2"} {
			gated.gate = make(chan struct{})
			ask(ctx, s, take("x", 1)) // is under way while the next ones come
			one, other := ask(ctx, s, take(key, 1)), ask(ctx, s, take("b", 1))
			held = append(held, one)
			close(gated.gate)
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if other.outs[0].Granted != 1 || one.outs[0].Granted != 0 || one.err != nil {
				t.Errorf("%s: %+v, want no answer; another key: %+v, want one", key, one, other)
			}
		}
		close(h.free)
		synctest.Wait()
		for _, one := range held {
			if one.outs[0].Granted != 1 || one.err != nil {
				t.Errorf("in the end: %+v, %v", one.outs, one.err)
			}
		}
		s.Close()
	})
}

// TestAKeyThatIsHeldForLongFails: its callers get the error of the store, and nothing was
// charged.
func TestAKeyThatIsHeldForLongFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &holding{Store: memory.New(nil), key: "a", free: make(chan struct{})}
		first := &waits{holding: h, gate: make(chan struct{})}
		s := coalesce.New(first, &coalesce.Config{Flights: 1, Timeout: 5 * time.Second})
		ctx := context.Background()
		ask(ctx, s, take("x", 1))
		held := ask(ctx, s, take("a", 1))
		ask(ctx, s, take("b", 1))
		close(first.gate)
		time.Sleep(7 * time.Second)
		synctest.Wait()
		if !errors.Is(held.err, store.ErrConflict) {
			t.Errorf("after 7 s: %+v, want a conflict", held)
		}
		close(h.free)
		if then := ask(ctx, s, take("a", 1)); then.outs[0].Used != 1000 {
			t.Errorf("then: %+v, want the first charge", then)
		}
		s.Close()
	})
}
