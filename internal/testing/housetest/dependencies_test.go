package housetest_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// TestDependencies compares the list of docs/project/dependencies.md with go.mod, and its licences with the licences in
// licenses.txt.
func TestDependencies(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var mod struct {
		Require []struct {
			Path, Version string
			Indirect      bool
		}
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	licenceList, err := os.ReadFile(filepath.Join(root, "cmd", "headgate", "licenses.txt"))
	if err != nil {
		t.Fatal(err)
	}
	licences := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^(\S+) +(\S+) v\S+$`).FindAllSubmatch(licenceList, -1) {
		licences[string(m[2])] = string(m[1])
	}
	page := pageTexts(t)[filepath.Join(root, "docs", "project", "dependencies.md")]
	row := regexp.MustCompile("(?m)^- `([^`]+)` (v\\S+), (\\S+): .")
	rows := map[string][]string{}
	for _, m := range row.FindAllStringSubmatch(page, -1) {
		rows[m[1]] = m[2:]
	}
	for _, r := range mod.Require {
		if r.Indirect {
			continue
		}
		item := rows[r.Path]
		delete(rows, r.Path)
		switch {
		case item == nil:
			t.Errorf("docs/project/dependencies.md has no line about %s: say its version, licence and reason", r.Path)
		case item[0] != r.Version:
			t.Errorf("docs/project/dependencies.md says %s %s, go.mod %s", r.Path, item[0], r.Version)
		case licences[r.Path] != "" && licences[r.Path] != item[1]:
			t.Errorf("docs/project/dependencies.md says that %s is under %s, it is %s", r.Path, item[1], licences[r.Path])
		}
	}
	if unrequired := slices.Sorted(maps.Keys(rows)); len(unrequired) > 0 {
		t.Errorf("docs/project/dependencies.md has modules that go.mod does not require: %v", unrequired)
	}
	if len(licences) < 20 {
		t.Errorf("the licences of %d modules only are known: is the pattern right?", len(licences))
	}
}
