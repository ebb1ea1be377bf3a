package mysql_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/storetest"
)

// TestProceduresFollowALimitThatWasRenamed calls procedures and writes rows by both names of a limit; each is about one
// cell.
func TestProceduresFollowALimitThatWasRenamed(t *testing.T) {
	t.Parallel()
	db, s := openDBAndStore(t)
	storetest.Define(t, s, store.Item{Name: "login", Text: "sliding-log 9/1h history 1d"})
	c, err := catalog.Read(t.Context(), s, &catalog.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Rename(t.Context(), catalog.By{}, "login", "signin"); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ call, want string }{
		{"CALL headgate_take('login', 'k', 1)", "remaining=8 "},
		{"CALL headgate_take('signin', 'k', 1)", "remaining=7 "},
		{"CALL headgate_take('signin keep 2', 'k', 1)", "remaining=6 "},
		{"CALL headgate_check('signin', 'k', 1)", "remaining=6 "},
		{"CALL headgate_take_once('id', 'signin', 'k', 1, 60)", "remaining=5 "},
		{"CALL headgate_take_once('id', 'login', 'k', 1, 60)", "replayed=1"},
		{`CALL headgate_take_all('[{"limit": "signin", "key": "k", "cost": 1}, {"limit": "login", "key": "k", "cost": 1}]')`, "capacity=9 remaining=4 "},
		{"CALL headgate_attempts('signin', 'k', 1)", "number="},
		{"CALL headgate_block('signin', 'k', 60, '')", "blocked_until=2"},
		{"CALL headgate_check('login', 'k', 1)", "allowed=0 "},
		{"CALL headgate_reset('signin', 'k')", "existed=1"},
		{"SELECT GROUP_CONCAT(DISTINCT limit_name) AS names FROM headgate_actions", "names=login"},
		{"CALL headgate_override('signin', 'o', 'sliding-log 5/1h history 1d', NULL, '')", "version=3"},
		{"CALL headgate_limit_of('login', 'o')", "applied=override "},
		{"CALL headgate_override('signin', 'o', NULL, NULL, '')", "version=4"},
	} {
		if got := rowText(t, db, step.call) + " "; !strings.Contains(got, step.want) {
			t.Errorf("%s: got %s, want %s", step.call, got, step.want)
		}
	}
	if got := columnsText(t, db, "limit_name", "CALL headgate_check('signin', 'k', 1)"); got != "login" {
		t.Errorf("a check by the new name: got %s", got)
	}
	mustExec(t, db, "INSERT INTO headgate_catalog (kind, name, item_key, `text`) VALUES "+
		"('prefix-override', 'signin', 'p', 'sliding-log 4/1h'), ('plan', 'pro', 'signin', 'sliding-log 3/1h'), ('assignment', '', 'q', 'pro')")
	mustExec(t, db, "INSERT INTO headgate_limits (name, rule) VALUES ('other', 'renamed from login')")
	for call, want := range map[string]string{
		"CALL headgate_limit_of('signin', 'pp')":                           "applied=override of p* ",
		"CALL headgate_limit_of('other', 'q')":                             "applied=plan pro ",
		"SELECT name FROM headgate_catalog WHERE kind = 'prefix-override'": "name=login ",
		"SELECT COUNT(*) AS n FROM headgate_limits WHERE law IS NULL":      "n=2 ",
	} {
		if got := rowText(t, db, call) + " "; !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", call, got, want)
		}
	}
	if err := c.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	limiter := headgate.New(s, &headgate.Config{Names: c})
	if d, err := limiter.Allow(t.Context(), headgate.MustNamed("other"), "q"); err != nil || d.Remaining != 2 {
		t.Errorf("a name that a row gives: got %+v, %v; want 2 left", d, err)
	}
	mustExec(t, db, "INSERT INTO headgate_limits (name, rule) VALUES ('self', 'renamed from self'), ('third', 'renamed from signin')")
	for _, name := range []string{"self", "third"} {
		want := `unknown limit: "` + name + `" is not in headgate_limits`
		if got := rowText(t, db, "CALL headgate_take('"+name+"', 'k', 1)"); got != want {
			t.Errorf("a name of a name: got %s, want %s", got, want)
		}
	}
	if got := rowText(t, db, "INSERT INTO headgate_limits (name, rule) VALUES ('blank', 'renamed from login ')"); !strings.Contains(got, "renamed") {
		t.Errorf("a name with a blank after it: got %s", got)
	}
	mustExec(t, db, "DELETE FROM headgate_limits WHERE name = 'login'")
	if got := rowText(t, db, "CALL headgate_take('signin', 'k', 1)"); got != `unknown limit: "signin" is not in headgate_limits` {
		t.Errorf("a name of a limit that was removed: got %s", got)
	}
}

// TestMigrateRenewsTheCheckOfRules migrates a database with the check that older binaries made, which refused a limit
// that is another name of one.
func TestMigrateRenewsTheCheckOfRules(t *testing.T) {
	t.Parallel()
	db, s := openDBAndStore(t)
	mustExec(t, db, "ALTER TABLE headgate_limits DROP CONSTRAINT headgate_rule_is_a_limit, "+
		"ADD CONSTRAINT headgate_rule_is_a_limit CHECK (rule REGEXP '^[[:blank:]]*(token-bucket )?[0-9]+/[0-9a-z]+$')")
	for _, want := range []string{"replaced the check of rules in headgate_limits", "nothing to do"} {
		report, err := s.Migrate(t.Context())
		if err != nil || !strings.Contains(strings.Join(report, "\n"), want) {
			t.Fatalf("got %q, %v; want %s", report, err, want)
		}
	}
	storetest.Define(t, s, store.Item{Name: "login", Text: "token-bucket 5/1m notify 80%,90%"}, store.Item{Name: "signin", Text: "renamed from login"})
	if _, err := db.ExecContext(t.Context(), "INSERT INTO headgate_limits (name, rule) VALUES ('bad', 'no limit')"); err == nil {
		t.Error("a rule that is no limit was inserted")
	}
}
