package mysql_test

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/storetest"
)

// TestOverrideAndSetPlanByCall checks what headgate_override and headgate_set_plan set and remove, the versions that
// they make, and their errors.
func TestOverrideAndSetPlanByCall(t *testing.T) {
	t.Parallel()
	db, s := openDBAndStore(t)
	storetest.Define(t, s, store.Item{Name: "api", Text: "fixed-window 10/1h"},
		store.Item{Name: "jobs", Text: "concurrency 2 ttl 30s"})
	mustExec(t, db, "INSERT INTO headgate_catalog (kind, name, item_key, `text`) VALUES ('plan', 'pro', 'api', 'fixed-window 100/1h')")
	const selectLastVersion = "SELECT v.reason, COALESCE(c.note, '') AS note, COALESCE(c.until, 0) > v.at AS ends FROM headgate_versions v " +
		"LEFT JOIN headgate_catalog c ON c.item_key = 'acme' ORDER BY v.version DESC LIMIT 1"
	for _, step := range []struct{ call, applied, lastVersion string }{
		{"CALL headgate_override('api', 'acme', '5/1h', NULL, 'noisy')", "applied=override ", "reason=noisy note=noisy ends=0"},
		{"CALL headgate_override('api', 'acme', '6/1h', 60, NULL)", "applied=override ", "reason= note= ends=1"},
		{"CALL headgate_override('api', 'acme', NULL, NULL, 'quiet')", "applied= ", "reason=quiet note= ends=0"},
		{"CALL headgate_set_plan('acme', 'pro', 3600, 'trial')", "applied=plan pro ", "reason=trial note=trial ends=1"},
		{"CALL headgate_set_plan('acme', NULL, NULL, NULL)", "applied= ", "reason= note= ends=0"},
	} {
		if got := rowText(t, db, step.call); !strings.HasPrefix(got, "version=") {
			t.Errorf("%s: got %s, want a version", step.call, got)
		}
		if got := rowText(t, db, "CALL headgate_limit_of('api', 'acme')"); !strings.Contains(got, " "+step.applied) {
			t.Errorf("after %s: got %s, want %s", step.call, got, step.applied)
		}
		if got := rowText(t, db, selectLastVersion); got != step.lastVersion {
			t.Errorf("after %s: got %s, want %s", step.call, got, step.lastVersion)
		}
	}
	for call, want := range map[string]string{
		"CALL headgate_override('nobody', 'acme', '5/1h', NULL, '')":                                          `limit_name: "nobody" is not in headgate_limits`,
		"CALL headgate_override('api', 'acme', '5/', NULL, '')":                                               `period`,
		"CALL headgate_override('api', NULL, '5/1h', NULL, '')":                                               `key: is null`,
		"CALL headgate_override('api', 'acme', 'concurrency 5 ttl 30s', NULL, '')":                            `rule: concurrency 5 ttl 30s is taken or acquired`,
		"CALL headgate_override('jobs', 'acme', '5/1h', NULL, '')":                                            `rule: token-bucket 5/1h burst 5 is taken or`,
		"CALL headgate_override('api', 'acme', NULL, NULL, '')":                                               `key: there is no override for "acme"`,
		"CALL headgate_override('api', 'acme', '5/1h', -1, '')":                                               `seconds: must be above 0`,
		"CALL headgate_override('api', 'acme', '5/1h', NULL, REPEAT('x', 1001))":                              `reason: is longer than 1000 bytes`,
		"CALL headgate_set_plan('acme', 'gold', NULL, '')":                                                    `plan: "gold" is not in headgate_catalog, which has pro`,
		"CALL headgate_set_plan('acme', NULL, NULL, '')":                                                      `key: there is no assignment for "acme"`,
		"INSERT INTO headgate_catalog (kind, name) VALUES ('assignment', 'pro')":                              `name: is "pro"; it is empty in a row of kind assignment`,
		"INSERT INTO headgate_catalog (kind, name, item_key) VALUES ('assignment', '', 'acme')":               `text: is missing`,
		"INSERT INTO headgate_catalog (kind, name, item_key, `text`) VALUES ('override', '', 'acme', '5/1h')": `name: is missing`,
		"INSERT INTO headgate_catalog (kind, name, `text`) VALUES ('plan', 'pro', '5/1h')":                    `item_key: is missing`,
	} {
		_, err := db.ExecContext(t.Context(), call)
		if errorNumber(err) != 1644 || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want error 1644 with %q", call, err, want)
		}
	}
	if got := rowText(t, db, "SELECT COALESCE(@hg_reason, 'none') AS kept, COUNT(*) AS items FROM headgate_catalog"); got != "kept=none items=1" {
		t.Errorf("afterwards: got %s, want no reason in the session, and one item", got)
	}
}
