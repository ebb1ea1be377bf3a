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

// heldKeyStore is a store in which keys with a prefix are held. A batch with other keys leaves the held ones out after
// a second. A batch without other keys waits until they are free.
type heldKeyStore struct {
	store.Store
	prefix string

	mu      sync.Mutex
	free    chan struct{} // closed when the keys are free
	batches int
}

func (s *heldKeyStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if !store.PassesHeld(ctx) {
		return s.Store.Apply(ctx, ops, outs)
	}
	s.mu.Lock()
	s.batches++
	s.mu.Unlock()
	var freeOps []law.Op
	for _, op := range ops {
		if !strings.HasPrefix(op.Cell.Key, s.prefix) {
			freeOps = append(freeOps, op)
		}
	}
	select {
	case <-s.free:
		return s.Store.Apply(ctx, ops, outs)
	default:
	}
	switch len(freeOps) {
	case len(ops):
		return s.Store.Apply(ctx, ops, outs)
	case 0:
		select {
		case <-s.free:
			return s.Store.Apply(ctx, ops, outs)
		case <-ctx.Done():
			return store.ErrConflict
		}
	}
	time.Sleep(time.Second)
	answers := make([]law.Outcome, len(freeOps))
	err := s.Store.Apply(ctx, freeOps, answers)
	for i, op := range ops {
		if strings.HasPrefix(op.Cell.Key, s.prefix) {
			outs[i] = law.Outcome{Err: store.ErrHeld}
		} else {
			outs[i], answers = answers[0], answers[1:]
		}
	}
	return err
}

// TestAHeldKeyDelaysItsBatchOnce checks that a batch of a held and another key takes a second, and one without it none.
func TestAHeldKeyDelaysItsBatchOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &heldKeyStore{Store: memory.New(nil), prefix: "a", free: make(chan struct{})}
		s := coalesce.New(inner, &coalesce.Config{Flights: 1})
		ctx := context.Background()
		begin := time.Now()
		var wg sync.WaitGroup
		for _, ops := range [][]law.Op{{take("b", 1)}, {take("a", 1)}} {
			request := append(append([]law.Op(nil), ops...), take("c", 1))
			request[1].Group = 2
			wg.Go(func() {
				outs := make([]law.Outcome, len(request))
				if err := s.Apply(ctx, request, outs); err != nil || outs[1].Granted != 1 {
					t.Errorf("%v: got %+v, %v; want c granted", request, outs, err)
				}
				if request[0].Cell.Key == "a" && !errors.Is(outs[0].Err, store.ErrHeld) {
					t.Errorf("the op of the held key: got %+v, want %v", outs[0], store.ErrHeld)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		if d := time.Since(begin); d != time.Second {
			t.Errorf("the requests took %v, want 1s", d)
		}
		s.Close()
	})
}

// TestAHeldKeyGetsItsOwnLane checks that callers of a held key wait, and that callers of other keys do not.
func TestAHeldKeyGetsItsOwnLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &heldKeyStore{Store: memory.New(nil), prefix: "a", free: make(chan struct{})}
		gated := &gatedHeldKeyStore{heldKeyStore: inner, gate: make(chan struct{})}
		s := coalesce.New(gated, &coalesce.Config{Flights: 1})
		ctx := context.Background()
		startCall(ctx, s, take("x", 1)) // is under way while the next ones come
		heldCall, freeCall := startCall(ctx, s, take("a", 1)), startCall(ctx, s, take("b", 1))
		close(gated.gate)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if heldCall.outs[0].Granted != 0 || heldCall.err != nil || freeCall.outs[0].Granted != 1 ||
			freeCall.err != nil {
			t.Errorf("after 2 s: got %+v for the held key, want no answer; got %+v, want one", heldCall, freeCall)
		}
		nextCall := startCall(ctx, s, take("a", 1)) // waits for the first of its key
		begin := time.Now()
		freeCall = startCall(ctx, s, take("b", 1))
		if freeCall.outs[0].Granted != 1 || time.Since(begin) != 0 {
			t.Errorf("another key: got %+v after %v, want it granted at once", freeCall, time.Since(begin))
		}
		close(inner.free)
		synctest.Wait()
		if heldCall.outs[0].Used != 1000 || nextCall.outs[0].Used != 2000 || heldCall.err != nil ||
			nextCall.err != nil {
			t.Errorf("when free: got %+v and %+v, want both granted in their order", heldCall, nextCall)
		}
		s.Close()
	})
}

// gatedHeldKeyStore is a heldKeyStore whose batches wait for a gate first.
type gatedHeldKeyStore struct {
	*heldKeyStore
	gate chan struct{}
}

func (s *gatedHeldKeyStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	<-s.gate
	return s.heldKeyStore.Apply(ctx, ops, outs)
}

// TestMoreHeldKeysThanLanes checks that the caller of a held key for which there is no lane waits without an error.
func TestMoreHeldKeysThanLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &heldKeyStore{Store: memory.New(nil), prefix: "a", free: make(chan struct{})}
		gated := &gatedHeldKeyStore{heldKeyStore: inner}
		s := coalesce.New(gated, &coalesce.Config{Flights: 1})
		ctx := context.Background()
		var heldCalls []*call
		for _, key := range []string{"a1", "a2"} {
			gated.gate = make(chan struct{})
			startCall(ctx, s, take("x", 1)) // is under way while the next ones come
			heldCall, freeCall := startCall(ctx, s, take(key, 1)), startCall(ctx, s, take("b", 1))
			heldCalls = append(heldCalls, heldCall)
			close(gated.gate)
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if freeCall.outs[0].Granted != 1 || heldCall.outs[0].Granted != 0 || heldCall.err != nil {
				t.Errorf("%s: got %+v, want no answer; another key: got %+v, want one", key, heldCall, freeCall)
			}
		}
		close(inner.free)
		synctest.Wait()
		for _, heldCall := range heldCalls {
			if heldCall.outs[0].Granted != 1 || heldCall.err != nil {
				t.Errorf("when free: got %+v, %v; want it granted", heldCall.outs, heldCall.err)
			}
		}
		s.Close()
	})
}

// TestAKeyHeldBeyondTimeoutFails checks that a caller of such a key gets the store's error, and is not charged.
func TestAKeyHeldBeyondTimeoutFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &heldKeyStore{Store: memory.New(nil), prefix: "a", free: make(chan struct{})}
		gated := &gatedHeldKeyStore{heldKeyStore: inner, gate: make(chan struct{})}
		s := coalesce.New(gated, &coalesce.Config{Flights: 1, Timeout: 5 * time.Second})
		ctx := context.Background()
		startCall(ctx, s, take("x", 1))
		heldCall := startCall(ctx, s, take("a", 1))
		startCall(ctx, s, take("b", 1))
		close(gated.gate)
		time.Sleep(7 * time.Second)
		synctest.Wait()
		if !errors.Is(heldCall.err, store.ErrConflict) {
			t.Errorf("after 7 s: got %+v, want a conflict", heldCall)
		}
		close(inner.free)
		if nextCall := startCall(ctx, s, take("a", 1)); nextCall.outs[0].Used != 1000 {
			t.Errorf("when free: got %+v, want the first charge", nextCall)
		}
		s.Close()
	})
}
