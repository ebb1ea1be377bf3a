package storetest

import (
	"context"
	"errors"
	"testing"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// CutOff tests that a request whose answer was lost is not charged again when it is repeated with its id. The stores
// direct and through share their cells; lose sets whether answers of through get lost.
func CutOff(t *testing.T, direct, through store.Store, lose func(bool)) {
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
		lose(true)
		defer lose(false)
		if err := through.Apply(context.Background(), ops, make([]law.Outcome, len(ops))); !errors.Is(
			err, store.ErrUnknownOutcome) {
			t.Errorf("cut off after it was sent: %v, want ErrUnknownOutcome", err)
		}
	}
	// This connects and prepares the statement, so that the answer itself is cut off below.
	apply(t, through, withID("warm", take("cut b", "other", b, 1, T0), take("cut l", "other", l, 1, T0))...)
	applyCutOff(ops)
	expectUsed(3)
	expect(t, through, "asked again", outcome{granted: 1, replayed: true}, ops...)
	expectUsed(3)
	settlements := mapOps(ops, settle, 1, T0)
	applyCutOff(settlements)
	expectUsed(1)
	expect(t, through, "settled again", outcome{replayed: true}, settlements...)
	expectUsed(1)
}
