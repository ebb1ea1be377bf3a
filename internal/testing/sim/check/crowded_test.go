package check_test

import (
	"testing"

	"github.com/headgate/headgate/internal/testing/history"
	"github.com/headgate/headgate/internal/testing/sim/check"
)

// TestCallsUnderWayTogether has two calls whose figures say that the one with the later time was charged first.
func TestCallsUnderWayTogether(t *testing.T) {
	for _, early := range []bool{false, true} {
		b := newBook(fixed("5", hour))
		if early {
			b.fault(0, history.Fault{Kind: history.Early})
		}
		first, second := b.take(1, "1", left(3)), b.take(2, "1", left(4))
		b.arrive(first, 10)
		b.arrive(second, 10)
		third := b.take(20, "1", left(2))
		if got := check.Check(&b.h); early == (len(got) > 0) {
			t.Errorf("early %v: %v", early, got)
		}
		b.rets[third].Each[0].Remaining = 3
		if got := check.Check(&b.h); len(got) == 0 {
			t.Errorf("early %v: a call that was alone has wrong figures, and nothing is found", early)
		}
	}
}
