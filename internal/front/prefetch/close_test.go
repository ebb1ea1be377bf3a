package prefetch

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// TestApplyAfterCloseFails checks that Apply fails without a call of the inner store, and that Close may be repeated.
func TestApplyAfterCloseFails(t *testing.T) {
	withTokens(t, func(t *testing.T, s *Store, inner *recordingStore) {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		_, oldBatches := inner.lastBatch()
		ops := []law.Op{charge(perSecond, 10)}
		if err := s.Apply(t.Context(), ops, make([]law.Outcome, 1)); !errors.Is(err, store.ErrClosed) {
			t.Errorf("Apply: got %v, want %v", err, store.ErrClosed)
		}
		if err := s.Close(); err != nil || inner.closeCalls != 2 {
			t.Errorf("Close again: got %v and %d calls of the inner Close, want 2", err, inner.closeCalls)
		}
		if _, batches := inner.lastBatch(); batches != oldBatches {
			t.Errorf("got %d more calls of the store, want none", batches-oldBatches)
		}
	})
}

// TestCloseReturnsTokensInBatches checks that Close gives back the tokens of 600 keys in batches of at most 256 ops.
func TestCloseReturnsTokensInBatches(t *testing.T) {
	withTokens(t, func(t *testing.T, s *Store, inner *recordingStore) {
		for i := range 599 { // and key k, which is held already
			op := charge(perSecond, 10)
			op.Cell.Key = fmt.Sprint(i)
			mustApply(t, s, op)
			mustApply(t, s, op)
		}
		oldBatches := len(inner.batches)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		returned, nextGroup := map[law.Cell]int64{}, uint32(1)
		var sizes []int
		for _, ops := range inner.batches[oldBatches:] {
			sizes = append(sizes, len(ops))
			for i := range ops {
				if ops[i].Verb != law.Return || ops[i].Group != nextGroup {
					t.Fatalf("%+v, want a return of group %d", ops[i], nextGroup)
				}
				nextGroup++
				returned[ops[i].Cell] += ops[i].Cost
			}
		}
		credits := returned[law.Cell{Limit: "l", Key: "7"}] // four of the five charges that were fetched
		if fmt.Sprint(sizes) != "[256 256 88]" || len(returned) != 600 || credits != 40 {
			t.Errorf("got batches of %d, %d keys, %d credits; want 256, 256 and 88, 600 and 40", sizes, len(returned), credits)
		}
	})
}

// TestCloseReturnsTheErrorOfTheStore checks that Close gives up after the first error, and returns it unless ErrClosed.
func TestCloseReturnsTheErrorOfTheStore(t *testing.T) {
	for _, c := range []struct{ storeErr, wantErr error }{
		{store.ErrUnavailable, store.ErrUnavailable}, {store.ErrClosed, nil},
	} {
		withTokens(t, func(t *testing.T, s *Store, inner *recordingStore) {
			for i := range 300 {
				op := charge(perSecond, 10)
				op.Cell.Key = fmt.Sprint(i)
				mustApply(t, s, op)
				mustApply(t, s, op)
			}
			inner.beforeApply = func(context.Context, []law.Op, []law.Outcome) error { return c.storeErr }
			oldBatches := len(inner.batches)
			err := s.Close()
			if !errors.Is(err, c.wantErr) || (err == nil) != (c.wantErr == nil) || inner.closeCalls != 1 {
				t.Errorf("got %v and %d calls of the inner Close, want %v and 1", err, inner.closeCalls, c.wantErr)
			}
			if got := len(inner.batches) - oldBatches; got != 1 {
				t.Errorf("got %d calls of the store, want 1", got)
			}
		})
	}
}

// TestCloseGivesUpAfterReturnTimeout checks that Close gives up after returnTimeout if the store is silent.
func TestCloseGivesUpAfterReturnTimeout(t *testing.T) {
	withTokens(t, func(t *testing.T, s *Store, inner *recordingStore) {
		inner.beforeApply = func(ctx context.Context, _ []law.Op, _ []law.Outcome) error {
			<-ctx.Done()
			return ctx.Err()
		}
		begin := time.Now()
		if err := s.Close(); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != 5*time.Second {
			t.Errorf("got %v after %s, want %v after 5 s", err, time.Since(begin), context.DeadlineExceeded)
		}
	})
}
