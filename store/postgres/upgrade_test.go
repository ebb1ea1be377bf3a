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

// TestRevisionIsRaised fails if a function's text has changed and the revision has not: see package revisiontest.
func TestRevisionIsRaised(t *testing.T) {
	revisiontest.Check(t, postgres.Revision, postgres.Fingerprint)
}

// functionHashes returns the MD5 hash of each function in the schemas headgate, headgate_internal and public.
func functionHashes(t *testing.T, dsn string) map[string]string {
	t.Helper()
	rows, err := connect(t, dsn).Query(t.Context(), `select p.oid::regprocedure::text, md5(pg_get_functiondef(p.oid)) from pg_proc p
		where p.pronamespace in ('headgate'::regnamespace, 'headgate_internal'::regnamespace, 'public'::regnamespace)`)
	if err != nil {
		t.Fatal(err)
	}
	hashes := make(map[string]string)
	var name, hash string
	_, err = pgx.ForEachRow(rows, []any{&name, &hash}, func() error { hashes[name] = hash; return nil })
	if err != nil {
		t.Fatal(err)
	}
	return hashes
}

// checkSameFunctions compares the function hashes of two databases. got may also have functions of layout 2, for
// processes that still call them. It deletes from got.
func checkSameFunctions(t *testing.T, got, want map[string]string) {
	t.Helper()
	maps.DeleteFunc(got, func(name, _ string) bool {
		function, _, _ := strings.Cut(name, "(")
		_, inWant := want[name]
		return !inWant && strings.HasSuffix(function, "_2")
	})
	for name, hash := range want {
		if got[name] != hash {
			t.Errorf("%s: got hash %q, want %q as in a new database", name, got[name], hash)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("got functions that a new database does not have: %v", got)
	}
}

// openUnmigrated opens a store without a migration.
func openUnmigrated(t *testing.T, dsn string) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), dsn, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// adapterSQL returns statements that make 13 functions of layout 2, each of which calls its function of layout 3.
func adapterSQL(t *testing.T, dsn string) string {
	t.Helper()
	var text string
	conn := connect(t, dsn)
	if _, err := conn.Exec(t.Context(), `set search_path = pg_catalog`); err != nil { // names of types get their schema
		t.Fatal(err)
	}
	err := conn.QueryRow(t.Context(), `select string_agg(format(
			'create or replace function headgate_internal.%I(%s) returns %s language sql volatile set search_path = pg_catalog, pg_temp as ''select * from headgate_internal.%I(%s)'';',
			p.proname, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid), replace(p.proname, '_2', '_3'),
			(select string_agg('$' || n, ', ') from generate_series(1, p.pronargs) n)), E'\n')
		from pg_proc p where p.pronamespace = 'headgate_internal'::regnamespace and 
			p.proname = any('{apply_2,apply_plain_2,take_one_2,take_sums_2,take_sums_or_nothing_2,sweep_from_2,
			read_catalog_2,items_2,items_after_2,write_catalog_2,versions_2,record_action_2,actions_2}')`).
		Scan(&text)
	if err != nil || strings.Count(text, "create") != 13 {
		t.Fatalf("got %s, %v; want 13 functions", text, err)
	}
	return text
}

// TestBinariesOfTwoLayoutsWorkSideBySide charges by an older binary and by SQL, while a newer binary migrates and
// charges, and while both are started again. No caller may see an error, the number of admissions must be exact, and a
// request with an id must be charged once if the other binary repeats it.
func TestBinariesOfTwoLayoutsWorkSideBySide(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	dsn := dbtest.Postgres(t)
	oldStore := openAt(t, dsn)
	adapter := adapterSQL(t, dsn)
	const capacity = 1500
	limit := headgate.MustParse(fmt.Sprintf("fixed-window %d/30d", capacity))
	charge := headgate.Charge{Limit: limit, Key: "k"}

	unmigrated := postgres.WithNextLayout(openUnmigrated(t, dsn), adapter)
	if _, err := newLimiter(unmigrated).Take(t.Context(), charge); !errors.Is(err, store.ErrSetup) ||
		!strings.Contains(err.Error(), "run headgate migrate") {
		t.Fatalf("a newer binary before its migration: got %v, want ErrSetup", err)
	}

	var requests, admitted atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	takeUntilStop := func(take func() (bool, error)) {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				requests.Add(1)
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
	startCallers := func(s *postgres.Store) {
		l := newLimiter(s)
		takeUntilStop(func() (bool, error) { d, err := l.Take(t.Context(), charge); return d.Allowed, err })
		takeUntilStop(func() (bool, error) { // two charges in a request
			d, err := l.Take(t.Context(), charge,
				headgate.Charge{Limit: limit, Key: "other " + fmt.Sprint(time.Now().UnixNano())})
			return d.Allowed, err
		})
	}
	startCallers(oldStore)
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	takeUntilStop(func() (allowed bool, err error) {
		err = pool.QueryRow(t.Context(), `select allowed from headgate.take($1, 'k')`, limit.String()).Scan(&allowed)
		return allowed, err
	})

	await.Until(t, "callers of the older binary", func() bool { return admitted.Load() > 50 })
	newStore := postgres.WithNextLayout(openUnmigrated(t, dsn), adapter)
	report, err := newStore.Migrate(t.Context())
	if err != nil || !strings.Contains(strings.Join(report, "\n"), fmt.Sprint("installed the functions of revision ", postgres.Revision+1)) {
		t.Fatalf("Migrate of the newer binary: got %q, %v; want revision %d", report, err, postgres.Revision+1)
	}
	startCallers(newStore)
	report, err = oldStore.Migrate(t.Context())
	if err != nil || len(report) != 1 || !strings.Contains(report[0], "nothing to do") {
		t.Errorf("a later Migrate of the older binary: got %q, %v; want nothing to do", report, err)
	}
	startCallers(openUnmigrated(t, dsn)) // the older binary is started again
	startCallers(postgres.WithNextLayout(openUnmigrated(t, dsn), adapter))

	for i := range 20 {
		id := fmt.Sprint("id ", i)
		for j, s := range []*postgres.Store{oldStore, newStore, oldStore} {
			d, err := newLimiter(s).Once(id, time.Hour).Take(t.Context(),
				headgate.Charge{Limit: limit, Key: "once"})
			if err != nil || !d.Allowed || d.Replayed != (j > 0) {
				t.Errorf("%s, request %d: got %+v, %v; want replayed %t", id, j, d, err, j > 0)
			}
		}
	}
	d, err := newLimiter(oldStore).Check(t.Context(), headgate.Charge{Limit: limit, Key: "once"})
	if err != nil || d.Remaining != capacity-20 {
		t.Errorf("Check: got %+v, %v; want %d remaining", d, err, capacity-20)
	}

	await.Until(t, "all admissions", func() bool { return admitted.Load() >= capacity })
	minRequests := requests.Load() + 50
	await.Until(t, "refused requests", func() bool { return requests.Load() > minRequests || t.Failed() })
	close(stop)
	wg.Wait()
	if n := admitted.Load(); n != capacity {
		t.Errorf("got %d admissions, want %d", n, capacity)
	}

	fresh := dbtest.Postgres(t)
	if _, err := postgres.WithNextLayout(openUnmigrated(t, fresh), adapter).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkSameFunctions(t, functionHashes(t, dsn), functionHashes(t, fresh))
}

// TestABinaryOfAnotherStateIsRefused migrates by a binary for which the rows have another meaning. From then on the
// older binary must charge nothing, whether it runs already or is restarted.
func TestABinaryOfAnotherStateIsRefused(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Postgres(t)
	oldStore := openAt(t, dsn)
	limit := headgate.MustParse("fixed-window 9/30d")
	if _, err := newLimiter(oldStore).Allow(t.Context(), limit, "k"); err != nil {
		t.Fatal(err)
	}
	newStore := postgres.WithNextState(openUnmigrated(t, dsn))
	if _, err := newLimiter(newStore).Allow(t.Context(), limit, "k"); !errors.Is(err, store.ErrSetup) {
		t.Errorf("the newer binary before its migration: got %v, want ErrSetup", err)
	}
	if _, err := newStore.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := newLimiter(oldStore).Allow(t.Context(), limit, "k"); !errors.Is(err, store.ErrSetup) {
		t.Errorf("the running older binary: got %v, want ErrSetup", err)
	}
	for _, s := range []*postgres.Store{oldStore, openUnmigrated(t, dsn)} {
		if _, err := newLimiter(s).Allow(t.Context(), limit, "k"); !errors.Is(err, store.ErrSchemaNewer) {
			t.Errorf("Allow of the older binary: got %v, want ErrSchemaNewer", err)
		}
		if _, err := s.Migrate(t.Context()); !errors.Is(err, store.ErrSchemaNewer) {
			t.Errorf("Migrate of the older binary: got %v, want ErrSchemaNewer", err)
		}
	}
	d, err := newLimiter(newStore).Check(t.Context(), headgate.Charge{Limit: limit, Key: "k"})
	if err != nil || d.Remaining != 8 {
		t.Errorf("Check: got %+v, %v; want 8 remaining", d, err)
	}
}

// TestSchemaFromBeforeTheFirstReleaseIsErrSetup checks that Allow, Migrate and the printed schema refuse such a schema.
func TestSchemaFromBeforeTheFirstReleaseIsErrSetup(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Postgres(t)
	openAt(t, dsn)
	execStatement(t, dsn, `update headgate.installed set state = 3, revision = 1`)
	s := openUnmigrated(t, dsn)
	_, allowErr := newLimiter(s).Allow(t.Context(), headgate.MustParse("fixed-window 9/30d"), "k")
	_, migrateErr := s.Migrate(t.Context())
	for _, err := range []error{allowErr, migrateErr} {
		if !errors.Is(err, store.ErrSetup) || !strings.Contains(err.Error(), "migrate --remove, then migrate again") {
			t.Errorf("got %v, want ErrSetup with the remedy", err)
		}
	}
	if _, err := connect(t, dsn).Exec(t.Context(), postgres.Schema()); err == nil ||
		!strings.Contains(err.Error(), "from before the first release") {
		t.Errorf("the printed schema: got %v, want an error", err)
	}
	if err := s.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Errorf("Migrate after Remove: %v", err)
	}
}

// TestMigrateRepairsFunctions changes functions from SQL, and by a binary with other functions of the same revision.
func TestMigrateRepairsFunctions(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	fresh := dbtest.Postgres(t)
	openAt(t, fresh)
	want := functionHashes(t, fresh)
	for name, change := range map[string]func(t *testing.T, dsn string){
		"replaced": func(t *testing.T, dsn string) {
			execStatement(t, dsn, `create or replace function headgate_internal.retry_after_2(res bigint[]) returns interval language sql as 'select interval ''1 s'''`)
		},
		"dropped": func(t *testing.T, dsn string) { execStatement(t, dsn, `drop function headgate.release`) },
		"edited": func(t *testing.T, dsn string) {
			report, err := postgres.WithEditedFunctions(openUnmigrated(t, dsn)).Migrate(t.Context())
			if err != nil || !strings.Contains(strings.Join(report, "\n"), "repaired") {
				t.Errorf("Migrate of edited functions: got %q, %v; want repaired", report, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := dbtest.Postgres(t)
			openAt(t, dsn)
			change(t, dsn)
			report, err := openUnmigrated(t, dsn).Migrate(t.Context())
			if err != nil || len(report) != 1 || !strings.Contains(report[0], "repaired the functions of revision") {
				t.Errorf("Migrate: got %q, %v; want repaired", report, err)
			}
			checkSameFunctions(t, functionHashes(t, dsn), want)
			report, err = openUnmigrated(t, dsn).Migrate(t.Context())
			if err != nil || len(report) != 1 || !strings.Contains(report[0], "nothing to do") {
				t.Errorf("second Migrate: got %q, %v; want nothing to do", report, err)
			}
		})
	}
}

// execStatement executes a statement in a session of its own.
func execStatement(t *testing.T, dsn, statement string) {
	t.Helper()
	if _, err := connect(t, dsn).Exec(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}
