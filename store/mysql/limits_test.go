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

// TestUnusableLimitsAreReported uses a server without time zone tables.
func TestUnusableLimitsAreReported(t *testing.T) {
	t.Parallel()
	url := dbtest.MariaDBAt(t, ownServer(t))[0]
	s := openAt(t, url)
	db := plainDB(t, url)
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
			t.Errorf("%s: %v; want %s", tt.rule, err, tt.want)
		}
		_, err = db.ExecContext(t.Context(), "REPLACE INTO headgate_limits (name, rule) VALUES (?, ?)", tt.name,
			tt.rule)
		if _, problem, _ := strings.Cut(tt.want, ": "); err == nil || !strings.HasSuffix(err.Error(), problem) {
			t.Errorf("%s by hand: %v; want %s", tt.rule, err, problem)
		}
	}
	if v := len(versionsOf(t, s)); v != 1 {
		t.Errorf("%d versions, want 1", v)
	}
	storetest.Define(t, s, login)
	// These came when there were no triggers.
	conn := openSession(t, url)
	execute(t, conn, "DROP TRIGGER headgate_limits_before_insert; SET @hg_catalog = 1; "+
		"INSERT INTO headgate_limits (name, rule) VALUES "+
		"('export', 'fixed-window 3/day Europe/Berlin'), ('none', 'token-bucket 5/fortnight')")
	for name, allowed := range map[string]bool{"login": true, "kept": true, "utc": true, "export": false} {
		if got, err := callTake(t, db, "headgate_take", name, "k", "1"); (err == nil && got.allowed == 1) != allowed {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	report, err := s.Migrate(t.Context())
	if err != nil || len(report) != 3 || report[1] != "calls from SQL cannot use limit "+noZones ||
		report[2] != "calls from SQL cannot use limit "+noPeriod {
		t.Errorf("migrate: %q, %v", report, err)
	}
}

// TestTheTableRefusesWhatIsNoLimit inserts rows that are no limits, and rows that are.
func TestTheTableRefusesWhatIsNoLimit(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	conn := openSession(t, url) // which prepares nothing: see needsRepreparation
	golden, err := os.ReadFile("../../testdata/notations.golden")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(golden)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f[0]) > 255 {
			continue
		}
		_, err := conn.ExecContext(t.Context(), "REPLACE INTO headgate_limits (name, rule) VALUES ('a', ?)", f[0])
		if (err != nil) != (f[1] == "error") {
			t.Errorf("%q: %v", f[0], err)
		}
	}
	// Without the triggers, the table refuses what does not look like a limit.
	execute(t, conn, "DROP TRIGGER headgate_limits_before_insert")
	for _, rule := range []string{
		"", "nonsense", "slidin-log 5/1m", "token-bucket", "token-bucket many/s",
		"token-bucket -1/s", "token-bucket 1/s; drop", "-10/s", "unlimited 5",
	} {
		_, err := conn.ExecContext(t.Context(), "INSERT INTO headgate_limits (name, rule) VALUES ('b', '"+rule+"')")
		if err == nil || !strings.Contains(err.Error(), "headgate_rule_is_a_limit") {
			t.Errorf("%q: %v", rule, err)
		}
	}
	if _, err := openUnmigrated(t, url).Migrate(t.Context()); err != nil { // the database is another test's next
		t.Error(err)
	}
}
