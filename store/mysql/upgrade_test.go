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

// TestRevisionIsRaised: see package revisiontest for what to do when it fails.
func TestRevisionIsRaised(t *testing.T) {
	revisiontest.Check(t, mysql.Revision, mysql.Fingerprint)
}

// proceduresOf returns a checksum of each procedure of a database.
func proceduresOf(t *testing.T, url string) map[string]string {
	t.Helper()
	rows, err := plainDB(t, url).QueryContext(t.Context(), `SELECT routine_name, SHA2(routine_definition, 256) FROM information_schema.routines
		WHERE routine_schema = DATABASE() AND routine_type = 'PROCEDURE'`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	list := make(map[string]string)
	for rows.Next() {
		var name, sum string
		if err := rows.Scan(&name, &sum); err != nil {
			t.Fatal(err)
		}
		list[name] = sum
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return list
}

// TestBinariesOfTwoRevisionsWorkSideBySide lets callers of an older binary, and of SQL, charge while a newer binary
// migrates and begins to work, and while either is restarted. Nobody may see an error, admissions must be exact, and a
// request that is repeated at the other binary is charged once. MySQL cannot replace a procedure in one step: there a
// call may find none (1305) while the newer binary migrates.
func TestBinariesOfTwoRevisionsWorkSideBySide(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	url := dbtest.MariaDB(t)
	old := openAt(t, url)
	mariadb := strings.Contains(answerOf(t, plainDB(t, url), "SELECT VERSION()"), "MariaDB")
	limit := headgate.MustParse("fixed-window 1000000/30d")
	charge := headgate.Charge{Limit: limit, Key: "k"}

	var admitted atomic.Int64
	end := make(chan struct{})
	var wg sync.WaitGroup
	// ask returns once some requests were answered, and goes on.
	ask := func(take func() (bool, error)) {
		var answered atomic.Int64
		wg.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
				}
				switch allowed, err := take(); {
				case err != nil && !mariadb && strings.Contains(err.Error(), "1305"):
				case err != nil:
					t.Error(err)
					return
				case allowed:
					admitted.Add(1)
					answered.Add(1)
				default:
					t.Error("refused")
				}
			}
		})
		await.Until(t, "answers", func() bool { return answered.Load() >= 20 || t.Failed() })
	}
	callers := func(s *mysql.Store) {
		l := limiter(s)
		ask(func() (bool, error) { d, err := l.Take(context.Background(), charge); return d.Allowed, err })
	}
	callers(old)
	db := plainDB(t, url)
	ask(func() (bool, error) {
		n, err := passedBy(db, "CALL headgate_take('"+limit.String()+"', 'k', 1)")
		return n == 1, err
	})
	newer := mysql.Newer(openUnmigrated(t, url))
	report, err := newer.Migrate(t.Context())
	if err != nil || !strings.Contains(strings.Join(report, "\n"), "installed the procedures of revision ") {
		t.Fatalf("%q, %v", report, err)
	}
	callers(newer)
	report, err = old.Migrate(t.Context())
	if err != nil || len(report) != 1 || !strings.Contains(report[0], "nothing to do") {
		t.Errorf("the older binary migrates after the newer: %q, %v", report, err)
	}
	callers(openUnmigrated(t, url)) // started again
	callers(mysql.Newer(openUnmigrated(t, url)))

	for i := range 20 {
		id := fmt.Sprint("id ", i)
		for j, s := range []*mysql.Store{old, newer, old} {
			d, err := limiter(s).Once(id, time.Hour).Take(t.Context(),
				headgate.Charge{Limit: limit, Key: "once"})
			if err != nil || !d.Allowed || d.Replayed != (j > 0) {
				t.Errorf("%s, %d: %+v, %v", id, j, d, err)
			}
		}
		_, err := passedBy(db, "CALL headgate_take_once('"+id+"', '"+limit.String()+"', 'once', 1, 3600)")
		if err != nil {
			t.Error(err)
		}
	}
	close(end)
	wg.Wait()
	for key, charged := range map[string]int64{"once": 20, "k": admitted.Load()} {
		d, err := limiter(old).Check(t.Context(), headgate.Charge{Limit: limit, Key: key})
		if err != nil || d.Remaining != 1_000_000-charged {
			t.Errorf("%s: %+v, %v; want %d charged", key, d, err, charged)
		}
	}
	fresh := dbtest.MariaDB(t)
	if _, err := mysql.Newer(openUnmigrated(t, fresh)).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := proceduresOf(t, url), proceduresOf(t, fresh); !maps.Equal(got, want) {
		t.Errorf("the procedures are\n%v\nand those of a fresh database\n%v", got, want)
	}
}

// TestABinaryOfAnotherStateIsRefused migrates by a binary for which the rows have another meaning: an older one that
// starts then must charge nothing.
func TestABinaryOfAnotherStateIsRefused(t *testing.T) {
	t.Parallel()
	url := dbtest.MariaDB(t)
	openAt(t, url)
	limit := headgate.MustParse("fixed-window 9/30d")
	later := mysql.Later(openUnmigrated(t, url))
	if _, err := limiter(later).Allow(t.Context(), limit, "k"); !errors.Is(err, store.ErrSetup) {
		t.Errorf("before it has migrated: %v", err)
	}
	if _, err := later.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	old := openUnmigrated(t, url)
	if _, err := limiter(old).Allow(t.Context(), limit, "k"); !errors.Is(err, store.ErrSchemaNewer) {
		t.Errorf("an older binary: %v", err)
	}
	if _, err := old.Migrate(t.Context()); !errors.Is(err, store.ErrSchemaNewer) {
		t.Errorf("an older binary migrates: %v", err)
	}
}

// TestASchemaThatNoReleaseHasMadeIsRefused uses such a schema, until it is removed.
func TestASchemaThatNoReleaseHasMadeIsRefused(t *testing.T) {
	t.Parallel()
	url := dbtest.MariaDB(t)
	openAt(t, url)
	run(t, plainDB(t, url), "UPDATE headgate_installed SET state = 1, revision = 1")
	run(t, plainDB(t, url), "INSERT INTO headgate_schema_version (version) VALUES (3), (4), (5), (6)")
	s := openUnmigrated(t, url)
	_, err := limiter(s).Allow(t.Context(), headgate.MustParse("fixed-window 9/30d"), "k")
	_, migrating := s.Migrate(t.Context())
	for _, err := range []error{err, migrating} {
		if !errors.Is(err, store.ErrSetup) || !strings.Contains(err.Error(), "migrate --remove, then migrate again") {
			t.Errorf("%v", err)
		}
	}
	if err := s.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestProceduresAreRepaired changes procedures by hand, and migrates.
func TestProceduresAreRepaired(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	url := migrated.MariaDB(t)
	want := proceduresOf(t, url)
	procedure := mysql.Numbered("headgate_print")
	for name, spoil := range map[string][]string{
		"replaced": {"DROP PROCEDURE " + procedure, "CREATE PROCEDURE " + procedure + "() SELECT 1"},
		"dropped":  {"DROP PROCEDURE headgate_release"},
	} {
		for _, statement := range spoil {
			run(t, plainDB(t, url), statement)
		}
		for _, said := range []string{"repaired the procedures of revision", "nothing to do"} {
			report, err := openUnmigrated(t, url).Migrate(t.Context())
			if err != nil || len(report) != 1 || !strings.Contains(report[0], said) {
				t.Errorf("%s: %q, %v; want %s", name, report, err, said)
			}
		}
		if got := proceduresOf(t, url); !maps.Equal(got, want) {
			t.Errorf("%s: the procedures are\n%v\nand those of a fresh database\n%v", name, got, want)
		}
	}
}
