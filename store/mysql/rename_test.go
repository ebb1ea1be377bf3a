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
	mustExec(t, db, "INSERT INTO headgate_limits (name, rule) VALUES ('third', 'renamed from other'), ('own', 'renamed from own')")
	mustExec(t, db, "DELETE FROM headgate_limits WHERE name = 'login'")
	for _, name := range []string{"signin", "third", "own"} { // of a limit that was removed, of another name, of none
		got, want := rowText(t, db, "CALL headgate_take('"+name+"', 'k', 1)"), `unknown limit: "`+name+`" is not in headgate_limits`
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
