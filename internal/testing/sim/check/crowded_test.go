package check_test

import (
	"testing"

	"github.com/headgate/headgate/internal/testing/history"
	"github.com/headgate/headgate/internal/testing/sim/check"
)

// TestCallsUnderWayTogether: the figures of two calls say that the call with the later time was charged first.
func TestCallsUnderWayTogether(t *testing.T) {
	for _, early := range []bool{false, true} {
		b := newBook(fixed("5", hour))
		if early {
			b.fault(0, history.Fault{Kind: history.Early})
		}
		first, second := b.take(1, "1", remaining(3)), b.take(2, "1", remaining(4))
		b.returnAt(first, 10)
		b.returnAt(second, 10)
		third := b.take(20, "1", remaining(2))
		if got := check.Check(&b.h); early == (len(got) > 0) {
			t.Errorf("early %v: %v", early, got)
		}
		b.rets[third].Each[0].Remaining = 3
		if got := check.Check(&b.h); len(got) == 0 {
			t.Errorf("early %v: a call that was alone has wrong figures, and nothing is found", early)
		}
	}
}
