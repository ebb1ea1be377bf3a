package postgres_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/revisiontest"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/postgres"
)

// TestRevisionIsRaised: package revisiontest documents what to do when it fails.
func TestRevisionIsRaised(t *testing.T) {
	revisiontest.Check(t, postgres.Revision, postgres.Fingerprint)
}

// functionHashes returns the md5 of each function in the schemas headgate, headgate_internal and public.
func functionHashes(t *testing.T, dsn string) map[string]string {
	t.Helper()
	rows, err := connect(t, dsn).Query(t.Context(), `select p.oid::regprocedure::text, md5(pg_get_functiondef(p.oid)) from pg_proc p
		where p.pronamespace in ('headgate'::regnamespace, 'headgate_internal'::regnamespace, 'public'::regnamespace)`)
	if err != nil {
		t.Fatal(err)
	}
	list := make(map[string]string)
	var name, sum string
	if _, err := pgx.ForEachRow(rows, []any{&name, &sum}, func() error { list[name] = sum; return nil }); err != nil {
		t.Fatal(err)
	}
	return list
}

// sameFunctions compares the functions of two databases. got may also have functions of the
// previous layout, for processes that still call them.
func sameFunctions(t *testing.T, got, want map[string]string) {
	t.Helper()
	maps.DeleteFunc(got, func(name, _ string) bool {
		bare, _, _ := strings.Cut(name, "(")
		_, wanted := want[name]
		return !wanted && strings.HasSuffix(bare, "_1")
	})
	for name, sum := range want {
		if got[name] != sum {
			t.Errorf("%s is %q, on a fresh database %q", name, got[name], sum)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("a fresh database does not have %v", got)
	}
}

// openUnmigrated opens a store and does not migrate.
func openUnmigrated(t *testing.T, dsn string) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), dsn, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// adapter returns functions of the first layout that the driver calls, and that call functions of
// the second layout.
func adapter(t *testing.T, dsn string) string {
	t.Helper()
	var text string
	conn := connect(t, dsn)
	if _, err := conn.Exec(t.Context(), `set search_path = pg_catalog`); err != nil { // names of types get their schema
		t.Fatal(err)
	}
	err := conn.QueryRow(t.Context(), `select string_agg(format(
			'create or replace function headgate_internal.%I(%s) returns %s language sql volatile set search_path = pg_catalog, pg_temp as ''select * from headgate_internal.%I(%s)'';',
			p.proname, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid), replace(p.proname, '_1', '_2'),
			(select string_agg('$' || n, ', ') from generate_series(1, p.pronargs) n)), E'\n')
		from pg_proc p where p.pronamespace = 'headgate_internal'::regnamespace and p.proname = any('{apply_1,apply_plain_1,take_one_1,take_sums_1,
			sweep_from_1,read_catalog_1,items_1,items_after_1,write_catalog_1,versions_1,record_action_1,actions_1}')`).
		Scan(&text)
	if err != nil || strings.Count(text, "create") != 12 {
		t.Fatalf("%s, %v", text, err)
	}
	return text
}

// TestBinariesOfTwoLayoutsWorkSideBySide charges by an older binary, and by SQL, while a newer binary
// migrates and begins to work, and while either binary is restarted. No caller sees an error, the number
// of admissions is exact, and a request that is repeated at the other binary is charged once.
func TestBinariesOfTwoLayoutsWorkSideBySide(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	dsn := dbtest.Postgres(t)
	old := openAt(t, dsn)
	text := adapter(t, dsn)
	const most = 1500
	limit := headgate.MustParse(fmt.Sprintf("fixed-window %d/30d", most))
	charge := headgate.Charge{Limit: limit, Key: "k"}

	if _, err := limiter(postgres.Newer(openUnmigrated(t, dsn), text)).Take(t.Context(), charge); !errors.Is(
		err, store.ErrSetup) || !strings.Contains(err.Error(), "run headgate migrate") {
		t.Fatalf("a newer binary, before it has migrated: %v", err)
	}

	var asked, admitted atomic.Int64
	end := make(chan struct{})
	var wg sync.WaitGroup
	ask := func(take func() (bool, error)) {
		wg.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
				}
				asked.Add(1)
				switch allowed, err := take(); {
				case err != nil:
					t.Error(err)
					return
				case allowed:
					admitted.Add(1)
				}
			}
		})
	}
	callers := func(s *postgres.Store) {
		l := limiter(s)
		ask(func() (bool, error) { d, err := l.Take(t.Context(), charge); return d.Allowed, err })
		ask(func() (bool, error) { // in one batch with another key: headgate_internal.apply
			d, err := l.Take(t.Context(), charge,
				headgate.Charge{Limit: limit, Key: "other " + fmt.Sprint(time.Now().UnixNano())})
			return d.Allowed, err
		})
	}
	callers(old)
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	ask(func() (allowed bool, err error) {
		err = pool.QueryRow(t.Context(), `select allowed from headgate.take($1, 'k')`, limit.String()).Scan(&allowed)
		return allowed, err
	})

	await.Until(t, "callers of the older binary", func() bool { return admitted.Load() > 50 })
	newer := postgres.Newer(openUnmigrated(t, dsn), text)
	report, err := newer.Migrate(t.Context())
	if err != nil || !strings.Contains(strings.Join(report, "\n"), fmt.Sprint("installed the functions of revision ", postgres.Revision+1)) {
		t.Fatalf("%q, %v", report, err)
	}
	callers(newer)
	report, err = old.Migrate(t.Context())
	if err != nil || len(report) != 1 || !strings.Contains(report[0], "nothing to do") {
		t.Errorf("the older binary migrates after the newer: %q, %v", report, err)
	}
	callers(openUnmigrated(t, dsn)) // the older binary is restarted
	callers(postgres.Newer(openUnmigrated(t, dsn), text))

	for i := range 20 {
		id := fmt.Sprint("id ", i)
		for j, s := range []*postgres.Store{old, newer, old} {
			d, err := limiter(s).Once(id, time.Hour).Take(t.Context(),
				headgate.Charge{Limit: limit, Key: "once"})
			if err != nil || !d.Allowed || d.Replayed != (j > 0) {
				t.Errorf("%s, %d: %+v, %v", id, j, d, err)
			}
		}
	}
	d, err := limiter(old).Check(t.Context(), headgate.Charge{Limit: limit, Key: "once"})
	if err != nil || d.Remaining != most-20 {
		t.Errorf("%+v, %v; want 20 charged", d, err)
	}

	await.Until(t, "all to be admitted", func() bool { return admitted.Load() >= most })
	enough := asked.Load() + 50
	await.Until(t, "requests that are refused", func() bool { return asked.Load() > enough || t.Failed() })
	close(end)
	wg.Wait()
	if n := admitted.Load(); n != most {
		t.Errorf("%d were admitted of %d", n, most)
	}

	fresh := dbtest.Postgres(t)
	if _, err := postgres.Newer(openUnmigrated(t, fresh), text).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	sameFunctions(t, functionHashes(t, dsn), functionHashes(t, fresh))
}

// TestABinaryOfAnotherStateIsRefused migrates by a binary for which the rows have another meaning. The
// older binary charges nothing from then on, running or restarted.
func TestABinaryOfAnotherStateIsRefused(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Postgres(t)
	old := openAt(t, dsn)
	limit := headgate.MustParse("fixed-window 9/30d")
	if _, err := limiter(old).Allow(t.Context(), limit, "k"); err != nil {
		t.Fatal(err)
	}
	later := postgres.Later(openUnmigrated(t, dsn))
	if _, err := limiter(later).Allow(t.Context(), limit, "k"); !errors.Is(err, store.ErrSetup) {
		t.Errorf("before it has migrated: %v", err)
	}
	if _, err := later.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := limiter(old).Allow(t.Context(), limit, "k"); !errors.Is(err, store.ErrSetup) {
		t.Errorf("a running older binary: %v", err)
	}
	for _, s := range []*postgres.Store{old, openUnmigrated(t, dsn)} {
		if _, err := limiter(s).Allow(t.Context(), limit, "k"); !errors.Is(err, store.ErrSchemaNewer) {
			t.Errorf("an older binary: %v", err)
		}
		if _, err := s.Migrate(t.Context()); !errors.Is(err, store.ErrSchemaNewer) {
			t.Errorf("an older binary migrates: %v", err)
		}
	}
	d, err := limiter(later).Check(t.Context(), headgate.Charge{Limit: limit, Key: "k"})
	if err != nil || d.Remaining != 8 {
		t.Errorf("%+v, %v; want one charge", d, err)
	}
}

// TestASchemaThatNoReleaseHasMadeIsRefused, until it is removed.
func TestASchemaThatNoReleaseHasMadeIsRefused(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Postgres(t)
	openAt(t, dsn)
	execute(t, dsn, `update headgate.installed set state = 3, revision = 1`)
	s := openUnmigrated(t, dsn)
	_, err := limiter(s).Allow(t.Context(), headgate.MustParse("fixed-window 9/30d"), "k")
	_, migrating := s.Migrate(t.Context())
	for _, err := range []error{err, migrating} {
		if !errors.Is(err, store.ErrSetup) || !strings.Contains(err.Error(), "migrate --remove, then migrate again") {
			t.Errorf("%v", err)
		}
	}
	if _, err := connect(t, dsn).Exec(t.Context(), postgres.Schema()); err == nil ||
		!strings.Contains(err.Error(), "from before the first release") {
		t.Errorf("the printed schema: %v", err)
	}
	if err := s.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestFunctionsAreRepaired changes functions by hand, and by a developer who did not raise the
// revision.
func TestFunctionsAreRepaired(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	fresh := dbtest.Postgres(t)
	openAt(t, fresh)
	want := functionHashes(t, fresh)
	for name, spoil := range map[string]func(t *testing.T, dsn string){
		"replaced": func(t *testing.T, dsn string) {
			execute(t, dsn, `create or replace function headgate_internal.retry_after_1(res bigint[]) returns interval language sql as 'select interval ''1 s'''`)
		},
		"dropped": func(t *testing.T, dsn string) { execute(t, dsn, `drop function headgate.release`) },
		"edited": func(t *testing.T, dsn string) {
			report, err := postgres.Edited(openUnmigrated(t, dsn)).Migrate(t.Context())
			if err != nil || !strings.Contains(strings.Join(report, "\n"), "repaired") {
				t.Errorf("%q, %v", report, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := dbtest.Postgres(t)
			openAt(t, dsn)
			spoil(t, dsn)
			report, err := openUnmigrated(t, dsn).Migrate(t.Context())
			if err != nil || len(report) != 1 || !strings.Contains(report[0], "repaired the functions of revision") {
				t.Errorf("%q, %v", report, err)
			}
			sameFunctions(t, functionHashes(t, dsn), want)
			report, err = openUnmigrated(t, dsn).Migrate(t.Context())
			if err != nil || len(report) != 1 || !strings.Contains(report[0], "nothing to do") {
				t.Errorf("again: %q, %v", report, err)
			}
		})
	}
}

func execute(t *testing.T, dsn, statement string) {
	t.Helper()
	if _, err := connect(t, dsn).Exec(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}
