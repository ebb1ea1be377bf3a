// Package planted_test holds small faults that can be planted into this module, one at a time, to show that its
// simulator finds them.
//
// Each is a text file in faults, named after the fault:
//
//	law/bucket.go
//	One sentence: what it breaks.
//	--- old
//	text that occurs exactly once in the file
//	--- new
//	text in its place, with which the module still compiles
//
// Callers could notice each fault by the decisions that they get. To plant it, the module itself is not changed: a
// build with an overlay reads another file in place of the faulty one. TestPlantedFaultsAreFound looks for each fault.
package planted_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// root is the root of the module.
const root = "../../../.."

// fault is a change of a file.
type fault struct {
	name     string
	effect   string // one sentence
	file     string // from the root of the module
	old, new string // old occurs exactly once in the file
}

// faults returns all faults, in the order of their names.
func faults(t *testing.T) (list []fault) {
	t.Helper()
	files, err := filepath.Glob("faults/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		text := readFile(t, name)
		head, change, hasOld := strings.Cut(text, "\n--- old\n")
		oldText, newText, hasNew := strings.Cut(change, "\n--- new\n")
		file, effect, hasSentence := strings.Cut(head, "\n")
		if !hasOld || !hasNew || !hasSentence || oldText == "" {
			t.Fatalf("%s: want a file, a sentence, and two texts after their lines", name)
		}
		list = append(list, fault{
			name: strings.TrimSuffix(filepath.Base(name), ".txt"), file: file,
			effect: strings.Join(strings.Fields(effect), " "), old: oldText, new: strings.TrimSuffix(newText, "\n"),
		})
	}
	return list
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// plant returns the text of the source file with the fault in it. The test fails unless old occurs once in the source.
func (f *fault) plant(t *testing.T) string {
	t.Helper()
	source := readFile(t, filepath.Join(root, f.file))
	if n := strings.Count(source, f.old); n != 1 {
		t.Errorf("%s: its old text occurs %d times in %s, want once", f.name, n, f.file)
	}
	return strings.Replace(source, f.old, f.new, 1)
}

// writeOverlay writes the changed file and the argument of go build -overlay, and returns the path of the argument.
func (f *fault) writeOverlay(t *testing.T) (path string) {
	t.Helper()
	dir := t.TempDir()
	original, err := filepath.Abs(filepath.Join(root, f.file))
	if err != nil {
		t.Fatal(err)
	}
	changedFile, path := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {original: changedFile}})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{changedFile: f.plant(t), path: string(replace)} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// TestFaultsFitTheSource checks that each fault has all its parts, and that its old text occurs once in the source.
func TestFaultsFitTheSource(t *testing.T) {
	t.Parallel()
	list := faults(t)
	if len(list) != 54 {
		t.Errorf("%d faults, want 54", len(list))
	}
	changes := map[string]string{}
	for _, f := range list {
		f.plant(t)
		if f.old == f.new {
			t.Errorf("%s changes nothing", f.name)
		}
		if !strings.HasSuffix(f.effect, ".") {
			t.Errorf("%s: %q is no sentence", f.name, f.effect)
		}
		change := f.file + "\n" + f.new
		if other, ok := changes[change]; ok {
			t.Errorf("%s and %s are one fault", f.name, other)
		}
		changes[change] = f.name
	}
}
