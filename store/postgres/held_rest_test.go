package postgres_test

import (
	"errors"
	"testing"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// TestPassHeldReturnsErrHeldForTheRestOfSums charges a free key, and a locked key whose limit has changed. The sums
// charge the free key and leave the other one to the general function, which meets the lock: the key gets ErrHeld, so
// that it is asked again by itself, and no other error.
func TestPassHeldReturnsErrHeldForTheRestOfSums(t *testing.T) {
	t.Parallel()
	s, pool := openStoreAndPool(t)
	hold := newHold(s, pool)
	take := func(key string, step int64, group uint32) law.Op {
		return law.Op{
			Verb: law.Take, Group: group, Cell: law.Cell{Limit: "l", Key: key}, Cost: 1, Count: 1,
			Params: law.Params{Kind: law.Bucket, Unit: 1, Capacity: 10, Step: step, Drain: 1},
		}
	}
	expectGrants := func(ops ...law.Op) {
		t.Helper()
		outs := make([]law.Outcome, len(ops))
		err := s.Apply(store.PassHeld(t.Context(), true), ops, outs)
		for i := range outs {
			if err != nil || outs[i].Err != nil || outs[i].Granted != 1 {
				t.Fatalf("op %d: got %+v, %v; want a grant", i, outs[i], err)
			}
		}
	}
	const hour = int64(3_600_000_000)
	free, locked, changed := take("free", hour, 0), take("locked", hour, 1), take("locked", hour/2, 1)
	expectGrants(free, locked)
	_, release := hold(t, locked.Cell)
	outs := make([]law.Outcome, 2)
	err := s.Apply(store.PassHeld(t.Context(), true), []law.Op{free, changed}, outs)
	if err != nil || outs[0].Granted != 1 || !errors.Is(outs[1].Err, store.ErrHeld) {
		t.Errorf("got %+v, %v; want a grant and ErrHeld", outs, err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	expectGrants(free, changed)
}
