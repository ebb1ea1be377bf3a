package mysql_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/storetest"
)

// triggerNames are the names of all triggers that Migrate makes.
var triggerNames = []string{
	"headgate_limits_before_insert", "headgate_limits_before_update",
	"headgate_limits_after_insert", "headgate_limits_after_update", "headgate_limits_after_delete",
	"headgate_catalog_before_insert", "headgate_catalog_before_update",
	"headgate_catalog_after_insert", "headgate_catalog_after_update", "headgate_catalog_after_delete",
	"headgate_zones_after_insert", "headgate_zones_after_update", "headgate_zones_after_delete",
	"headgate_buckets_after_insert", "headgate_buckets_after_update", "headgate_buckets_after_delete",
}

// TestMigrateCompletesAPartialCatalog checks that Migrate adds missing tables, rows and triggers of the catalog, and
// that existing limits stay and are in the catalog.
func TestMigrateCompletesAPartialCatalog(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	const dropTables = "DROP TABLE headgate_versions, headgate_catalog_version, headgate_changes; "
	url := dbtest.MariaDB(t)
	openAndMigrate(t, url)
	for name, damage := range map[string]string{
		"no table":         dropTables + "DROP TABLE headgate_catalog",
		"one table":        dropTables,
		"an empty table":   "DELETE FROM headgate_catalog_version",
		"all but a record": "DO 0",
	} {
		t.Run(name, func(t *testing.T) {
			conn := openSession(t, url)
			for _, trigger := range triggerNames {
				mustExec(t, conn, "DROP TRIGGER "+trigger)
			}
			mustExec(t, conn, "DELETE FROM headgate_limits; DELETE FROM headgate_versions; DELETE FROM headgate_changes; "+
				"UPDATE headgate_catalog_version SET version = 0")
			mustExec(t, conn, damage)
			mustExec(t, conn, "DELETE FROM headgate_schema_version WHERE version >= 2; "+
				"INSERT INTO headgate_limits (name, rule, description) VALUES ('login', 'gcra 1/s', 'kept')")
			s := openStore(t, url)
			if _, err := s.ReadCatalog(t.Context(), 0); !errors.Is(err, store.ErrSetup) {
				t.Errorf("ReadCatalog before Migrate: got %v, want ErrSetup", err)
			}
			want := []string{"applied tables/002_catalog.sql", "installed the triggers"}
			if report, err := s.Migrate(t.Context()); err != nil || !slices.Equal(report, want) {
				t.Errorf("Migrate: got %q, %v; want %q", report, err, want)
			}
			got, err := s.ReadCatalog(t.Context(), 0)
			login := store.Item{Kind: store.KindLimit, Name: "login", Text: "gcra 1/s", Note: "kept"}
			if err != nil || got.Version != 0 || !slices.Equal(got.Items, []store.Item{login}) {
				t.Errorf("ReadCatalog: got %+v, %v; want version 0 with %+v", got, err, login)
			}
			storetest.Define(t, s, store.Item{Name: "api", Text: "gcra 2/s"})
			mustExec(t, conn, "UPDATE headgate_limits SET origin = 'x' WHERE name = 'api'")
			if n := len(versionsOf(t, s)); n != 2 {
				t.Errorf("got %d versions, want 2", n)
			}
		})
	}
}

// TestMigrateRepairsTriggers checks that Migrate makes triggers again that were dropped or changed by hand.
func TestMigrateRepairsTriggers(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	url := migrated.MariaDB(t)
	s, conn := openStore(t, url), openSession(t, url)
	for _, damage := range []string{
		"DROP TRIGGER headgate_limits_after_delete",
		"DROP TRIGGER headgate_limits_before_insert; " +
			"CREATE TRIGGER headgate_limits_before_insert BEFORE INSERT ON headgate_limits FOR EACH ROW SET @x = 1",
	} {
		mustExec(t, conn, damage)
		for _, want := range []string{"installed the triggers", "nothing to do"} {
			report, err := s.Migrate(t.Context())
			if err != nil || len(report) != 1 || !strings.Contains(report[0], want) {
				t.Errorf("Migrate: got %q, %v; want %s", report, err, want)
			}
		}
	}
	_, err := conn.ExecContext(t.Context(), "INSERT INTO headgate_limits (name, rule) VALUES ('a', 'gcra 0/s')")
	if err == nil {
		t.Error("INSERT of an invalid rule: got no error")
	}
}

// TestMigrateWithoutTheRightToMakeTriggers checks that Migrate reports the missing right of its user, makes all but the
// triggers, and that WriteCatalog then works and checks limits.
func TestMigrateWithoutTheRightToMakeTriggers(t *testing.T) {
	t.Parallel()
	url := dbtest.MariaDB(t)
	admin := openPlainDB(t, url)
	name := url[strings.LastIndex(url, "/")+1:]
	user := "t" + strings.TrimPrefix(name, "headgate_test")
	createUser(t, admin, user, "right")
	mustExec(t, admin, "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, CREATE ROUTINE, ALTER ROUTINE, EXECUTE, "+
		"CREATE VIEW, SHOW VIEW ON "+name+".* TO "+user)
	s := openStore(t, strings.Replace(url, "root@", user+":right@", 1))
	for range 2 {
		report, err := s.Migrate(t.Context())
		text := strings.Join(report, "\n")
		hasReason := strings.Contains(text, "TRIGGER command denied") || strings.Contains(text, "SUPER privilege")
		if err != nil || strings.Count(text, "left out the triggers: ") != 1 || !hasReason {
			t.Errorf("Migrate: got %q, %v; want the triggers left out, with the reason", report, err)
		}
	}
	storetest.Define(t, s, store.Item{Name: "login", Text: "gcra 1/s"})
	err := storetest.TryDefine(t.Context(), s, store.Item{Name: "login", Text: "gcra 0/s"})
	if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "limit login: amount: is 0") {
		t.Errorf("an invalid limit: got %v, want ErrInvalid", err)
	}
	if got := versionsOf(t, s); len(got) != 1 || !strings.HasPrefix(got[0].Author, user+"@") {
		t.Errorf("got versions %+v, want one by %s", got, user)
	}
}
