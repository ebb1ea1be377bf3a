package mysql_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
)

// listItems returns the items that ReadCatalog returns, ordered by name.
func listItems(tb testing.TB, s *mysql.Store) ([]store.Item, error) {
	tb.Helper()
	c, err := s.ReadCatalog(tb.Context(), 0)
	slices.SortFunc(c.Items, func(a, b store.Item) int { return strings.Compare(a.Name, b.Name) })
	return c.Items, err
}

// TestZonesAreLimits checks that rows of headgate_zones are limits of the catalog, by which check_velocity and the
// other procedures decide, and which are changed and removed with their rows.
func TestZonesAreLimits(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	s := openStore(t, url)
	conn := openSession(t, url)
	mustExec(t, conn, "INSERT INTO headgate_zones (id, description, rate, window_seconds) "+
		"VALUES (1, 'log-ins', 1, 3600), (2, '', 5, 60)")
	mustExec(t, conn, "UPDATE headgate_zones SET rate = 2, history_days = 0 WHERE id = 2")
	mustExec(t, conn, "UPDATE headgate_zones SET id = 3 WHERE id = 2")
	got, err := listItems(t, s)
	want := []store.Item{
		{
			Kind: store.KindLimit, Name: "zone.1", Text: "sliding-log 1/3600s history 30d", Note: "log-ins",
			Origin: "zone",
		},
		{Kind: store.KindLimit, Name: "zone.3", Text: "sliding-log 2/60s", Origin: "zone"},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("got %+v, %v; want %+v", got, err, want)
	}
	for _, tt := range []struct{ text, want string }{
		{"CALL check_velocity(1, 'bob')", "blocked=0 "},
		{"CALL check_velocity(1, 'bob')", "blocked=1 "},
		{"SELECT used FROM headgate_levels WHERE limit_name = 'zone.1' AND `key` = 'bob'", "used=1.000000"},
		{"CALL headgate_check('zone.1', 'bob', 1)", "allowed=0 remaining=0 "},
		{"CALL headgate_reset('zone.1', 'bob')", "existed=1"},
		{"CALL check_velocity(1, 'bob')", "blocked=0 "},
		{"CALL headgate_block('zone.1', 'carol', 3600, 'a robot')", "blocked_until="},
		{"CALL check_velocity(1, 'carol')", "blocked=1 "},
	} {
		if got := rowText(t, conn, tt.text); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: got %s, want %s", tt.text, got, tt.want)
		}
	}
	expectRuleLocked(t, url, "zone.1", "change headgate_zones")
	mustExec(t, conn, "DELETE FROM headgate_zones WHERE id = 1")
	if got, err := listItems(t, s); err != nil || !slices.Equal(got, want[1:]) {
		t.Errorf("after one zone was removed: got %+v, %v; want %+v", got, err, want[1:])
	}
}

// TestBucketsAreLimits checks that rows of headgate_buckets are limits of the catalog, except those with an id that
// cannot be a part of a limit's name, and that request_token decides by these rows too.
func TestBucketsAreLimits(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	s := openStore(t, url)
	conn := openSession(t, url)
	longID := strings.Repeat("x", 57) // with bucket. it has 64 characters, as many as a name may have
	mustExec(t, conn, "INSERT INTO headgate_buckets (id, capacity, refill_seconds) VALUES "+
		"('mail', 1, 3600), ('a.b-c', 2, 0.5), "+
		"('none', 0, 1), ('Mail', 1, 1), ('a b', 1, 3600), ('', 1, 1), ('"+longID+"', 1, 1), ('x"+longID+"', 1, 1)")
	mustExec(t, conn, "UPDATE headgate_buckets SET capacity = 3 WHERE id = 'a.b-c'")
	mustExec(t, conn, "UPDATE headgate_buckets SET id = 'Other' WHERE id = '"+longID+"'")
	got, err := listItems(t, s)
	want := []store.Item{
		{Kind: store.KindLimit, Name: "bucket.a.b-c", Text: "fixed-window 3/500ms from-first", Origin: "bucket"},
		{Kind: store.KindLimit, Name: "bucket.mail", Text: "fixed-window 1/1h from-first", Origin: "bucket"},
		{Kind: store.KindLimit, Name: "bucket.none", Text: "0", Origin: "bucket"},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("got %+v, %v; want %+v", got, err, want)
	}
	for _, tt := range []struct{ text, want string }{
		{"CALL request_token('mail')", "granted=1 "},
		{"CALL request_token('mail')", "granted=0 "},
		{"SELECT used FROM headgate_levels WHERE limit_name = 'bucket.mail' AND `key` = 'mail'", "used=1.000000"},
		{"CALL headgate_check('bucket.mail', 'mail', 1)", "allowed=0 remaining=0 "},
		{"CALL headgate_reset('bucket.mail', 'mail')", "existed=1"},
		{"CALL headgate_take('bucket.mail', 'mail', 1)", "allowed=1 "},
		{"CALL request_token('mail')", "granted=0 "},
		{"CALL headgate_reset('bucket.mail', 'mail')", "existed=1"},
		{"CALL headgate_block('bucket.mail', 'mail', 3600, '')", "blocked_until="},
		{"CALL request_token('mail')", "granted=0 "},
		{"CALL request_token('none')", "granted=0 "},
		{"CALL request_token('a b')", "granted=1 "},
		{"CALL request_token('a b')", "granted=0 "},
		{"SELECT limit_name AS name FROM headgate_levels WHERE `key` = 'a b'", "name=request_token"},
	} {
		if got := rowText(t, conn, tt.text); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: got %s, want %s", tt.text, got, tt.want)
		}
	}
	expectRuleLocked(t, url, "bucket.mail", "change headgate_buckets")
	mustExec(t, conn, "DELETE FROM headgate_buckets WHERE id <> 'none'")
	if got, err := listItems(t, s); err != nil || !slices.Equal(got, want[2:]) {
		t.Errorf("after buckets were removed: got %+v, %v; want %+v", got, err, want[2:])
	}
}

// expectRuleLocked checks that WriteCatalog, and SQL with errText, refuse to change a limit that another table defines.
func expectRuleLocked(t *testing.T, url, name, errText string) {
	t.Helper()
	conn, s := openSession(t, url), openStore(t, url)
	n := len(versionsOf(t, s))
	for _, text := range []string{
		"UPDATE headgate_limits SET rule = 'gcra 1/s' WHERE name = '" + name + "'",
		"UPDATE headgate_limits SET origin = '' WHERE name = '" + name + "'",
		"DELETE FROM headgate_limits WHERE name = '" + name + "'",
		"INSERT INTO headgate_limits (name, rule, origin) VALUES ('x', 'gcra 1/s', '" +
			strings.Split(name, ".")[0] + "')",
	} {
		if _, err := conn.ExecContext(t.Context(), text); err == nil || !strings.Contains(err.Error(), errText) {
			t.Errorf("%s: got %v, want an error with %s", text, err, errText)
		}
	}
	current, err := s.ReadCatalog(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range []store.Item{
		{Kind: store.KindLimit, Name: name, Text: "gcra 1/s"}, {Kind: store.KindLimit, Name: name, Removed: true},
	} {
		_, err := s.WriteCatalog(t.Context(), store.Edit{Base: current.Version, Items: []store.Item{i}})
		if !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%+v: got %v, want ErrInvalid", i, err)
		}
	}
	if got := len(versionsOf(t, s)); got != n {
		t.Errorf("got %d versions after the refused changes, want %d", got, n)
	}
}

// TestMigrateMakesLimitsOfZonesAndBuckets checks that Migrate, once or twice, makes one limit of each existing zone and
// bucket in a database that has no triggers.
func TestMigrateMakesLimitsOfZonesAndBuckets(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	s := openStore(t, url)
	conn := openSession(t, url)
	for _, trigger := range triggerNames {
		mustExec(t, conn, "DROP TRIGGER "+trigger)
	}
	mustExec(t, conn, "INSERT INTO headgate_zones (id, rate, window_seconds) VALUES (7, 1, 60); "+
		"INSERT INTO headgate_buckets (id, capacity, refill_seconds) VALUES ('b', 1, 60)")
	for range 2 {
		if _, err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		got, err := s.ReadCatalog(t.Context(), 0)
		if err != nil || len(got.Items) != 2 || got.Version != 2 {
			t.Errorf("got %+v, %v; want the limits of a zone and a bucket in version 2", got, err)
		}
	}
}
