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

// triggerNames has the catalog's triggers.
var triggerNames = []string{
	"headgate_limits_before_insert", "headgate_limits_before_update",
	"headgate_limits_after_insert", "headgate_limits_after_update", "headgate_limits_after_delete",
	"headgate_catalog_before_insert", "headgate_catalog_before_update",
	"headgate_catalog_after_insert", "headgate_catalog_after_update", "headgate_catalog_after_delete",
	"headgate_zones_after_insert", "headgate_zones_after_update", "headgate_zones_after_delete",
	"headgate_buckets_after_insert", "headgate_buckets_after_update", "headgate_buckets_after_delete",
}

// TestAMigrationThatWasCutOff migrates databases that have no catalog, or a part of it. Limits must stay, and be in the
// catalog.
func TestAMigrationThatWasCutOff(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	const tables = "DROP TABLE headgate_versions, headgate_catalog_version, headgate_changes; "
	url := dbtest.MariaDB(t)
	openAt(t, url)
	for name, undo := range map[string]string{
		"nothing of it":    tables + "DROP TABLE headgate_catalog",
		"one table":        tables,
		"an empty table":   "DELETE FROM headgate_catalog_version",
		"all but a record": "DO 0",
	} {
		t.Run(name, func(t *testing.T) {
			conn := openSession(t, url)
			for _, trigger := range triggerNames {
				execute(t, conn, "DROP TRIGGER "+trigger)
			}
			execute(t, conn, "DELETE FROM headgate_limits; DELETE FROM headgate_versions; DELETE FROM headgate_changes; "+
				"UPDATE headgate_catalog_version SET version = 0")
			execute(t, conn, undo)
			execute(t, conn, "DELETE FROM headgate_schema_version WHERE version >= 2; "+
				"INSERT INTO headgate_limits (name, rule, description) VALUES ('login', 'gcra 1/s', 'kept')")
			s := openUnmigrated(t, url)
			if _, err := s.ReadCatalog(t.Context(), 0); !errors.Is(err, store.ErrSetup) {
				t.Errorf("before: %v", err)
			}
			want := []string{"applied tables/002_catalog.sql", "installed the triggers"}
			if report, err := s.Migrate(t.Context()); err != nil || !slices.Equal(report, want) {
				t.Errorf("%q, %v; want %q", report, err, want)
			}
			got, err := s.ReadCatalog(t.Context(), 0)
			login := store.Item{Kind: store.KindLimit, Name: "login", Text: "gcra 1/s", Note: "kept"}
			if err != nil || got.Version != 0 || !slices.Equal(got.Items, []store.Item{login}) {
				t.Errorf("%+v, %v", got, err)
			}
			storetest.Define(t, s, store.Item{Name: "api", Text: "gcra 2/s"})
			execute(t, conn, "UPDATE headgate_limits SET origin = 'x' WHERE name = 'api'")
			if n := len(versionsOf(t, s)); n != 2 {
				t.Errorf("%d versions", n)
			}
		})
	}
}

// TestTriggersAreRepaired drops and changes triggers by hand, and migrates.
func TestTriggersAreRepaired(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	url := migrated.MariaDB(t)
	s, conn := openUnmigrated(t, url), openSession(t, url)
	for _, spoil := range []string{
		"DROP TRIGGER headgate_limits_after_delete",
		"DROP TRIGGER headgate_limits_before_insert; " +
			"CREATE TRIGGER headgate_limits_before_insert BEFORE INSERT ON headgate_limits FOR EACH ROW SET @x = 1",
	} {
		execute(t, conn, spoil)
		for _, want := range []string{"installed the triggers", "nothing to do"} {
			report, err := s.Migrate(t.Context())
			if err != nil || len(report) != 1 || !strings.Contains(report[0], want) {
				t.Errorf("%q, %v; want %s", report, err, want)
			}
		}
	}
	_, err := conn.ExecContext(t.Context(), "INSERT INTO headgate_limits (name, rule) VALUES ('a', 'gcra 0/s')")
	if err == nil {
		t.Error("a bad rule was written")
	}
}

// TestMigrateWithoutTheRightToMakeTriggers migrates as a user without that right: the report says so, all else is made,
// and the catalog can be edited.
func TestMigrateWithoutTheRightToMakeTriggers(t *testing.T) {
	t.Parallel()
	url := dbtest.MariaDB(t)
	admin := plainDB(t, url)
	name := url[strings.LastIndex(url, "/")+1:]
	user := "t" + strings.TrimPrefix(name, "headgate_test")
	newUser(t, admin, user, "right")
	run(t, admin, "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, CREATE ROUTINE, ALTER ROUTINE, EXECUTE, "+
		"CREATE VIEW, SHOW VIEW ON "+name+".* TO "+user)
	s := openUnmigrated(t, strings.Replace(url, "root@", user+":right@", 1))
	for range 2 {
		report, err := s.Migrate(t.Context())
		told := strings.Join(report, "\n")
		why := strings.Contains(told, "TRIGGER command denied") || strings.Contains(told, "SUPER privilege")
		if err != nil || strings.Count(told, "left out the triggers: ") != 1 || !why {
			t.Errorf("%q, %v", report, err)
		}
	}
	storetest.Define(t, s, store.Item{Name: "login", Text: "gcra 1/s"})
	err := storetest.TryDefine(t.Context(), s, store.Item{Name: "login", Text: "gcra 0/s"})
	if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "limit login: amount: is 0") {
		t.Errorf("a bad limit: %v", err)
	}
	if got := versionsOf(t, s); len(got) != 1 || !strings.HasPrefix(got[0].Author, user+"@") {
		t.Errorf("%+v", got)
	}
}
