package storetest

import (
	"errors"
	"testing"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// CutOff checks that a request or a settlement whose answer got lost does nothing more when it is retried with its id.
// The stores direct and proxied share their cells; loseAnswers sets whether answers to proxied get lost.
func CutOff(t *testing.T, direct, proxied store.Store, loseAnswers func(bool)) {
	t.Helper()
	b, l := bucket(1, 5), slidingLog(5, 100*sec)
	ops := withID("cut", take("cut b", "k", b, 3, T0), take("cut l", "k", l, 3, T0))
	expectUsed := func(units int64) {
		t.Helper()
		for _, op := range ops {
			expectInUse(t, direct, op, units)
		}
	}
	applyCutOff := func(ops []law.Op) {
		t.Helper()
		loseAnswers(true)
		defer loseAnswers(false)
		err := proxied.Apply(t.Context(), ops, make([]law.Outcome, len(ops)))
		if !errors.Is(err, store.ErrUnknownOutcome) {
			t.Errorf("a lost answer: got %v, want ErrUnknownOutcome", err)
		}
	}
	// This connects and prepares the statement, so that the answer itself is cut off below.
	apply(t, proxied, withID("warm", take("cut b", "other", b, 1, T0), take("cut l", "other", l, 1, T0))...)
	applyCutOff(ops)
	expectUsed(3)
	expect(t, proxied, "retried", outcome{granted: 1, replayed: true}, ops...)
	expectUsed(3)
	settlements := mapOps(ops, settle, 1, T0)
	applyCutOff(settlements)
	expectUsed(1)
	expect(t, proxied, "settled again", outcome{replayed: true}, settlements...)
	expectUsed(1)
}
