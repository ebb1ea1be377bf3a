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
	inUse := func(units int64) {
		t.Helper()
		for _, op := range ops {
			op = take(op.Cell.Limit, "k", op.Params, 1, T0)
			op.Verb = law.Check
			if out := one(t, direct, op); out.Used-out.Granted*op.Cost != units*op.Params.Unit {
				t.Errorf("%s: %d in use, want %d units", op.Cell.Limit, out.Used, units)
			}
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
	inUse(3)
	for _, out := range apply(t, through, ops...) {
		if out.Err != nil || out.Granted != 1 || !out.Replayed {
			t.Errorf("asked again: %+v", out)
		}
	}
	inUse(3)
	settle := []law.Op{settled(ops[0], 1, T0), settled(ops[1], 1, T0)}
	cut(settle)
	inUse(1)
	for _, out := range apply(t, through, settle...) {
		if out.Err != nil || !out.Replayed {
			t.Errorf("settled again: %+v", out)
		}
	}
	inUse(1)
}
