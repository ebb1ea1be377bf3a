package postgres_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/store/storetest"
)

// fault is a change of the server, mostly for the worse, and the finding that Examine must return for it.
type fault struct {
	severity      store.Severity
	check, remedy string // remedy is a part of the finding's
	plant, undo   string // statements, separated by ;;
}

var faults = []fault{
	{
		store.Wrong, "durability", "set logged", "alter table headgate.cells set unlogged",
		"alter table headgate.cells set logged",
	},
	{
		store.Wrong, "vacuum", "reset (autovacuum_enabled)",
		"alter table headgate.cells set (autovacuum_enabled = false)",
		"alter table headgate.cells reset (autovacuum_enabled)",
	},
	{
		store.Wrong, "indexes", "drop index", "create index extra on headgate.cells (empty_at)",
		"drop index headgate.extra",
	},
	{
		store.Wrong, "schema rights", "revoke create", "grant create on schema headgate to public",
		"revoke create on schema headgate from public",
	},
	{
		store.Wrong, "functions", "run headgate migrate",
		"alter function headgate_internal.make_cell_2(text, text) cost 7",
		"alter function headgate_internal.make_cell_2(text, text) cost 100",
	},
	{
		store.Wrong, "sweeper", "headgate sweep", `insert into headgate.cells (limit_name, key, law, unit, step, empty_at)
			select 'dead', i::text, 1, 1, 1, 1 from generate_series(1, 10001) i`,
		"delete from headgate.cells where limit_name = 'dead'",
	},
	{
		// A sweep keeps these cells, since they have receipts of ids, or entries.
		store.Fine, "sweeper", "", `insert into headgate.cells (limit_name, key, law, unit, step, empty_at, ids_until)
			select 'ids', i::text, 1, 1, 1, 1, 9007199254740991 from generate_series(1, 10001) i;;
			insert into headgate.cells (limit_name, key, law, unit, step, empty_at)
			select 'entries', i::text, 3, 1, 1, 1 from generate_series(1, 10001) i;;
			insert into headgate.entries (limit_name, key, at, expires_at, keep_until, cost, granted)
			select 'entries', i::text, 1, 0, 9007199254740991, 1, true from generate_series(1, 10001) i`,
		"delete from headgate.cells where limit_name in ('ids', 'entries');; delete from headgate.entries",
	},
	{
		store.Wrong, "plan", "reindex table",
		"update pg_index set indisvalid = false where indexrelid = 'headgate.cells_pkey'::regclass",
		"update pg_index set indisvalid = true where indexrelid = 'headgate.cells_pkey'::regclass",
	},
	{
		store.Wrong, "vacuum", "autovacuum = on", "alter system set autovacuum = off;; select pg_reload_conf()",
		"", // the next two faults need the same state: the last of them undoes it
	},
	{
		store.Note, "updates", "fillfactor = 66", `create index extra on headgate.cells (at);;
			insert into headgate.cells (limit_name, key, law, unit, step, empty_at)
			select 'busy', i::text, 1, 1, 1, 9007199254740991 from generate_series(1, 30000) i;;
			update headgate.cells set at = at + 1 where limit_name = 'busy'`, "drop index headgate.extra",
	},
	{
		store.Wrong, "bloat", "vacuum headgate.cells", "delete from headgate.cells where limit_name = 'busy'",
		"vacuum headgate.cells;; alter system reset autovacuum;; select pg_reload_conf()",
	},
	{
		store.Wrong, "durability", "full_page_writes = on",
		"alter system set full_page_writes = off;; select pg_reload_conf()",
		"alter system reset full_page_writes;; select pg_reload_conf()",
	},
	{
		store.Wrong, "standby", "synchronous_standby_names",
		"alter system set synchronous_standby_names = 'nobody';; select pg_reload_conf()",
		"alter system reset synchronous_standby_names;; select pg_reload_conf()",
	},
}

// TestDoctor plants each of faults, and some more, in a server of its own, and checks that Examine finds them.
func TestDoctor(t *testing.T) {
	t.Parallel()
	server, err := (&dbtest.Config{Args: []string{"-c", "fsync=on", "-c", "max_connections=60"}}).Postgres(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	openAs := func(user string, options ...string) *postgres.Store {
		u, err := url.Parse(server.DSN)
		if err != nil {
			t.Fatal(err)
		}
		if user != "" {
			u.User = url.User(user)
		}
		u.RawQuery = strings.Join(options, "&")
		s, err := postgres.Open(t.Context(), u.String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	s := openAs("")
	storetest.Finds(t, s, store.Wrong, "schema", "run headgate migrate")
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn := connect(t, server.DSN)
	exec := func(sql string) {
		t.Helper()
		for statement := range strings.SplitSeq(sql, ";;") {
			if _, err := conn.Exec(t.Context(), statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
	}
	storetest.FindsNothing(t, s)
	storetest.Finds(t, s, store.Note, "timeouts", "idle_in_transaction_session_timeout = '1min'")
	storetest.Finds(t, s, store.Note, "rights", "an ordinary role") // dbtest's user is a superuser
	idleSession := connect(t, server.DSN)
	mustExec(t, idleSession, "begin")
	storetest.Finds(t, s, store.Fine, "transactions", "")
	for _, f := range faults {
		exec(f.plant)
		waitForFinding(t, s, conn, &f)
		if f.undo != "" {
			exec(f.undo)
		}
	}
	unsafeStore := openAs("", "synchronous_commit=off", "default_transaction_isolation=serializable")
	storetest.Finds(t, unsafeStore, store.Wrong, "durability", "synchronous_commit = on")
	storetest.Finds(t, unsafeStore, store.Note, "isolation", "read committed")
	exec("create role nobody login;; create role half login;; grant usage on schema headgate to half;; " +
		"grant select on all tables in schema headgate to half")
	for _, user := range []string{"nobody", "half"} {
		storetest.Finds(t, openAs(user), store.Wrong, "rights", "as the owner")
	}
	for range 52 { // 60 less 3 that are reserved for superusers, and some that are open already
		connect(t, server.DSN)
	}
	storetest.Finds(t, s, store.Wrong, "connections", "raise max_connections")
	findings, err := postgres.ExamineSessions(t.Context(), s, time.Microsecond)
	if err != nil || !slices.ContainsFunc(findings, func(f store.Finding) bool {
		return f.Severity == store.Wrong && f.Check == "transactions" && strings.Contains(f.Remedy, "pg_terminate_backend")
	}) {
		t.Errorf("an idle transaction: got %+v, %v; want a finding with pg_terminate_backend", findings, err)
	}
}

// waitForFinding waits until Examine finds a fault that conn has planted. Sessions read new settings after a moment.
// Statistics are delayed too, before PostgreSQL 15 until a later statement of conn.
func waitForFinding(t *testing.T, s *postgres.Store, conn *pgx.Conn, want *fault) {
	t.Helper()
	await.Until(t, want.check+": "+want.remedy, func() bool {
		if err := conn.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		findings, err := s.Examine(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(findings, func(f store.Finding) bool {
			return f.Severity == want.severity && f.Check == want.check && strings.Contains(f.Remedy, want.remedy)
		})
	})
}
