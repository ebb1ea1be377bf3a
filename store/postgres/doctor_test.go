package postgres_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/store/storetest"
)

// TestDoctor plants what may be wrong with a server of its own, one thing after the other.
func TestDoctor(t *testing.T) {
	t.Parallel()
	server, err := dbtest.NewPostgres(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	open := func(url string) *postgres.Store {
		s, err := postgres.Open(t.Context(), url, &postgres.Config{SkipArticles: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	s := open(server.DSN)
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
	exec("alter system set idle_in_transaction_session_timeout = '10min';; select pg_reload_conf()")
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) { // until the server has read it
		var is string
		if err := conn.QueryRow(t.Context(),
			"show idle_in_transaction_session_timeout").Scan(&is); err != nil || time.Since(begin) > time.Minute {
			t.Fatal(is, err)
		}
		if is == "10min" {
			break
		}
	}
	storetest.FindsNothing(t, s, "rights", "durability") // dbtest's user is a superuser, and its servers may not sync
	for _, tt := range []struct {
		check, remedy string
		plant, mend   string
	}{
		{
			"durability", "set logged", "alter table headgate.cells set unlogged",
			"alter table headgate.cells set logged",
		},
		{
			"vacuum", "reset (autovacuum_enabled)", "alter table headgate.cells set (autovacuum_enabled = false)",
			"alter table headgate.cells reset (autovacuum_enabled)",
		},
		{"indexes", "drop index", "create index extra on headgate.cells (empty_at)", "drop index headgate.extra"},
		{
			"schema rights", "revoke create", "grant create on schema headgate to public",
			"revoke create on schema headgate from public",
		},
		{
			"functions", "run headgate migrate", "alter function headgate.is_shared_1(text, text) cost 7",
			"alter function headgate.is_shared_1(text, text) cost 100",
		},
		{"sweeper", "headgate sweep", `insert into headgate.cells (limit_name, key, law, unit, step, empty_at)
			select 'dead', i::text, 1, 1, 1, 1 from generate_series(1, 10001) i`, "delete from headgate.cells where limit_name = 'dead'"},
		{
			"plan", "reindex table",
			"update pg_index set indisvalid = false where indexrelid = 'headgate.cells_pkey'::regclass",
			"update pg_index set indisvalid = true where indexrelid = 'headgate.cells_pkey'::regclass",
		},
		{
			"standby", "synchronous_standby_names",
			"alter system set synchronous_standby_names = 'nobody';; select pg_reload_conf()", "",
		},
	} {
		exec(tt.plant)
		if strings.Contains(tt.plant, "pg_reload_conf") { // each session reads it a moment later
			awaitFinding(t, s, tt.check)
		}
		storetest.Finds(t, s, store.Wrong, tt.check, tt.remedy)
		if tt.mend != "" {
			exec(tt.mend)
		}
	}
	own := server.DSN + "?synchronous_commit=off&default_transaction_isolation=serializable"
	if strings.Contains(server.DSN, "?") {
		own = server.DSN + "&" + own[len(server.DSN)+1:]
	}
	wrong := open(own)
	storetest.Finds(t, wrong, store.Wrong, "durability", "synchronous_commit = on")
	storetest.Finds(t, wrong, store.Note, "isolation", "read committed")
	forgotten(t, conn, s)
}

// awaitFinding waits for up to a minute until a store finds that something is wrong about a thing.
func awaitFinding(t *testing.T, s *postgres.Store, check string) {
	t.Helper()
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(20 * time.Millisecond) {
		found, err := s.Examine(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(found, func(f store.Finding) bool {
			return f.Check == check && f.Severity == store.Wrong
		}) {
			return
		}
	}
}

// forgotten lets a session be idle in a transaction, as if for more than a minute: no test waits so long, so
// only that a younger one is not told.
func forgotten(t *testing.T, conn *pgx.Conn, s *postgres.Store) {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	found, err := s.Examine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if f.Check == "transactions" && f.Severity != store.Fine {
			t.Errorf("a transaction of a moment ago: %+v", f)
		}
	}
}
