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

func TestMigrateIsIdempotentAndMayBeDoneByManyAtOnce(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Postgres(t)
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			s, err := postgres.Open(context.Background(), dsn, nil)
			if err != nil {
				t.Errorf("open: %v", err)
				return
			}
			defer s.Close()
			if _, err := s.Migrate(context.Background()); err != nil {
				t.Errorf("migrate: %v", err)
			}
		})
	}
	wg.Wait()
	s := openAt(t, dsn)
	report, err := s.Migrate(t.Context())
	if err != nil || len(report) != 1 || !strings.Contains(report[0], "nothing to do") {
		t.Errorf("again: %q, %v", report, err)
	}
}

func TestSchemaIsWhatMigrateDoes(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Postgres(t)
	conn := connect(t, dsn)
	for range 2 {
		if _, err := conn.Exec(t.Context(), postgres.Schema()); err != nil {
			t.Fatal(err)
		}
	}
	report, err := openAt(t, dsn).Migrate(t.Context())
	if err != nil || len(report) != 1 || !strings.Contains(report[0], "nothing to do") {
		t.Errorf("%q, %v", report, err)
	}
}

// TestSchemaForYugabyte executes the printed schema for YugabyteDB on PostgreSQL, without the words
// about sharding.
func TestSchemaForYugabyte(t *testing.T) {
	t.Parallel()
	text := postgres.SchemaYugabyte()
	for _, word := range []string{"fillfactor", "autovacuum", "advisory", "lock table", "e.ctid", "c.ctid", "tid[", "::tid"} {
		if strings.Contains(text, word) {
			t.Errorf("the schema says %s", word)
		}
	}
	for _, clause := range []string{
		"primary key ((limit_name, key) hash)", "primary key (id hash, home)",
		"primary key (number hash)", "((limit_name, key) hash, expires_at asc)",
	} {
		if strings.Count(text, clause) != 1 {
			t.Errorf("the schema does not say once %s", clause)
		}
	}
	dsn := dbtest.Postgres(t)
	if _, err := connect(t, dsn).Exec(t.Context(), unsharded(text)); err != nil {
		t.Fatal(err)
	}
	s := openAt(t, dsn)
	for _, allowed := range []bool{true, false} {
		d, err := limiter(s).Allow(t.Context(), headgate.MustParse("sliding-log 1/1h"), "k")
		if err != nil || d.Allowed != allowed {
			t.Errorf("%+v, %v", d, err)
		}
		ops, outs := []law.Op{request("", 0), request("", 0)}, make([]law.Outcome, 2) // for headgate_internal.take_sums
		ops[1].Group, ops[1].Cell.Key = 2, "other"
		if err := s.Apply(t.Context(), ops, outs); err != nil || outs[0].Granted != 1 || outs[1].Granted != 1 {
			t.Errorf("plain charges: %+v, %v", outs, err)
		}
	}
}

// unsharded changes a text for YugabyteDB so that PostgreSQL can execute it.
func unsharded(text string) string {
	return strings.NewReplacer("((limit_name, key) hash", "(limit_name, key", "(number hash)", "(number)",
		"(id hash, home)", "(id, home)").Replace(text)
}

// TestMigrateKnowsYugabyte by the version that the server reports.
func TestMigrateKnowsYugabyte(t *testing.T) {
	for version, want := range map[string]bool{
		"PostgreSQL 15.2-YB-2025.1.0.0-b0 on x86_64-pc-linux-gnu, compiled by clang version 17.0.6": true,
		"PostgreSQL 11.2-YB-2.20.1.0-b0 on x86_64-pc-linux-gnu, compiled by clang version 16.0.6":   true,
		"PostgreSQL 15.20 (Debian 15.20-0+deb12u1) on x86_64-pc-linux-gnu":                          false,
	} {
		if got := postgres.ForYugabyte(version); got != want {
			t.Errorf("%s: %v", version, got)
		}
	}
}

// TestFunctionsOfOthersAreNotReplaced makes an object of another owner in the place of each of
// the articles' functions: neither Migrate nor the printed functions replace it.
func TestFunctionsOfOthersAreNotReplaced(t *testing.T) {
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
		if _, err := conn.Exec(t.Context(), tt.sql); err != nil {
			t.Fatal(err)
		}
		routines := func() (list string) {
			err := conn.QueryRow(t.Context(), `select string_agg(concat_ws(' ', p.oid, p.xmin, p.proname, p.prokind, p.prosrc), '; ' order by p.oid)
				from pg_proc p where p.pronamespace = 'public'::regnamespace`).Scan(&list)
			if err != nil {
				t.Fatal(err)
			}
			return list
		}
		before := routines()
		for range 2 {
			s, err := postgres.Open(t.Context(), dsn, &postgres.Config{Articles: "public"})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if report, err := s.Migrate(t.Context()); !errors.Is(err, store.ErrSetup) ||
				!strings.Contains(err.Error(), `in schema "public": `+tt.names+" exists and is not ours") {
				t.Errorf("%s: %q, %v", tt.sql, report, err)
			}
		}
		openAt(t, dsn)
		if _, err := conn.Exec(t.Context(), postgres.Articles("public")); err == nil || !strings.Contains(err.Error(), tt.names) {
			t.Errorf("%s: the printed functions: %v", tt.sql, err)
		}
		if after := routines(); after != before {
			t.Errorf("%s: there was\n%s\nthere is\n%s", tt.sql, before, after)
		}
	}
}

// ordinary makes a role that may connect, and returns its name and a URL. The role is dropped at
// the end of the test.
func ordinary(t *testing.T, conn *pgx.Conn) (role, url string) {
	t.Helper()
	role = "headgate_" + strings.ToLower(rand.Text())
	if _, err := conn.Exec(t.Context(), "create role "+role+" login"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := conn.Exec(context.Background(), "drop owned by "+role+" cascade; drop role "+role); err != nil {
			t.Error(err)
		}
	})
	cfg := conn.Config()
	return role, fmt.Sprintf("postgres://%s:@%s:%d/%s", role, cfg.Host, cfg.Port, cfg.Database)
}

// TestAFunctionOfAnotherOwnerIsNotReplaced makes a function of the articles by another owner, with
// Headgate's comment. If Migrate replaced it, the other owner could still change it.
func TestAFunctionOfAnotherOwnerIsNotReplaced(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Postgres(t)
	conn := connect(t, dsn)
	role, url := ordinary(t, conn)
	if _, err := conn.Exec(t.Context(), "grant create on schema public to "+role); err != nil {
		t.Fatal(err)
	}
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
		t.Errorf("%q, %v", report, err)
	}
	var n int
	if err := conn.QueryRow(t.Context(),
		`select count(*) from pg_proc where pronamespace = 'public'::regnamespace`).Scan(&n); err != nil || n != 1 {
		t.Errorf("%d functions are in schema public, %v; want theirs alone", n, err)
	}
}

// TestMigrateNeedsNoRightsButInItsSchemas lets the administrator make the schemas for a role that
// may not make schemas, nor objects in schema public.
func TestMigrateNeedsNoRightsButInItsSchemas(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"migrate", "psql"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			dsn := dbtest.Postgres(t)
			conn := connect(t, dsn)
			app, url := ordinary(t, conn)
			if _, err := conn.Exec(t.Context(),
				"revoke create on schema public from public; create schema headgate authorization "+app+
					"; create schema headgate_internal authorization "+app); err != nil {
				t.Fatal(err)
			}
			if way == "psql" {
				if out := dbtest.Psql(t, url, postgres.Schema()); strings.Contains(out, "ERROR") {
					t.Error(out)
				}
			}
			s, err := postgres.Open(t.Context(), url, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for range 2 {
				if report, err := s.Migrate(t.Context()); err != nil {
					t.Errorf("%q, %v", report, err)
				}
			}
			d, err := limiter(s).Allow(t.Context(), headgate.MustParse("token-bucket 1/1h"), "k")
			if err != nil || !d.Allowed {
				t.Errorf("%+v, %v", d, err)
			}
			if _, err := connect(t, url).Exec(t.Context(),
				`select * from headgate.take('token-bucket 1/1h', 'k')`); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestSetUpErrorsAreClear(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Postgres(t)
	s, err := postgres.Open(t.Context(), dsn, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	limit := headgate.MustParse("token-bucket 1/s")
	_, err = limiter(s).Allow(t.Context(), limit, "k")
	if !errors.Is(err, store.ErrSetup) || !strings.Contains(err.Error(), "headgate migrate") {
		t.Errorf("no schema: %v", err)
	}
	openAt(t, dsn)
	if _, err := connect(t, dsn).Exec(t.Context(), `update headgate.installed set state = 999`); err != nil {
		t.Fatal(err)
	}
	_, err = limiter(s).Allow(t.Context(), limit, "k")
	if !errors.Is(err, store.ErrSchemaNewer) || !strings.Contains(err.Error(), "999") {
		t.Errorf("a newer schema: %v", err)
	}
	if _, err = s.Migrate(t.Context()); !errors.Is(err, store.ErrSchemaNewer) {
		t.Errorf("migrate a newer schema: %v", err)
	}
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		url string
		is  error
	}{
		{"postgres://nobody:secret@127.0.0.1:1/x", store.ErrUnavailable},
		{fmt.Sprintf("postgres://headgate:secret@127.0.0.1:%d/no_such_database", cfg.Port), store.ErrSetup},
		{"postgres://u:secret@[::1", store.ErrInvalid},
		{"postgres://u:x@secret@127.0.0.1:1/x", store.ErrUnavailable},
		{"postgres://127.0.0.1/x?password=a&secret", store.ErrInvalid},
	} {
		_, err := postgres.Open(t.Context(), tt.url, nil)
		if !errors.Is(err, tt.is) || strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("%s: got %v, want %v and no password", tt.url, err, tt.is)
		}
	}
}

func TestReadOnlyServersSaySo(t *testing.T) {
	t.Parallel()
	dsn := migrated.Postgres(t)
	s, err := postgres.Open(t.Context(), dsn+"?default_transaction_read_only=on", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := limiter(s).Allow(t.Context(), headgate.MustParse("token-bucket 1/s"), "k"); !errors.Is(
		err, store.ErrReadOnly) {
		t.Errorf("got %v", err)
	}
}

// TestInTxChargesWithTheCallersWork commits and rolls back: the charge follows the transaction.
func TestInTxChargesWithTheCallersWork(t *testing.T) {
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
		if d, err := limiter(s.InTx(tx)).Allow(t.Context(), limit, "k"); err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
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
	d, err := limiter(s).Check(t.Context(), headgate.Charge{Limit: limit, Key: "k"})
	if err != nil || !d.Allowed || d.Remaining != 1 { // one charge was committed
		t.Errorf("%+v, %v; want the committed charge to count, and no other", d, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := pool.Ping(t.Context()); err != nil {
		t.Errorf("the caller's pool was closed: %v", err)
	}
}
