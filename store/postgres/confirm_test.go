package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
	"github.com/headgate/headgate/store/postgres"
)

// TestUnconfirmedCommitIsErrUnknownOutcome stops the synchronous standby, and ends the wait of each charge for it: by a
// cancel, after which the server reports success with a warning, and by the end of the session.
func TestUnconfirmedCommitIsErrUnknownOutcome(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	pair := dbtest.StartPostgresPair(t)
	dsn := pair.Primary().DSN
	primaryStore, admin := openAt(t, dsn), connect(t, dsn)
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.OnNotice = postgres.OnNotice
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	pgbouncerStore, err := postgres.Open(t.Context(), dbtest.PgBouncer(t, dsn)+"?pooler=transaction", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pgbouncerStore.Close() })
	limit := headgate.MustParse("fixed-window 50/30d")
	stores := map[string]store.Store{
		"Open": primaryStore, "New with a pool": postgres.New(pool, nil), "pgbouncer": pgbouncerStore,
		"wrappers": front.New(primaryStore, &front.Config{
			SweepEvery: -1, Guard: &front.GuardConfig{Deadline: time.Minute}, // a busy machine may take long
		}),
	}
	type charger struct {
		name   string
		charge func() error
	}
	var chargers []charger
	for name, s := range stores {
		l := headgate.New(s, nil)
		allow := func() error {
			d, err := l.Allow(context.Background(), limit, name)
			if err != nil && d.Allowed {
				t.Errorf("%s: allowed, %v", name, err)
			}
			return err
		}
		if err := allow(); err != nil { // the standby is still connected
			t.Fatalf("%s: %v", name, err)
		}
		chargers = append(chargers, charger{name, allow})
	}
	chargeBatch := func(id string) func() error {
		return func() error {
			ops := make([]law.Op, 2)
			for i := range ops {
				ops[i] = newTake(id, 3_600_000_000)
				ops[i].Cell.Key, ops[i].Group = fmt.Sprint(i), uint32(i)
			}
			return primaryStore.Apply(context.Background(), ops, make([]law.Outcome, len(ops)))
		}
	}
	chargers = append(chargers, charger{"a batch", chargeBatch("")}, charger{"a batch with an id", chargeBatch("id")})
	pair.Standby().Stop()
	for _, c := range chargers {
		for _, function := range []string{"pg_cancel_backend", "pg_terminate_backend"} {
			if err := interruptSyncRep(t, admin, function, c.charge); !errors.Is(err, store.ErrUnknownOutcome) {
				t.Errorf("%s, %s: got %v, want ErrUnknownOutcome", c.name, function, err)
			}
		}
	}
	d, err := newLimiter(primaryStore).Check(t.Context(), headgate.Charge{Limit: limit, Key: "Open"})
	if err != nil || d.Remaining != 47 { // 50 less 3 charges, which the primary has committed
		t.Errorf("got %d remaining, %v; want 47", d.Remaining, err)
	}
}

// interruptSyncRep calls charge, ends its wait for the standby by a function of the server, and returns its error.
func interruptSyncRep(t *testing.T, admin *pgx.Conn, function string, charge func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- charge() }()
	await.Until(t, "the end of a call", func() bool {
		mustExec(t, admin, "select "+function+"(pid) from pg_stat_activity where wait_event = 'SyncRep'")
		return len(done) > 0
	})
	return <-done
}
