package mysql_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/internal/testing/revisiontest"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
)

// TestRevisionIsRaised checks that the revision is raised when a procedure changes. Package revisiontest says what to
// do when it fails.
func TestRevisionIsRaised(t *testing.T) {
	revisiontest.Check(t, mysql.Revision, mysql.Fingerprint)
}

// procedureSums returns a checksum of each procedure of a database, by name.
func procedureSums(t *testing.T, url string) map[string]string {
	t.Helper()
	rows, err := openPlainDB(t, url).QueryContext(t.Context(), `SELECT routine_name, SHA2(routine_definition, 256) FROM information_schema.routines
		WHERE routine_schema = DATABASE() AND routine_type = 'PROCEDURE'`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	sums := make(map[string]string)
	for rows.Next() {
		var name, sum string
		if err := rows.Scan(&name, &sum); err != nil {
			t.Fatal(err)
		}
		sums[name] = sum
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return sums
}

// TestBinariesOfTwoRevisionsWorkSideBySide checks that callers of an older binary, and of SQL, get no error while a
// newer binary migrates and charges, and while either is restarted, that admissions are exact, and that a request that
// is repeated at the other binary is charged once. MySQL cannot replace a procedure in one step: there a call may find
// none (1305) while the newer binary migrates.
func TestBinariesOfTwoRevisionsWorkSideBySide(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	url := dbtest.MariaDB(t)
	olderStore := openAndMigrate(t, url)
	isMariaDB := strings.Contains(rowText(t, openPlainDB(t, url), "SELECT VERSION()"), "MariaDB")
	limit := headgate.MustParse("fixed-window 1000000/30d")
	charge := headgate.Charge{Limit: limit, Key: "k"}

	var admitted atomic.Int64
	end := make(chan struct{})
	var wg sync.WaitGroup
	// start starts a caller who takes until the end of the test, and returns after 20 admissions.
	start := func(take func() (bool, error)) {
		var admissions atomic.Int64
		wg.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
				}
				switch allowed, err := take(); {
				case err != nil && !isMariaDB && strings.Contains(err.Error(), "1305"):
				case err != nil:
					t.Error(err)
					return
				case allowed:
					admitted.Add(1)
					admissions.Add(1)
				default:
					t.Error("got a refusal, want none")
				}
			}
		})
		await.Until(t, "20 admissions", func() bool { return admissions.Load() >= 20 || t.Failed() })
	}
	startCaller := func(s *mysql.Store) {
		l := newLimiter(s)
		start(func() (bool, error) { d, err := l.Take(context.Background(), charge); return d.Allowed, err })
	}
	startCaller(olderStore)
	db := openPlainDB(t, url)
	start(func() (bool, error) {
		n, err := firstNumber(db, "CALL headgate_take('"+limit.String()+"', 'k', 1)")
		return n == 1, err
	})
	newerStore := mysql.WithNewerRevision(openStore(t, url))
	report, err := newerStore.Migrate(t.Context())
	if err != nil || !strings.Contains(strings.Join(report, "\n"), "installed the procedures of revision ") {
		t.Fatalf("Migrate: got %q, %v; want the procedures installed", report, err)
	}
	startCaller(newerStore)
	report, err = olderStore.Migrate(t.Context())
	if err != nil || len(report) != 1 || !strings.Contains(report[0], "nothing to do") {
		t.Errorf("Migrate by the older binary: got %q, %v; want nothing to do", report, err)
	}
	startCaller(openStore(t, url)) // the older binary, restarted
	startCaller(mysql.WithNewerRevision(openStore(t, url)))

	for i := range 20 {
		id := fmt.Sprint("id ", i)
		for j, s := range []*mysql.Store{olderStore, newerStore, olderStore} {
			d, err := newLimiter(s).Once(id, time.Hour).Take(t.Context(),
				headgate.Charge{Limit: limit, Key: "once"})
			if err != nil || !d.Allowed || d.Replayed != (j > 0) {
				t.Errorf("%s, attempt %d: got %+v, %v; want replayed: %v", id, j, d, err, j > 0)
			}
		}
		_, err := firstNumber(db, "CALL headgate_take_once('"+id+"', '"+limit.String()+"', 'once', 1, 3600)")
		if err != nil {
			t.Error(err)
		}
	}
	close(end)
	wg.Wait()
	for key, charged := range map[string]int64{"once": 20, "k": admitted.Load()} {
		d, err := newLimiter(olderStore).Check(t.Context(), headgate.Charge{Limit: limit, Key: key})
		if err != nil || d.Remaining != 1_000_000-charged {
			t.Errorf("%s: got %+v, %v; want %d charged", key, d, err, charged)
		}
	}
	freshURL := dbtest.MariaDB(t)
	if _, err := mysql.WithNewerRevision(openStore(t, freshURL)).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := procedureSums(t, url), procedureSums(t, freshURL); !maps.Equal(got, want) {
		t.Errorf("got the procedures\n%v\nwant the procedures of a fresh database\n%v", got, want)
	}
}

// TestOlderBinaryRefusesANewerState checks that after a migration by a binary for which the rows have another meaning,
// an older binary that starts returns ErrSchemaNewer and charges nothing.
func TestOlderBinaryRefusesANewerState(t *testing.T) {
	t.Parallel()
	url := dbtest.MariaDB(t)
	openAndMigrate(t, url)
	limit := headgate.MustParse("fixed-window 9/30d")
	newerStore := mysql.WithNewerState(openStore(t, url))
	if _, err := newLimiter(newerStore).Allow(t.Context(), limit, "k"); !errors.Is(err, store.ErrSetup) {
		t.Errorf("the newer binary before Migrate: got %v, want ErrSetup", err)
	}
	if _, err := newerStore.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	olderStore := openStore(t, url)
	if _, err := newLimiter(olderStore).Allow(t.Context(), limit, "k"); !errors.Is(err, store.ErrSchemaNewer) {
		t.Errorf("Allow by the older binary: got %v, want ErrSchemaNewer", err)
	}
	if _, err := olderStore.Migrate(t.Context()); !errors.Is(err, store.ErrSchemaNewer) {
		t.Errorf("Migrate by the older binary: got %v, want ErrSchemaNewer", err)
	}
}

// TestUnreleasedSchemaIsRefused checks that Allow and Migrate return ErrSetup for a schema that no release has made,
// until Remove removes it.
func TestUnreleasedSchemaIsRefused(t *testing.T) {
	t.Parallel()
	url := dbtest.MariaDB(t)
	openAndMigrate(t, url)
	mustExec(t, openPlainDB(t, url), "UPDATE headgate_installed SET state = 1, revision = 1")
	mustExec(t, openPlainDB(t, url), "INSERT INTO headgate_schema_version (version) VALUES (3), (4), (5), (6)")
	s := openStore(t, url)
	_, allowErr := newLimiter(s).Allow(t.Context(), headgate.MustParse("fixed-window 9/30d"), "k")
	_, migrateErr := s.Migrate(t.Context())
	for _, err := range []error{allowErr, migrateErr} {
		if !errors.Is(err, store.ErrSetup) || !strings.Contains(err.Error(), "migrate --remove, then migrate again") {
			t.Errorf("got %v, want ErrSetup with migrate --remove", err)
		}
	}
	if err := s.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestMigrateRepairsProcedures checks that Migrate makes procedures again that were replaced or dropped by hand.
func TestMigrateRepairsProcedures(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	url := migrated.MariaDB(t)
	want := procedureSums(t, url)
	procedure := mysql.WithRevision("headgate_print")
	for name, damage := range map[string][]string{
		"replaced": {"DROP PROCEDURE " + procedure, "CREATE PROCEDURE " + procedure + "() SELECT 1"},
		"dropped":  {"DROP PROCEDURE headgate_release"},
	} {
		for _, statement := range damage {
			mustExec(t, openPlainDB(t, url), statement)
		}
		for _, wantReport := range []string{"repaired the procedures of revision", "nothing to do"} {
			report, err := openStore(t, url).Migrate(t.Context())
			if err != nil || len(report) != 1 || !strings.Contains(report[0], wantReport) {
				t.Errorf("%s: got %q, %v; want %s", name, report, err, wantReport)
			}
		}
		if got := procedureSums(t, url); !maps.Equal(got, want) {
			t.Errorf("%s: got the procedures\n%v\nwant the procedures from before\n%v", name, got, want)
		}
	}
}
