package postgres_test

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/store/storetest"
)

//go:embed testdata/hostile.sql
var hostileSQL string

// hostileDatabase is a database whose schema public has operators, functions, types and casts that Headgate must not
// call. A call of any of them is counted in seen.calls, and raises an error.
type hostileDatabase struct {
	*pgx.Conn // its search_path lacks schema public
	dsn       string
}

// newHostileDatabase makes a hostileDatabase. A searchPath that is not empty is the default of its later sessions.
func newHostileDatabase(t *testing.T, searchPath string) *hostileDatabase {
	t.Helper()
	dsn := dbtest.Postgres(t)
	conn := connect(t, dsn)
	var names []string
	for _, call := range regexp.MustCompile(`\b[a-z_0-9]+\(`).FindAllString(postgres.Schema(), -1) {
		names = append(names, strings.TrimSuffix(call, "("))
	}
	slices.Sort(names)
	sql := strings.NewReplacer("EVIL", "public", "NAMES", "{"+strings.Join(slices.Compact(names), ",")+"}").Replace(
		hostileSQL)
	name := conn.Config().Database
	sql += "; alter database " + name + " set track_functions = 'all'"
	if searchPath != "" {
		sql += "; alter database " + name + " set search_path = " + searchPath
	}
	mustExec(t, conn, sql)
	return &hostileDatabase{conn, dsn}
}

// checkNothingCalled fails the test if a hostile object was called since the last check.
func (db *hostileDatabase) checkNothingCalled(t *testing.T, operation string) {
	t.Helper()
	var calls int64
	if err := db.QueryRow(t.Context(), `select case when is_called then last_value else 0 end from seen.calls`).Scan(
		&calls); err != nil {
		t.Fatal(err)
	}
	if calls > 0 {
		t.Errorf("%s: got %d calls of hostile objects, want 0", operation, calls)
		mustExec(t, db, `select setval('seen.calls', 1, false)`)
	}
}

// openEmpty opens a store, and empties the tables of cells, entries, receipts and limits.
func (db *hostileDatabase) openEmpty(tb testing.TB, url string) *postgres.Store {
	tb.Helper()
	s := openAt(tb, url)
	if _, err := db.Exec(context.Background(),
		`truncate headgate.cells, headgate.entries, headgate.admissions, headgate.limits`); err != nil {
		tb.Fatal(err)
	}
	return s
}

// txStore is a store that makes each call by InTx, in a transaction of its own.
type txStore struct {
	pool *pgxpool.Pool
	base *postgres.Store
}

func (s *txStore) do(ctx context.Context, call func(inTx *postgres.Store) error) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error { return call(s.base.InTx(tx)) })
}

func (s *txStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	return s.do(ctx, func(inTx *postgres.Store) error { return inTx.Apply(ctx, ops, outs) })
}

func (s *txStore) Sweep(ctx context.Context, maxRows int) (removed int, err error) {
	err = s.do(ctx, func(inTx *postgres.Store) error { removed, err = inTx.Sweep(ctx, maxRows); return err })
	return removed, err
}

func (s *txStore) Close() error { s.pool.Close(); return nil }

// hostileSearchPath is a search_path with the hostile schema before pg_catalog.
const hostileSearchPath = "public, pg_catalog"

// TestHostileObjectsAreNotCalled calls all functions, by each kind of connection, in a database with hostile objects in
// schema public. Headgate must call none of these objects.
func TestHostileObjectsAreNotCalled(t *testing.T) {
	t.Parallel()
	for _, searchPath := range tier.Pick([]string{hostileSearchPath}, []string{hostileSearchPath, ""}, []string{hostileSearchPath, ""}) {
		t.Run("search_path "+searchPath, func(t *testing.T) {
			t.Parallel()
			db := newHostileDatabase(t, searchPath)
			openAt(t, db.dsn).Close() // the hostile objects exist before the first migration
			db.checkNothingCalled(t, "the first migration")
			pgbouncerURL := dbtest.PgBouncer(t, db.dsn)
			pooledURL := pgbouncerURL + "?pooler=transaction"
			for kind, openStore := range map[string]storetest.Open{
				"pool":      func(tb testing.TB) store.Store { return db.openEmpty(tb, db.dsn) },
				"pgbouncer": func(tb testing.TB) store.Store { return db.openEmpty(tb, pooledURL) },
				"InTx": func(tb testing.TB) store.Store {
					pool, err := pgxpool.New(context.Background(), db.dsn)
					if err != nil {
						tb.Fatal(err)
					}
					return &txStore{pool, db.openEmpty(tb, db.dsn)}
				},
			} {
				storetest.RunHistories(t, openStore, &storetest.Options{Histories: tier.Pick(30, 60, 60)})
				db.checkNothingCalled(t, "histories by "+kind)
			}
			for kind, url := range map[string]string{"pool": db.dsn, "pgbouncer": pooledURL} {
				s := db.openEmpty(t, url)
				db.callDriver(t, s)
				s.Close() // a session reports its calls when it ends
				db.checkNothingCalled(t, "the driver by "+kind)
			}
			db.callAsUsers(t, pgbouncerURL)
			db.checkAllCalled(t)
		})
	}
}

// callDriver makes calls that the histories lack: plain charges by the server's clock, and methods other than Apply.
func (db *hostileDatabase) callDriver(t *testing.T, s *postgres.Store) {
	t.Helper()
	request := asOneRequest("", newCharge(1, "one", 0), newCharge(1, "two", 0))
	if err := s.Apply(t.Context(), request, make([]law.Outcome, 2)); err != nil {
		t.Errorf("a request of two plain charges: %v", err)
	}
	for _, anchor := range []law.Anchor{law.Own, law.Epoch, law.Own} {
		ops, outs := make([]law.Op, 3), make([]law.Outcome, 3)
		for i := range ops {
			ops[i] = newTake("", 0)
			ops[i].Group, ops[i].Cell.Key, ops[i].Params.Anchor = uint32(i), fmt.Sprint(i), anchor
		}
		if err := s.Apply(t.Context(), ops, outs); err != nil {
			t.Errorf("plain charges: %v", err)
		}
	}
	// A settlement that gives back more than the extension calls give_back_twice.
	charge := newTake("extended", 3_600_000_000)
	extension, settlement := charge, charge
	extension.Verb, extension.Cost = law.Extend, 1500
	settlement.Verb, settlement.Cost = law.Settle, 0
	for _, op := range []law.Op{charge, extension, settlement} {
		applyOp(t, s, op)
	}
	p := law.Params{Kind: law.Log, Unit: 1000, Capacity: 5000, Step: 1, History: 1}
	for _, key := range []string{"a", "b"} {
		cell := law.Cell{Limit: "listed", Key: key}
		applyOp(t, s, law.Op{Verb: law.Take, Cell: cell, Params: p, Cost: 1000, Count: 1})
	}
	for _, q := range []store.Query{
		{},
		{Limit: "listed"},
		{Limit: "listed", Key: "a", HasKey: true},
		{Blocked: true},
		{After: law.Cell{Limit: "listed", Key: "a"}, Max: 5},
	} {
		if _, _, err := s.Cells(t.Context(), q); err != nil {
			t.Errorf("Cells: %v", err)
		}
	}
	if entries, err := s.Entries(t.Context(), law.Cell{Limit: "listed", Key: "a"}, 5); err != nil || len(entries) != 1 {
		t.Errorf("Entries: got %v, %v; want 1 entry", entries, err)
	}
	for _, rule := range []string{
		"fixed-window 3/day Europe/Berlin", "fixed-window 3/day Europe/Berlin",
		"sliding-log 5/1m history 1h block 15m",
	} {
		if err := storetest.TryDefine(t.Context(), s, store.Item{Name: "written", Text: rule, Note: "d"}); err != nil {
			t.Errorf("WriteCatalog: %v", err)
		}
		if err := storetest.TryDefine(t.Context(), s, store.Item{Name: "odd", Text: "fixed-window 3/day Nowhere/Else"}); !errors.Is(
			err, store.ErrInvalid) {
			t.Errorf("WriteCatalog with an unknown zone: got %v, want ErrInvalid", err)
		}
		if list, err := s.CatalogVersions(t.Context(), 0, 10); err != nil || len(list) == 0 {
			t.Errorf("CatalogVersions: got %v, %v; want at least 1", list, err)
		}
		if _, items, err := s.Items(t.Context(), []store.Item{{Kind: store.KindLimit, Name: "written"}}); err != nil || len(items) != 1 {
			t.Errorf("Items: got %v, %v; want 1", items, err)
		}
		readPlansAndRecordAction(t, s)
	}
	for range 4 {
		if _, err := s.Sweep(t.Context(), 1); err != nil {
			t.Errorf("Sweep: %v", err)
		}
	}
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Errorf("second Migrate: %v", err)
	}
}

// userCalls returns statements that call all functions for people, some with invalid arguments.
func userCalls(t *testing.T) []string {
	t.Helper()
	golden, err := os.ReadFile("../../testdata/notations.golden")
	if err != nil {
		t.Fatal(err)
	}
	list := []string{
		`insert into headgate.limits (name, rule) values ('login', 'sliding-log 2/1m history 1d block 1h'), ('export', 'fixed-window 3/day Europe/Berlin')`,
		`insert into headgate.limits (name, rule) values ('Bad name', 'sliding-log 2/1m')`,
		`update headgate.limits set rule = 'sliding-log 3/1m history 1d block 1h'`,
		`insert into headgate.zones (id, rate, window_seconds) values (1, 2, 60) on conflict do nothing`,
		`insert into headgate.catalog (kind, name, key, text) values ('override', 'login', 'k', 'gcra 1/s') on conflict do nothing`,
		`insert into headgate.catalog (kind, name, key, text, until) values ('override', 'export', 'a', 'gcra 1/s', 9007199254740991),
			('prefix-override', 'login', 'l', 'gcra 2/s', 0), ('plan', 'pro', 'login', 'gcra 3/s', 0),
			('assignment', '', 'm', 'pro', 0), ('prefix-assignment', '', 'n', 'pro', 0) on conflict do nothing`,
		`insert into headgate.buckets (id, capacity, refill_seconds) values ('payments', 2, 1) on conflict do nothing`,
		`select * from headgate.enforce('gcra 1/1h', 'y')`, `select pg_catalog.set_config('request.method', 'POST', false)`, `select * from headgate.enforce('gcra 1/1h', 'z', 2)`,
		`select pg_catalog.set_config('request.method', '', false)`, `select * from headgate.enforce('gcra 1/1h', 'z', 2)`,
		`select * from headgate.levels`, `select * from headgate.history`, `select * from headgate.blocked_per_hour`,
	}
	for _, rule := range []string{
		"login", "export", "unknown", "fixed-window 2/hour Australia/Lord_Howe", "fixed-window 2/week America/Havana",
		"fixed-window 2/month", "fixed-window 2/1m from-first", "interval 2/10s burst 3", "sliding-window 2/1m",
		"concurrency 2 ttl 30s", "token-bucket 1/s burst 1 block 1h", "",
	} {
		for _, call := range append([]string{
			"limit_of('%s', 'a')", "limit_of('%s', 'long')", "limit_of('%s', 'm')", "limit_of('%s', 'no')",
			"limit_of('%s', null)", "take('%s', 'a')", "take('%s', 'a', 2.5)", "take('%s', null)",
			"take('%s', 'a', -1)", "take('%s', 'a', 'NaN')", "check('%s', 'a', 3)",
			"take_once('i', '%s', 'a')", "take_once('i', '%s', 'a')", "take_once('i', '%s', 'a', 2)",
			"settle('i', '%s', 'a', 0.5)", "cancel('i', '%s', 'a')", "take_once('j', '%s', 'b')",
			"debit('w', '%s', 'a', 7)", "debit('w', '%s', 'a', 7)",
			"cancel('j', '%s', 'b')", "reserve('%s', 'a', 1, '1 hour')", "reserve('%s', 'a', 1, '1 hour', 'r')",
			"reserve('%s', 'a', 1, '-1 s')", "acquire('%s', 'a')", "renew('%s', 'a', 1)", "release('%s', 'a', 1)",
			"renew('%s', 'a', null)", "attempts('%s', 'a', 5)", "attempts('%s', 'a')",
			"block('%s', 'a', '1 hour', 'abuse')", "take('%s', 'a')", "block('%s', 'a', '0')", "reset('%s', 'a')",
		}, slices.Concat(multiChargeCalls, headroomCalls)...) {
			list = append(list, "select * from headgate."+fmt.Sprintf(call, rule))
		}
	}
	for line := range strings.Lines(string(golden)) {
		rule, _, _ := strings.Cut(line, "\t")
		list = append(list, "select * from headgate.check('"+strings.ReplaceAll(rule, "'", "''")+"', 'a')")
	}
	return append(list,
		`select * from headgate.levels`, `select * from headgate.history`, `select * from headgate.blocked_per_hour`,
		`select public.rate_limiting_request('a')`, `select public.rate_limiting_request('a', 1, 1)`, `select public.rate_limiting_request('a', 0)`,
		`select public.rate_limiting_token_bucket_request('a')`, `select * from public.check_velocity(1, 'a')`, `select * from public.check_velocity(1, 'a')`,
		`select * from public.check_velocity(1, 'a')`, `select * from public.check_velocity(7, 'a')`, `select * from public.request_token('payments')`, `select * from public.request_token('payments')`,
		`select * from public.request_token('payments')`, `select * from public.request_token('x')`,
		`select headgate.override('login', 'a', '9/1d', '1 hour')`, `select headgate.set_plan('a', 'pro')`, `select headgate.unblock('login', 'a')`,
		`select headgate.sweep(0)`, `select headgate.reset('token-bucket 10/s burst 1', 'a')`, `select pg_catalog.pg_sleep(0.15)`, `select headgate.sweep(1000)`,
		`select headgate.sweep(1)`, `select headgate.sweep(1000)`, `select headgate.grant_role(r, session_user) from pg_catalog.unnest('{app,service}'::pg_catalog.text[]) r`, `select headgate.grant_role('none', session_user)`,
		`delete from headgate.catalog`, `truncate headgate.catalog`, `truncate headgate.zones`, `truncate headgate.limits`, `delete from headgate.limits`,
	)
}

// callAsUsers makes userCalls by psql and through pgbouncer, and in later tiers also by a session and in transactions.
func (db *hostileDatabase) callAsUsers(t *testing.T, pgbouncerURL string) {
	t.Helper()
	list := userCalls(t)
	if out := dbtest.Psql(t, db.dsn, strings.Join(list, ";\n")+";\n"); strings.Contains(out, "hostile") ||
		strings.Count(out, "\n") < len(list)/2 {
		t.Errorf("psql: got an error of a hostile object, or too few lines: %s", out)
	}
	db.checkNothingCalled(t, "psql")
	allKinds := map[string]string{"session": db.dsn, "transaction": db.dsn, "pgbouncer": pgbouncerURL}
	for kind, url := range tier.Pick(map[string]string{"pgbouncer": pgbouncerURL}, allKinds, allKinds) {
		config, err := pgx.ParseConfig(url)
		if err != nil {
			t.Fatal(err)
		}
		if kind == "pgbouncer" {
			config.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		}
		conn, err := pgx.ConnectConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		for _, sql := range list {
			if kind == "transaction" {
				err = pgx.BeginFunc(t.Context(), conn,
					func(tx pgx.Tx) error { _, err := tx.Exec(t.Context(), sql); return err })
			} else {
				_, err = conn.Exec(t.Context(), sql)
			}
			if err != nil && strings.Contains(err.Error(), "HG666") {
				t.Errorf("%s: %s: a hostile object raised %v", kind, sql, err)
			}
		}
		db.checkNothingCalled(t, kind)
		if err := errors.Join(conn.Close(t.Context())); err != nil {
			t.Error(err)
		}
	}
}

// checkAllCalled waits until the statistics, which are delayed, have no uncalledFunctions. Else it fails the test.
func (db *hostileDatabase) checkAllCalled(t *testing.T) {
	t.Helper()
	await.NoError(t, "the calls of all functions", func() error {
		if uncalled := db.uncalledFunctions(t); len(uncalled) > 0 {
			return fmt.Errorf("not called: %v", uncalled)
		}
		return nil
	})
}

// uncalledFunctions returns the functions without a call in the statistics, but not those that the server may inline.
func (db *hostileDatabase) uncalledFunctions(t *testing.T) []string {
	t.Helper()
	rows, err := db.Query(t.Context(), `select format('%s.%s', n.nspname, p.proname) from pg_proc p join pg_namespace n on n.oid = p.pronamespace join pg_language l on l.oid = p.prolang
		where (n.nspname in ('headgate', 'headgate_internal') or obj_description(p.oid, 'pg_proc') like 'made by headgate%') and (l.lanname = 'plpgsql' or p.proconfig is not null)
		and p.proname <> 'fail_2' -- it never returns, so it is not counted
		and not exists (select from pg_stat_user_functions f where f.funcid = p.oid and f.calls > 0)`)
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestPrintedSchemaCallsNoHostileObject executes each printed schema twice by psql. It must restore search_path, too.
func TestPrintedSchemaCallsNoHostileObject(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	db := newHostileDatabase(t, hostileSearchPath)
	yugabyte := removeSharding(postgres.SchemaYugabyte())
	for name, text := range map[string]string{"postgres": postgres.Schema() + postgres.Articles("public"), "yugabytedb": yugabyte + postgres.Articles("public")} {
		for range 2 {
			out := dbtest.Psql(t, db.dsn, text+"\nselect pg_catalog.current_setting('search_path');")
			if strings.Contains(out, "ERROR") || !strings.Contains(out, hostileSearchPath) {
				t.Errorf("%s: got %s, want no ERROR and the search_path %s", name, out, hostileSearchPath)
			}
			db.checkNothingCalled(t, name)
		}
		if _, err := db.Exec(t.Context(),
			`drop schema headgate, headgate_internal cascade; drop function public.rate_limiting_token_bucket_request, public.rate_limiting_request, public.check_velocity, public.request_token`); err != nil {
			t.Error(err)
		}
	}
}
