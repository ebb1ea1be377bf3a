package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/store/storetest"
)

// TestConformanceBehindAPooler runs the suite through pgbouncer in transaction mode, where each statement may go to
// another session.
func TestConformanceBehindAPooler(t *testing.T) {
	dbtest.NeedEngine(t, dbtest.PgBouncerEngine)
	pooledURL := func(tb testing.TB) string { return dbtest.PgBouncer(tb, migrated.Postgres(tb)) }
	runConformance(t, storetest.Options{}, pooledURL, "?pooler=transaction")
}

// TestConformanceOfYugabyteDB runs the suite on a server that the environment names.
func TestConformanceOfYugabyteDB(t *testing.T) {
	dsn := os.Getenv("HEADGATE_TEST_YUGABYTE_DSN")
	if dsn == "" {
		t.Skip("no server: HEADGATE_TEST_YUGABYTE_DSN names none")
	}
	newDatabase := func(tb testing.TB) string { return dbtest.PostgresAt(tb, dsn) }
	runConformance(t, storetest.Options{Histories: 500}, newDatabase, "")
}

// TestUnknownPoolerModeIsErrInvalid opens a store with pooler=statement in the URL.
func TestUnknownPoolerModeIsErrInvalid(t *testing.T) {
	t.Parallel()
	_, err := postgres.Open(t.Context(), migrated.Postgres(t)+"?pooler=statement", nil)
	if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "pooler") {
		t.Errorf("got %v, want ErrInvalid about pooler", err)
	}
}

// TestConflictsOfStricterIsolationAreRetried charges one key by 32 writers at isolation levels with conflicts (SQLSTATE
// 40001). No caller must see one. At least one call conflicts: another session changes the row that it waits for.
func TestConflictsOfStricterIsolationAreRetried(t *testing.T) {
	t.Parallel()
	const writers, charges, capacity = 32, 10, 100
	for _, level := range []string{"serializable", "repeatable%20read"} {
		dsn := migrated.Postgres(t)
		s := openAt(t, dsn+"?pool_max_conns=32&default_transaction_isolation="+level)
		limit := headgate.MustParse("token-bucket 1/1h burst 100")
		l := newLimiter(s) // its deadline lets the store retry for longer than RetryFor
		var admitted atomic.Int64
		allow := func() {
			d, err := l.Allow(context.Background(), limit, "hot")
			if err != nil {
				t.Errorf("%s: %v", level, err)
			}
			if d.Allowed {
				admitted.Add(1)
			}
		}
		var wg sync.WaitGroup
		allow()
		holder, watcher := connect(t, dsn), connect(t, dsn)
		tx, err := holder.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		mustExec(t, tx, "update headgate.cells set reason = 'changed'")
		wg.Go(allow)
		waitForWaiter(t, watcher, holder)
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		for range writers {
			wg.Go(func() {
				for range charges {
					allow()
				}
			})
		}
		wg.Wait()
		if admitted.Load() != capacity || s.Info().Retries == 0 {
			t.Errorf("%s: admitted %d with %d retries; want %d, and retries", level, admitted.Load(), s.Info().Retries,
				capacity)
		}
		t.Logf("%s: %d calls, %d retries", level, 2+writers*charges, s.Info().Retries)
	}
}

// TestHotStatementsUseAnIndex checks that batches and a sweep, among 10,000 cells, entries and receipts, do not raise
// the count of sequential scans.
func TestHotStatementsUseAnIndex(t *testing.T) {
	t.Parallel()
	dsn := migrated.Postgres(t)
	conn := connect(t, dsn)
	mustExec(t, conn, `
		insert into headgate.cells (limit_name, key, law, unit, empty_at) select 'many', n::text, 3, 1000, 9007199254740991 from generate_series(1, 10000) n;
		insert into headgate.entries (limit_name, key, at, expires_at, keep_until, cost, granted)
		select 'many', n::text, 1, 9007199254740991, 9007199254740991, 1, true from generate_series(1, 10000) n;
		insert into headgate.admissions (id, home, keep_until, cells, prints, keeps, costs, settled, rules, outcomes)
		select n::text, n, 9007199254740991, array[n], '{1}', '{9007199254740991}', '{1}', '{-1}', '{{1}}', '{{1}}' from generate_series(1, 10000) n;
		analyze headgate.cells, headgate.entries, headgate.admissions`)
	countScans := func() (n int64) {
		if _, err := conn.Exec(t.Context(), "select pg_stat_force_next_flush()"); err != nil {
			t.Log(err) // before version 15 the counts are delayed
		}
		if err := conn.QueryRow(t.Context(),
			`select sum(seq_scan)::bigint from pg_stat_user_tables where schemaname = 'headgate' and relname in ('cells', 'entries', 'admissions')`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	s := openAt(t, dsn+"?pool_max_conns=1")
	scansBefore := countScans()
	params := law.Params{Kind: law.Log, Unit: 1000, Capacity: 5000, Step: 60_000_000, History: 60_000_000}
	batches := 0
	apply := func(verb law.Verb, id string) {
		ops := make([]law.Op, 20)
		for i := range ops {
			ops[i] = law.Op{
				Verb: verb, Group: uint32(i / 2), Cell: law.Cell{Limit: "many", Key: string(rune('1' + i%9))},
				Params: params,
				Cost:   1000, Count: 1 + int64(i%2)*9, TTL: 1000, EntryNumber: 1 + int64(i%9),
			}
			if id != "" {
				ops[i].ID, ops[i].Count = fmt.Sprint(id, i/2), 1
			}
		}
		outs := make([]law.Outcome, len(ops))
		if err := s.Apply(t.Context(), ops, outs); err != nil {
			t.Fatal(err)
		}
		for i := range outs {
			if outs[i].Err != nil && !errors.Is(outs[i].Err, law.ErrUnknownID) {
				t.Errorf("verb %d: %v", verb, outs[i].Err)
			}
		}
		batches++
	}
	apply(law.Take, "")
	apply(law.Take, "id ")
	apply(law.Settle, "id ")
	for _, verb := range []law.Verb{law.Take, law.Check, law.Return, law.Renew, law.Block, law.Reset} {
		apply(verb, "")
	}
	if _, err := s.Sweep(t.Context(), 100); err != nil {
		t.Error(err)
	}
	s.Close()
	await.Until(t, "the end of the session", func() (ended bool) {
		if err := conn.QueryRow(t.Context(), `select count(*) = 1 from pg_stat_activity where datname = current_database()
			and backend_type = 'client backend'`).Scan(&ended); err != nil {
			t.Fatal(err)
		}
		return ended
	})
	if n := countScans() - scansBefore; n != 0 {
		t.Errorf("got %d sequential scans for %d batches and a sweep, want 0", n, batches)
	}
}

// TestTakeSumsInlinesFunctions checks the plan of the update in headgate_internal.take_sums. If a function were not
// inlined, the server would call it for each row.
func TestTakeSumsInlinesFunctions(t *testing.T) {
	t.Parallel()
	dsn := migrated.Postgres(t)
	conn := connect(t, dsn)
	var body string
	if err := conn.QueryRow(t.Context(), `select prosrc from pg_proc where proname = 'take_sums_2'`).Scan(
		&body); err != nil {
		t.Fatal(err)
	}
	start, end := strings.Index(body, "with done as ("), strings.Index(body, "into res from done")
	if start < 0 || end < start {
		t.Fatalf("the update is not found in %s", body)
	}
	statement := strings.NewReplacer("p_keys", "($1::text[])", "p_anchor", "($2::bigint[])", "p_unit", "($3::bigint[])",
		"p_capacity", "($4::bigint[])", "p_step", "($5::bigint[])", "p_drain", "($6::bigint[])",
		"p_cost", "($7::bigint[])", "p_limit", "($8::text[])", "greatest(clock",
		"greatest($9::bigint", "- clock", "- $9::bigint", "p_rule",
		"($10::int[])").Replace(body[start:end] + " from done")
	mustExec(t, conn, "set plan_cache_mode = force_generic_plan; set enable_seqscan = off; set "+
		"enable_hashjoin = off; set enable_mergejoin = off; prepare plain as "+statement)
	rows, err := conn.Query(t.Context(), "explain (verbose) execute plain('{}','{}','{}','{}','{}','{}','{}','{}',1,'{}')")
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	plan := strings.Join(lines, "\n")
	if strings.Contains(plan, "headgate_internal.") || !strings.Contains(plan, "Index Scan using cells_pkey on headgate.cells") {
		t.Errorf("got the plan %s, want the primary key and no function", plan)
	}
}
