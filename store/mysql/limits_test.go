package mysql_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/storetest"
)

// TestMigrateReportsUnusableLimits checks, at a server without time zone tables, that limits that SQL cannot use are
// refused by WriteCatalog and by the tables, and that Migrate reports those that came in without triggers.
func TestMigrateReportsUnusableLimits(t *testing.T) {
	t.Parallel()
	url := dbtest.MariaDBAt(t, packageServer(t))[0]
	s := openAndMigrate(t, url)
	db := openPlainDB(t, url)
	storetest.Define(t, s, store.Item{Name: "kept", Text: "token-bucket 1/s"},
		store.Item{Name: "utc", Text: "fixed-window 3/day"})
	login := store.Item{Name: "login", Text: "sliding-log 5/1m", Note: "für alle"}
	const noZones = "export: time zone: the server does not know Europe/Berlin: load its time zone tables " +
		"(mariadb-tzinfo-to-sql or mysql_tzinfo_to_sql)"
	const noPeriod = `none: period: "fortnight" is not a length of time such as 30s, 15m or 30d`
	for _, tt := range []struct{ name, rule, want string }{
		{"export", "fixed-window 3/day Europe/Berlin", noZones},
		{
			"kept", "slidin-log 5/1m",
			`kept: algorithm: "slidin-log" is not known; known are token-bucket, leaky-bucket, gcra, fixed-window, ` +
				`interval, sliding-window, sli...`,
		},
		{"none", "token-bucket 5/fortnight", noPeriod},
	} {
		err := storetest.TryDefine(t.Context(), s, login, store.Item{Name: tt.name, Text: tt.rule})
		if !errors.Is(err, store.ErrInvalid) || !strings.HasSuffix(err.Error(), ": limit "+tt.want) {
			t.Errorf("%s: got %v, want %s", tt.rule, err, tt.want)
		}
		_, err = db.ExecContext(t.Context(), "REPLACE INTO headgate_limits (name, rule) VALUES (?, ?)", tt.name,
			tt.rule)
		if _, problem, _ := strings.Cut(tt.want, ": "); err == nil || !strings.HasSuffix(err.Error(), problem) {
			t.Errorf("%s by hand: got %v, want %s", tt.rule, err, problem)
		}
	}
	if v := len(versionsOf(t, s)); v != 1 {
		t.Errorf("got %d versions, want 1", v)
	}
	storetest.Define(t, s, login)
	// Without triggers the table accepts unusable limits.
	conn := openSession(t, url)
	mustExec(t, conn, "DROP TRIGGER headgate_limits_before_insert; SET @hg_catalog = 1; "+
		"INSERT INTO headgate_limits (name, rule) VALUES "+
		"('export', 'fixed-window 3/day Europe/Berlin'), ('none', 'token-bucket 5/fortnight')")
	for name, allowed := range map[string]bool{"login": true, "kept": true, "utc": true, "export": false} {
		if got, err := callTake(t, db, "headgate_take", name, "k", "1"); (err == nil && got.allowed == 1) != allowed {
			t.Errorf("headgate_take of %s: got %+v, %v; want allowed: %v", name, got, err, allowed)
		}
	}
	report, err := s.Migrate(t.Context())
	if err != nil || len(report) != 3 || report[1] != "calls from SQL cannot use limit "+noZones ||
		report[2] != "calls from SQL cannot use limit "+noPeriod {
		t.Errorf("Migrate: got %q, %v; want export and none reported", report, err)
	}
}

// TestTheTableRefusesWhatIsNoLimit checks that headgate_limits accepts the valid rules of the golden file and refuses
// the invalid ones, and that without triggers it still refuses texts that do not look like a rule.
func TestTheTableRefusesWhatIsNoLimit(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	conn := openSession(t, url) // it prepares nothing: see needsRepreparation
	golden, err := os.ReadFile("../../testdata/notations.golden")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(golden)) {
		columns := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		rule, invalid := columns[0], columns[1] == "error"
		if len(rule) > 255 {
			continue
		}
		_, err := conn.ExecContext(t.Context(), "REPLACE INTO headgate_limits (name, rule) VALUES ('a', ?)", rule)
		if (err != nil) != invalid {
			t.Errorf("%q: got %v, want an error: %v", rule, err, invalid)
		}
	}
	mustExec(t, conn, "DROP TRIGGER headgate_limits_before_insert")
	for _, rule := range []string{
		"", "nonsense", "slidin-log 5/1m", "token-bucket", "token-bucket many/s",
		"token-bucket -1/s", "token-bucket 1/s; drop", "-10/s", "unlimited 5",
	} {
		_, err := conn.ExecContext(t.Context(), "INSERT INTO headgate_limits (name, rule) VALUES ('b', '"+rule+"')")
		if err == nil || !strings.Contains(err.Error(), "headgate_rule_is_a_limit") {
			t.Errorf("%q: got %v, want headgate_rule_is_a_limit", rule, err)
		}
	}
	if _, err := openStore(t, url).Migrate(t.Context()); err != nil { // makes the trigger again, for other tests
		t.Error(err)
	}
}
