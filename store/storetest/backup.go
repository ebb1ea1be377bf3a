package storetest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// Backup takes a backup of a store while eight callers charge one key, and restores it elsewhere. It checks that the
// restored store has the charges of one moment during the backup. From then on it must be exact: it admits the rest of
// the capacity, and replays the id that was used before.
func Backup(t *testing.T, s store.Store, backup func(), restore func() store.Store) {
	t.Helper()
	const capacity = 1_000_000
	limit := law.Params{Kind: law.Log, Unit: 1, Capacity: capacity, Step: day}
	takeUnit := func(s store.Store, id string) law.Outcome {
		op := take("backup", "k", limit, 1, 0)
		if id != "" {
			op.ID, op.TTL = id, hour
		}
		return applyOne(t, s, op)
	}
	if out := takeUnit(s, "before"); out.Granted != 1 {
		t.Fatalf("the first charge: got %+v, want it admitted", out)
	}
	var admitted atomic.Int64
	admitted.Add(1)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for ctx.Err() == nil {
				admitted.Add(takeUnit(s, "").Granted)
			}
		})
	}
	await.Until(t, "200 charges", func() bool { return t.Failed() || admitted.Load() >= 200 })
	minCharges := admitted.Load()
	backup()
	maxCharges := admitted.Load() + 8 // charges that are under way
	stop()
	callers.Wait()

	restoredStore := restore()
	takeRest := take("backup", "k", limit, 1, 0)
	charges := applyOne(t, restoredStore, check(takeRest)).Used - 1 // less the unit that is checked
	if charges < minCharges || charges > maxCharges {
		t.Fatalf("the restored store: got %d charges, want %d to %d", charges, minCharges, maxCharges)
	}
	if out := takeUnit(restoredStore, "before"); !out.Replayed {
		t.Errorf("an id from before the backup: got %+v, want it replayed", out)
	}
	takeRest.Count, takeRest.Partial = capacity, true
	if got := applyOne(t, restoredStore, takeRest).Granted; got != capacity-charges {
		t.Errorf("the restored store: got %d more admitted, want %d", got, capacity-charges)
	}
	if out := takeUnit(restoredStore, ""); out.Granted != 0 {
		t.Errorf("a charge of the full limit: got %+v, want a refusal", out)
	}
	t.Logf("%d admitted when the backup began, %d in it, at most %d when it ended", minCharges, charges, maxCharges)
}
