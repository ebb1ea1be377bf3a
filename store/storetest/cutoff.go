package storetest

import (
	"context"
	"errors"
	"testing"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// CutOff lets answers get lost on the way from a store, and asks again with the
// same id: what was done is not done again. direct and through share their cells;
// lose says whether answers to through get lost from now on.
func CutOff(t *testing.T, direct, through store.Store, lose func(bool)) {
	t.Helper()
	b, l := bucket(1, 5), slidingLog(5, 100*sec)
	ops := named("cut", take("cut b", "k", b, 3, T0), take("cut l", "k", l, 3, T0))
	both := func(units int64) {
		t.Helper()
		for _, op := range ops {
			inUse(t, direct, op, units)
		}
	}
	cut := func(ops []law.Op) {
		t.Helper()
		lose(true)
		defer lose(false)
		if err := through.Apply(context.Background(), ops, make([]law.Outcome, len(ops))); !errors.Is(
			err, store.ErrUnknownOutcome) {
			t.Errorf("cut off after it was sent: %v, want ErrUnknownOutcome", err)
		}
	}
	// The connection is made, and the statement prepared: what is cut off is its end.
	apply(t, through, named("warm", take("cut b", "other", b, 1, T0), take("cut l", "other", l, 1, T0))...)
	cut(ops)
	both(3)
	expect(t, through, "asked again", wanted{granted: 1, replayed: true}, ops...)
	both(3)
	settle := each(ops, settled, 1, T0)
	cut(settle)
	both(1)
	expect(t, through, "settled again", wanted{replayed: true}, settle...)
	both(1)
}
