package envoy_test

import (
	"context"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// failingStore is a store whose calls fail with the error that fail returns; nil: they succeed.
type failingStore struct {
	store.Store
	fail func(ops []law.Op) error
}

func (f *failingStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if err := f.fail(ops); err != nil {
		return err
	}
	return f.Store.Apply(ctx, ops, outs)
}

// TestARefundIsNoErrorIfItsCheckFails has a store that makes a refund, and then fails when the level is read. It checks
// that the caller gets no error, since it would refund again.
func TestARefundIsNoErrorIfItsCheckFails(t *testing.T) {
	t.Parallel()
	var refunded, away atomic.Bool
	fixedClock := func() int64 { return 1795600000_000000 } // so no hour ends
	s := &failingStore{Store: memory.New(&memory.Config{Clock: fixedClock}), fail: func(ops []law.Op) error {
		if away.Load() && refunded.Load() {
			return store.ErrUnavailable
		}
		refunded.Store(refunded.Load() || ops[0].Verb == law.Return)
		return nil
	}}
	r := startRigWithStore(t, s, noHeaders, hourly+"}\n")
	r.send("d", 0, hits(desc("k", "x"), 5))
	away.Store(true)
	if _, err := r.trySend("d", 0, hits(desc("k", "x"), -2)); err != nil || !refunded.Load() {
		t.Errorf("the refund: %v, refunded: %v; want no error", err, refunded.Load())
	}
	away.Store(false)
	if got := r.send("d", 0, hits(desc("k", "x"), 0)).GetStatuses()[0].GetLimitRemaining(); got != 7 {
		t.Errorf("%d remain, want 7: 10 less 5 and plus 2", got)
	}
}

// TestErrorsOfSeveralDescriptors checks that an error is Unavailable only if no descriptor can have been charged.
func TestErrorsOfSeveralDescriptors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		err     error
		failing law.Verb // the only verb that fails; 0: all fail
		hits    [2]int64
		want    codes.Code
	}{
		{"nothing is done for either", store.ErrUnavailable, 0, [2]int64{1, 1}, codes.Unavailable},
		{"nothing is done for either, each alone", store.ErrUnavailable, 0, [2]int64{0, 5}, codes.Unavailable},
		{"it is not known", store.ErrUnknownOutcome, 0, [2]int64{1, 1}, codes.Unknown},
		{"one is charged, the other one fails", store.ErrUnavailable, law.Check, [2]int64{1, 0}, codes.Unknown},
	} {
		s := &failingStore{Store: memory.New(nil), fail: func(ops []law.Op) error {
			if tt.failing == 0 || ops[0].Verb == tt.failing {
				return tt.err
			}
			return nil
		}}
		r := startRigWithStore(t, s, noHeaders, hourly+"}\n")
		_, err := r.trySend("d", 0, hits(desc("k", "x"), tt.hits[0]), hits(desc("k", "y"), tt.hits[1]))
		if got := status.Code(err); got != tt.want {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
		}
	}
}
