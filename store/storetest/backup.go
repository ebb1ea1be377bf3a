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
// restored store has the charges of some moment during the backup, and is exact from then on: it admits what was left,
// and knows the ids that were used before.
func Backup(t *testing.T, s store.Store, backup func(), restore func() store.Store) {
	t.Helper()
	const capacity = 1_000_000
	limit := law.Params{Kind: law.Log, Unit: 1, Capacity: capacity, Step: day}
	charge := func(s store.Store, id string) law.Outcome {
		op := take("backup", "k", limit, 1, 0)
		if id != "" {
			op.ID, op.TTL = id, hour
		}
		return applyOne(t, s, op)
	}
	if out := charge(s, "before"); out.Granted != 1 {
		t.Fatalf("the first charge: %+v", out)
	}
	var admitted atomic.Int64
	admitted.Add(1)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for ctx.Err() == nil {
				admitted.Add(charge(s, "").Granted)
			}
		})
	}
	await.Until(t, "200 charges", func() bool { return t.Failed() || admitted.Load() >= 200 })
	first := admitted.Load()
	backup()
	last := admitted.Load() + 8 // charges that are under way
	stop()
	callers.Wait()

	restored := restore()
	rest := take("backup", "k", limit, 1, 0)
	has := applyOne(t, restored, check(rest)).Used - 1 // the unit that is checked
	if has < first || has > last {
		t.Fatalf("the restored store has %d charges, want from %d to %d", has, first, last)
	}
	if out := charge(restored, "before"); !out.Replayed {
		t.Errorf("the id of before the backup is not known: %+v", out)
	}
	left := capacity - has
	rest.Count, rest.Partial = capacity, true
	if got := applyOne(t, restored, rest).Granted; got != left {
		t.Errorf("the restored store admits %d more, want %d", got, left)
	}
	if out := charge(restored, ""); out.Granted != 0 {
		t.Errorf("and one more: %+v", out)
	}
	t.Logf("%d admitted when the backup began, %d in it, at most %d when it ended", first, has, last)
}
