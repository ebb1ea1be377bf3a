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

// TestAClosedStore asks nothing any more.
func TestAClosedStore(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Store, inner *recorder) {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		_, n := inner.last()
		ops := []law.Op{charge(perSecond, 10)}
		if err := s.Apply(t.Context(), ops, make([]law.Outcome, 1)); !errors.Is(err, store.ErrClosed) {
			t.Error(err)
		}
		if err := s.Close(); err != nil || inner.closed != 2 {
			t.Errorf("closed again: %v, and the store behind %d times", err, inner.closed)
		}
		if _, again := inner.last(); again != n {
			t.Errorf("the store was asked %d times more", again-n)
		}
	})
}

// TestCloseReturnsInParts what is held of many keys, each in a group of its own.
func TestCloseReturnsInParts(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Store, inner *recorder) {
		for i := range 599 {
			op := charge(perSecond, 10)
			op.Cell.Key = fmt.Sprint(i)
			ask(t, s, op)
			ask(t, s, op)
		}
		before := len(inner.asked)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		returned, next := map[law.Cell]int64{}, uint32(1)
		var sizes []int
		for _, ops := range inner.asked[before:] {
			sizes = append(sizes, len(ops))
			for i := range ops {
				if ops[i].Verb != law.Return || ops[i].Group != next {
					t.Fatalf("%+v, want a return of group %d", ops[i], next)
				}
				next++
				returned[ops[i].Cell] += ops[i].Cost
			}
		}
		seventh := returned[law.Cell{Limit: "l", Key: "7"}]
		if fmt.Sprint(sizes) != "[256 256 88]" || len(returned) != 600 || seventh != 40 {
			t.Errorf("returned in parts of %d: of %d keys", sizes, len(returned))
		}
	})
}

// TestCloseOfAStoreThatFails gives up with its error, but for one that says it is closed already.
func TestCloseOfAStoreThatFails(t *testing.T) {
	for _, c := range []struct{ err, want error }{
		{store.ErrUnavailable, store.ErrUnavailable}, {store.ErrClosed, nil},
	} {
		inBubble(t, func(t *testing.T, s *Store, inner *recorder) {
			for i := range 300 {
				op := charge(perSecond, 10)
				op.Cell.Key = fmt.Sprint(i)
				ask(t, s, op)
				ask(t, s, op)
			}
			inner.before = func(context.Context, []law.Op, []law.Outcome) error { return c.err }
			before := len(inner.asked)
			if err := s.Close(); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) || inner.closed != 1 {
				t.Errorf("%v, want %v; the store behind was closed %d times", err, c.want, inner.closed)
			}
			if got := len(inner.asked) - before; got != 1 {
				t.Errorf("the store was asked %d times", got)
			}
		})
	}
}

// TestCloseWaitsForAStoreNotLongerThanItsTimeout says.
func TestCloseWaitsForAStoreNotLongerThanItsTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Store, inner *recorder) {
		inner.before = func(ctx context.Context, _ []law.Op, _ []law.Outcome) error {
			<-ctx.Done()
			return ctx.Err()
		}
		begin := time.Now()
		if err := s.Close(); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != 5*time.Second {
			t.Errorf("%v after %s", err, time.Since(begin))
		}
	})
}
