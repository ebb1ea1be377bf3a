package doctest

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestTheHouse checks the list of folders in docs/project/design.md: each folder of the list must exist, and each
// package must be in or below a folder of the list.
func TestTheHouse(t *testing.T) {
	t.Parallel()
	var folders []string
	for _, p := range pages(t) {
		if p.name != "docs/project/design.md" {
			continue
		}
		parent := ""
		for line := range strings.SplitSeq(strings.TrimSpace(p.blocks[0].text), "\n") {
			isIndented := strings.HasPrefix(line, " ")
			for word := range strings.FieldsSeq(line) {
				if word != "." && !strings.HasSuffix(word, "/") {
					break
				}
				if name := strings.TrimSuffix(word, "/"); isIndented {
					folders = append(folders, filepath.Join(parent, name))
				} else {
					parent = name
					folders = append(folders, name)
				}
			}
		}
	}
	for _, name := range folders {
		if _, err := os.Stat(filepath.Join(root, name)); err != nil {
			t.Errorf("docs/project/design.md names %s: %v", name, err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for dir := range strings.Lines(string(out)) {
		rel, err := filepath.Rel(absolute(root), strings.TrimSpace(dir))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(folders, func(name string) bool { return strings.HasPrefix(rel+"/", name+"/") }) {
			t.Errorf("docs/project/design.md does not name %s", rel)
		}
	}
}
