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

// TestCommitsThatTheStandbyHasNotConfirmedAreUnknown stops the synchronous standby
// and cancels the wait for it: the server then reports success, with a warning.
func TestCommitsThatTheStandbyHasNotConfirmedAreUnknown(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	pair := dbtest.StartPostgresPair(t)
	dsn := pair.Primary().DSN
	direct, admin := openAt(t, dsn), connect(t, dsn)
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
	pooled, err := postgres.Open(t.Context(), dbtest.PgBouncer(t, dsn)+"?pooler=transaction", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pooled.Close() })
	limit := headgate.MustParse("fixed-window 50/30d")
	stores := map[string]store.Store{
		"driver": direct, "over the caller's pool": postgres.New(pool, nil), "through pgbouncer": pooled,
		"behind the wrappers": front.New(direct, &front.Config{
			SweepEvery: -1, Guard: &front.GuardConfig{Deadline: time.Minute}, // a busy machine may take long
		}),
	}
	type question struct {
		name string
		ask  func() error
	}
	var questions []question
	for name, s := range stores {
		l := headgate.New(s, nil)
		allow := func() error {
			d, err := l.Allow(context.Background(), limit, name)
			if err != nil && d.Allowed {
				t.Errorf("%s: allowed, %v", name, err)
			}
			return err
		}
		if err := allow(); err != nil { // the standby is connected
			t.Fatalf("%s: %v", name, err)
		}
		questions = append(questions, question{name, allow})
	}
	plain := func(id string) func() error {
		return func() error {
			ops := make([]law.Op, 2)
			for i := range ops {
				ops[i] = request(id, 3_600_000_000)
				ops[i].Cell.Key, ops[i].Group = fmt.Sprint(i), uint32(i)
			}
			return direct.Apply(context.Background(), ops, make([]law.Outcome, len(ops)))
		}
	}
	questions = append(questions, question{"plain charges", plain("")}, question{"charges by id", plain("id")})
	pair.Standby().Stop()
	for _, q := range questions {
		for _, end := range []string{"pg_cancel_backend", "pg_terminate_backend"} {
			if err := interrupted(t, admin, end, q.ask); !errors.Is(err, store.ErrUnknownOutcome) {
				t.Errorf("%s, %s: %v", q.name, end, err)
			}
		}
	}
	d, err := limiter(direct).Check(t.Context(), headgate.Charge{Limit: limit, Key: "driver"})
	if err != nil || d.Remaining != 46 {
		t.Errorf("%d are left, %v; the primary itself has committed 3 of 50, and the check is the fourth",
			d.Remaining, err)
	}
}

// interrupted calls ask, and ends its wait for the standby by the function named end.
func interrupted(t *testing.T, admin *pgx.Conn, end string, ask func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- ask() }()
	await.Until(t, "the end of a call", func() bool {
		if _, err := admin.Exec(t.Context(),
			"select "+end+"(pid) from pg_stat_activity where wait_event = 'SyncRep'"); err != nil {
			t.Fatal(err)
		}
		return len(done) > 0
	})
	return <-done
}
