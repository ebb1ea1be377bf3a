package check_test

import (
	"testing"

	"github.com/headgate/headgate/internal/testing/history"
	"github.com/headgate/headgate/internal/testing/sim/check"
)

// TestEarlyExcusesTheOrderOfOverlappingCalls checks two calls whose figures say that the later one was charged first:
// a violation, unless the store reads its clock early.
func TestEarlyExcusesTheOrderOfOverlappingCalls(t *testing.T) {
	for _, early := range []bool{false, true} {
		b := newBuilder(fixedWindow("5", hour))
		if early {
			b.addFault(0, history.Fault{Kind: history.EarlyClock})
		}
		firstCall, secondCall := b.take(1, "1", withRemaining(3)), b.take(2, "1", withRemaining(4))
		b.returnAt(firstCall, 10)
		b.returnAt(secondCall, 10)
		thirdCall := b.take(20, "1", withRemaining(2))
		if got := check.Check(&b.h); early == (len(got) > 0) {
			t.Errorf("early %v: got %v, want violations: %v", early, got, !early)
		}
		b.returns[thirdCall].Each[0].Remaining = 3
		if got := check.Check(&b.h); len(got) == 0 {
			t.Errorf("early %v: no violation, want one for the wrong figures of the third call", early)
		}
	}
}
