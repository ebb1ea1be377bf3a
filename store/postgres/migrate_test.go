package postgres_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/postgres"
)

// TestConcurrentMigrateIsIdempotent migrates by six stores at once, and then once more, which must have nothing to do.
func TestConcurrentMigrateIsIdempotent(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Postgres(t)
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			s, err := postgres.Open(context.Background(), dsn, nil)
			if err != nil {
				t.Errorf("Open: %v", err)
				return
			}
			defer s.Close()
			if _, err := s.Migrate(context.Background()); err != nil {
				t.Errorf("Migrate: %v", err)
			}
		})
	}
	wg.Wait()
	s := openAt(t, dsn)
	report, err := s.Migrate(t.Context())
	if err != nil || len(report) != 1 || !strings.Contains(report[0], "nothing to do") {
		t.Errorf("a later Migrate: got %q, %v; want nothing to do", report, err)
	}
}

// TestSchemaIsWhatMigrateDoes executes the printed schema twice. Migrate must have nothing to do afterwards.
func TestSchemaIsWhatMigrateDoes(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Postgres(t)
	conn := connect(t, dsn)
	for range 2 {
		mustExec(t, conn, postgres.Schema())
	}
	report, err := openAt(t, dsn).Migrate(t.Context())
	if err != nil || len(report) != 1 || !strings.Contains(report[0], "nothing to do") {
		t.Errorf("Migrate: got %q, %v; want nothing to do", report, err)
	}
}

// TestSchemaForYugabyte checks the clauses of the printed schema for YugabyteDB, executes it on PostgreSQL without
// sharding, and charges keys.
func TestSchemaForYugabyte(t *testing.T) {
	t.Parallel()
	text := postgres.SchemaYugabyte()
	for _, word := range []string{"fillfactor", "autovacuum", "advisory", "lock table", "e.ctid", "c.ctid", "tid[", "::tid"} {
		if strings.Contains(text, word) {
			t.Errorf("the schema has %s, want none", word)
		}
	}
	for _, clause := range []string{
		"primary key ((limit_name, key) hash)", "primary key (id hash, home)",
		"primary key (number hash)", "((limit_name, key) hash, expires_at asc)",
	} {
		if strings.Count(text, clause) != 1 {
			t.Errorf("want once in the schema: %s", clause)
		}
	}
	dsn := dbtest.Postgres(t)
	if _, err := connect(t, dsn).Exec(t.Context(), removeSharding(text)); err != nil {
		t.Fatal(err)
	}
	s := openAt(t, dsn)
	for _, allowed := range []bool{true, false} {
		d, err := newLimiter(s).Allow(t.Context(), headgate.MustParse("sliding-log 1/1h"), "k")
		if err != nil || d.Allowed != allowed {
			t.Errorf("Allow: got %+v, %v; want allowed %t", d, err, allowed)
		}
		ops, outs := []law.Op{newTake("", 0), newTake("", 0)}, make([]law.Outcome, 2) // for headgate_internal.take_sums
		ops[1].Group, ops[1].Cell.Key = 2, "other"
		if err := s.Apply(t.Context(), ops, outs); err != nil || outs[0].Granted != 1 || outs[1].Granted != 1 {
			t.Errorf("plain charges: got %+v, %v; want 1 granted to each", outs, err)
		}
	}
}

// removeSharding changes a text for YugabyteDB so that PostgreSQL can execute it.
func removeSharding(text string) string {
	return strings.NewReplacer("((limit_name, key) hash", "(limit_name, key", "(number hash)", "(number)",
		"(id hash, home)", "(id, home)").Replace(text)
}

// TestMigrateDetectsYugabyte checks which versions of servers Migrate takes for YugabyteDB.
func TestMigrateDetectsYugabyte(t *testing.T) {
	for version, want := range map[string]bool{
		"PostgreSQL 15.2-YB-2025.1.0.0-b0 on x86_64-pc-linux-gnu, compiled by clang version 17.0.6": true,
		"PostgreSQL 11.2-YB-2.20.1.0-b0 on x86_64-pc-linux-gnu, compiled by clang version 16.0.6":   true,
		"PostgreSQL 15.20 (Debian 15.20-0+deb12u1) on x86_64-pc-linux-gnu":                          false,
	} {
		if got := postgres.ForYugabyte(version); got != want {
			t.Errorf("%s: got %t, want %t", version, got, want)
		}
	}
}

// TestMigrateKeepsObjectsOfOthers makes other objects with the names of the articles' functions. Neither Migrate nor
// the printed functions may replace them.
func TestMigrateKeepsObjectsOfOthers(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	for _, tt := range []struct{ names, sql string }{
		{
			"check_velocity, rate_limiting_request, rate_limiting_token_bucket_request, request_token",
			`create function check_velocity(zone int, bucket_key text) returns int language sql as 'select 42';
			create procedure rate_limiting_request(rate_id text, refill_per_sec int, window_seconds int) language sql as 'select 42';
			create aggregate rate_limiting_token_bucket_request(int) (sfunc = int4pl, stype = int);
			create function request_token(id int) returns int language sql as 'select 42'`,
		},
		{"request_token", `create function request_token(id text) returns int language sql as 'select 42'; comment on function request_token(text) is 'ours'`},
		{
			"check_velocity, request_token",
			`create function request_token(id char(36)) returns int language sql as 'select 42'; create function check_velocity() returns int language sql as 'select 42'`,
		},
	} {
		dsn := dbtest.Postgres(t)
		conn := connect(t, dsn)
		mustExec(t, conn, tt.sql)
		routines := func() (list string) {
			err := conn.QueryRow(t.Context(), `select string_agg(concat_ws(' ', p.oid, p.xmin, p.proname, p.prokind, p.prosrc), '; ' order by p.oid)
				from pg_proc p where p.pronamespace = 'public'::regnamespace`).Scan(&list)
			if err != nil {
				t.Fatal(err)
			}
			return list
		}
		routinesBefore := routines()
		for range 2 {
			s, err := postgres.Open(t.Context(), dsn, &postgres.Config{Articles: "public"})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if report, err := s.Migrate(t.Context()); !errors.Is(err, store.ErrSetup) ||
				!strings.Contains(err.Error(), `in schema "public": `+tt.names+" exists and is not ours") {
				t.Errorf("%s: got %q, %v; want ErrSetup with %s", tt.sql, report, err, tt.names)
			}
		}
		openAt(t, dsn)
		if _, err := conn.Exec(t.Context(), postgres.Articles("public")); err == nil || !strings.Contains(err.Error(), tt.names) {
			t.Errorf("%s: the printed functions: got %v, want an error with %s", tt.sql, err, tt.names)
		}
		if routinesAfter := routines(); routinesAfter != routinesBefore {
			t.Errorf("%s: got\n%s\nwant\n%s", tt.sql, routinesAfter, routinesBefore)
		}
	}
}

// createOrdinaryRole makes a role that may connect, until the end of the test, and returns its name and its URL.
func createOrdinaryRole(t *testing.T, conn *pgx.Conn) (role, url string) {
	t.Helper()
	role = "headgate_" + strings.ToLower(rand.Text())
	mustExec(t, conn, "create role "+role+" login")
	t.Cleanup(func() {
		if _, err := conn.Exec(context.Background(), "drop owned by "+role+" cascade; drop role "+role); err != nil {
			t.Error(err)
		}
	})
	cfg := conn.Config()
	return role, fmt.Sprintf("postgres://%s:@%s:%d/%s", role, cfg.Host, cfg.Port, cfg.Database)
}

// TestMigrateKeepsFunctionOfAnotherOwner lets another owner make a function of the articles with Headgate's comment. If
// Migrate replaced the function, its owner could still change it.
func TestMigrateKeepsFunctionOfAnotherOwner(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Postgres(t)
	conn := connect(t, dsn)
	role, url := createOrdinaryRole(t, conn)
	mustExec(t, conn, "grant create on schema public to "+role)
	if _, err := connect(t, url).Exec(t.Context(), `create function public.request_token(id text) returns table (remaining bigint, at timestamptz) language sql as 'select 1::bigint, now()';
		comment on function public.request_token(text) is 'made by headgate'`); err != nil {
		t.Fatal(err)
	}
	s, err := postgres.Open(t.Context(), dsn, &postgres.Config{Articles: "public"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if report, err := s.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "request_token exists and is not ours") {
		t.Errorf("Migrate: got %q, %v; want an error about request_token", report, err)
	}
	var functions int
	if err := conn.QueryRow(t.Context(),
		`select count(*) from pg_proc where pronamespace = 'public'::regnamespace`).Scan(&functions); err != nil || functions != 1 {
		t.Errorf("got %d functions in schema public, %v; want 1", functions, err)
	}
}

// TestMigrateNeedsRightsInItsSchemasOnly migrates by a role that owns Headgate's schemas, which an administrator has
// made, and may make neither other schemas nor objects in schema public.
func TestMigrateNeedsRightsInItsSchemasOnly(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"migrate", "psql"} {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			dsn := dbtest.Postgres(t)
			conn := connect(t, dsn)
			app, url := createOrdinaryRole(t, conn)
			mustExec(t, conn, "revoke create on schema public from public; create schema headgate authorization "+app+
				"; create schema headgate_internal authorization "+app)
			if tool == "psql" {
				if out := dbtest.Psql(t, url, postgres.Schema()); strings.Contains(out, "ERROR") {
					t.Errorf("psql: got errors: %s", out)
				}
			}
			s, err := postgres.Open(t.Context(), url, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for range 2 {
				if report, err := s.Migrate(t.Context()); err != nil {
					t.Errorf("Migrate: got %q, %v; want success", report, err)
				}
			}
			d, err := newLimiter(s).Allow(t.Context(), headgate.MustParse("token-bucket 1/1h"), "k")
			if err != nil || !d.Allowed {
				t.Errorf("Allow: got %+v, %v; want an admission", d, err)
			}
			if _, err := connect(t, url).Exec(t.Context(),
				`select * from headgate.take('token-bucket 1/1h', 'k')`); err != nil {
				t.Errorf("headgate.take: %v", err)
			}
		})
	}
}

// TestSetupErrors checks the classes of errors about a missing schema, a newer schema and URLs. No error may have a
// password.
func TestSetupErrors(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Postgres(t)
	s, err := postgres.Open(t.Context(), dsn, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	limit := headgate.MustParse("token-bucket 1/s")
	_, err = newLimiter(s).Allow(t.Context(), limit, "k")
	if !errors.Is(err, store.ErrSetup) || !strings.Contains(err.Error(), "headgate migrate") {
		t.Errorf("Allow without a schema: got %v, want ErrSetup", err)
	}
	openAt(t, dsn)
	if _, err := connect(t, dsn).Exec(t.Context(), `update headgate.installed set state = 999`); err != nil {
		t.Fatal(err)
	}
	_, err = newLimiter(s).Allow(t.Context(), limit, "k")
	if !errors.Is(err, store.ErrSchemaNewer) || !strings.Contains(err.Error(), "999") {
		t.Errorf("Allow with a newer schema: got %v, want ErrSchemaNewer", err)
	}
	if _, err = s.Migrate(t.Context()); !errors.Is(err, store.ErrSchemaNewer) {
		t.Errorf("Migrate of a newer schema: got %v, want ErrSchemaNewer", err)
	}
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		url   string
		class error
	}{
		{"postgres://nobody:secret@127.0.0.1:1/x", store.ErrUnavailable},
		{fmt.Sprintf("postgres://headgate:secret@127.0.0.1:%d/no_such_database", cfg.Port), store.ErrSetup},
		{"postgres://u:secret@[::1", store.ErrInvalid},
		{"postgres://u:x@secret@127.0.0.1:1/x", store.ErrUnavailable},
		{"postgres://127.0.0.1/x?password=a&secret", store.ErrInvalid},
	} {
		_, err := postgres.Open(t.Context(), tt.url, nil)
		if !errors.Is(err, tt.class) || strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("%s: got %v, want %v and no password", tt.url, err, tt.class)
		}
	}
}

// TestReadOnlyServerIsErrReadOnly charges a key in a session whose transactions are read-only by default.
func TestReadOnlyServerIsErrReadOnly(t *testing.T) {
	t.Parallel()
	dsn := migrated.Postgres(t)
	s, err := postgres.Open(t.Context(), dsn+"?default_transaction_read_only=on", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := newLimiter(s).Allow(t.Context(), headgate.MustParse("token-bucket 1/s"), "k"); !errors.Is(
		err, store.ErrReadOnly) {
		t.Errorf("got %v, want ErrReadOnly", err)
	}
}

// TestInTxCommitsAndRollsBackWithTheCaller checks that a charge of InTx counts only if the caller commits, and that
// Close of the store leaves the caller's pool open.
func TestInTxCommitsAndRollsBackWithTheCaller(t *testing.T) {
	t.Parallel()
	dsn := migrated.Postgres(t)
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	s := postgres.New(pool, nil)
	limit := headgate.MustParse("token-bucket 1/1h burst 2")
	for _, commit := range []bool{false, true} {
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if d, err := newLimiter(s.InTx(tx)).Allow(t.Context(), limit, "k"); err != nil || !d.Allowed {
			t.Fatalf("Allow: got %+v, %v; want an admission", d, err)
		}
		if commit {
			err = tx.Commit(t.Context())
		} else {
			err = tx.Rollback(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	d, err := newLimiter(s).Check(t.Context(), headgate.Charge{Limit: limit, Key: "k"})
	if err != nil || !d.Allowed || d.Remaining != 1 { // 2 less the committed charge
		t.Errorf("Check: got %+v, %v; want 1 remaining", d, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := pool.Ping(t.Context()); err != nil {
		t.Errorf("the caller's pool after Close of the store: got %v, want it open", err)
	}
}
