package mysql_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/store"
)

// TestLimitsThatCannotBeUsedAreTold has a server without time zone tables.
func TestLimitsThatCannotBeUsedAreTold(t *testing.T) {
	t.Parallel()
	server, err := dbtest.StartMariaDB(t.Context(), "--skip-log-bin")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	url := dbtest.MariaDBAt(t, server.DSN)[0]
	s := openAt(t, url)
	db := plain(t, url)
	if _, err := s.WriteLimits(t.Context(),
		[]store.NamedLimit{{Name: "kept", Notation: "token-bucket 1/s"}}); err != nil {
		t.Fatal(err)
	}
	warnings, err := s.WriteLimits(t.Context(), []store.NamedLimit{
		{Name: "login", Notation: "sliding-log 5/1m", Description: "für alle"},
		{Name: "export", Notation: "fixed-window 3/day Europe/Berlin"},
		{Name: "kept", Notation: "slidin-log 5/1m"},
		{Name: "none", Notation: "token-bucket 5/fortnight"},
		{Name: "utc", Notation: "fixed-window 3/day"},
	})
	want := []string{
		"export: time zone: the server does not know Europe/Berlin: load its time zone tables (mariadb-tzinfo-to-sql or mysql_tzinfo_to_sql)",
		`kept: algorithm: "slidin-log" is not known; known are token-bucket, leaky-bucket, gcra, fixed-window, interval, sliding-window, sli...`,
		`none: period: "fortnight" is not a length of time such as 30s, 15m or 30d`,
	}
	if err != nil || !slices.Equal(warnings, want) {
		t.Errorf("%v\n got %q\nwant %q", err, warnings, want)
	}
	for name, allowed := range map[string]bool{"login": true, "kept": true, "utc": true, "export": false} {
		if got, err := call(t, db, "headgate_take", name, "k", "1"); (err == nil && got.allowed == 1) != allowed {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	report, err := s.Migrate(t.Context())
	if err != nil || len(report) != 3 || report[1] != "calls from SQL cannot use limit "+want[0] ||
		report[2] != "calls from SQL cannot use limit "+want[2] {
		t.Errorf("migrate: %q, %v", report, err)
	}
}

// TestTheTableRefusesWhatIsNoLimit: and takes whatever is one.
func TestTheTableRefusesWhatIsNoLimit(t *testing.T) {
	t.Parallel()
	db, _ := client(t)
	golden, err := os.ReadFile("../../testdata/notations.golden")
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for line := range strings.Lines(string(golden)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f[0]) > 255 {
			continue
		}
		_, err := db.ExecContext(t.Context(), "REPLACE INTO headgate_limits (name, rule) VALUES ('a', ?)", f[0])
		if err != nil {
			refused++
		}
		if err != nil && f[1] != "error" {
			t.Errorf("%q: %v", f[0], err)
		}
	}
	t.Logf("%d bad ones were refused", refused)
	for _, rule := range []string{
		"", "nonsense", "slidin-log 5/1m", "token-bucket", "token-bucket many/s",
		"token-bucket -1/s", "token-bucket 1/s; drop", "10/s",
	} {
		_, err := db.ExecContext(t.Context(), "INSERT INTO headgate_limits (name, rule) VALUES ('b', ?)", rule)
		if err == nil || !strings.Contains(err.Error(), "headgate_rule_is_a_limit") {
			t.Errorf("%q: %v", rule, err)
		}
	}
}
