package postgres_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// TestPassHeldSkipsALockedRow locks the row of one of three keys. With store.PassHeld, requests of other keys must be
// charged meanwhile, and requests of the locked key must return store.ErrHeld. A batch of this key alone must wait.
func TestPassHeldSkipsALockedRow(t *testing.T) {
	t.Parallel()
	for _, options := range []string{"", "?pooler=transaction", "?default_query_exec_mode=exec"} {
		t.Run(options, func(t *testing.T) {
			t.Parallel()
			dsn := migrated.Postgres(t)
			testPassHeld(t, dsn, dsn+options)
		})
	}
}

// TestPassHeldBehindAPooler checks store.PassHeld through pgbouncer.
func TestPassHeldBehindAPooler(t *testing.T) {
	dbtest.NeedEngine(t, dbtest.PgBouncerEngine)
	dsn := migrated.Postgres(t)
	testPassHeld(t, dsn, dbtest.PgBouncer(t, dsn)+"?pooler=transaction")
}

// testPassHeld tests plain charges, ids, logs and windows. Sessions of dsn lock rows, and a store of storeURL charges.
func testPassHeld(t *testing.T, dsn, storeURL string) {
	t.Helper()
	s := openAt(t, storeURL)
	for name, change := range map[string]func(*law.Op){
		"plain": func(*law.Op) {},
		"id":    func(op *law.Op) { op.TTL = 3_600_000_000 },
		"log": func(op *law.Op) {
			op.Params = law.Params{Kind: law.Log, Unit: 1000, Capacity: 9000, Step: 3_600_000_000}
		},
		"window": func(op *law.Op) { op.Params.Kind, op.Params.Step, op.Params.Drain = law.Window, 3_600_000_000, 0 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			charge := func(group uint32, key string) law.Op {
				op := newTake("", 0)
				op.Group, op.Cell, op.ID = group, law.Cell{Limit: name, Key: key}, ""
				op.Params.Capacity = 9000
				change(&op)
				return op
			}
			batches := 0
			apply := func(ops ...law.Op) []law.Outcome {
				t.Helper()
				for i := range ops {
					if ops[i].TTL > 0 { // an id for each request
						ops[i].ID = fmt.Sprint("id ", batches, ops[i].Group)
					}
				}
				batches++
				outs := make([]law.Outcome, len(ops))
				if err := s.Apply(store.PassHeld(t.Context(), true), ops, outs); err != nil {
					t.Error(err)
				}
				return outs
			}
			for _, out := range apply(charge(1, "a"), charge(2, "k"), charge(3, "z")) {
				if out.Granted != 1 {
					t.Fatalf("new keys: got %+v, want 1 granted", out)
				}
			}
			watcher := connect(t, dsn)
			tx, err := connect(t, dsn).Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			mustExec(t, tx, `update headgate.cells set reason = 'held' where limit_name = $1 and key = 'k'`, name)
			outs := apply(charge(1, "a"), charge(2, "k"), charge(3, "k"), charge(3, "z")) // request 3 has two keys
			for i, out := range outs[1:] {
				if !errors.Is(out.Err, store.ErrHeld) || !errors.Is(out.Err, store.ErrConflict) || out.Granted != 0 {
					t.Errorf("charge %d: got %+v, want ErrHeld", i+2, out)
				}
			}
			if outs[0].Used != 2000 || outs[0].Err != nil {
				t.Errorf("a key without a lock: got %+v, want 2000 used", outs[0])
			}
			done := make(chan []law.Outcome, 1)
			go func() { done <- apply(charge(1, "k"), charge(2, "k")) }()
			waitForWaiter(t, watcher, tx.Conn())
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if outs = await.Receive(t, "a batch of the locked key", done); outs[1].Used != 3000 || outs[0].Granted != 1 {
				t.Errorf("a batch of the locked key: got %+v, want 3000 used", outs)
			}
			if outs = apply(charge(1, "z"), charge(2, "a")); outs[0].Used != 2000 || outs[1].Used != 3000 {
				t.Errorf("after the unlock: got %+v, want 2000 and 3000 used", outs)
			}
		})
	}
}
