package planted_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/internal/testing/sim/planted"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// root is the module's.
const root = "../../../.."

// TestAll looks for faults that lack something, or that no longer fit the source.
func TestAll(t *testing.T) {
	t.Parallel()
	faults := planted.All()
	if len(faults) != 53 {
		t.Errorf("%d faults, want 53", len(faults))
	}
	changes := map[string]string{}
	for _, f := range faults {
		source, err := os.ReadFile(filepath.Join(root, f.File))
		if err != nil {
			t.Errorf("%s: %v", f.Name, err)
			continue
		}
		if _, err := f.Plant(string(source)); err != nil {
			t.Error(err)
		}
		if !strings.HasSuffix(f.Breaks, ".") {
			t.Errorf("%s: %q is no sentence", f.Name, f.Breaks)
		}
		change := f.File + "\n" + f.New
		if other, ok := changes[change]; ok {
			t.Errorf("%s and %s are one fault", f.Name, other)
		}
		changes[change] = f.Name
	}
}

// TestNamed looks for the faults that this module once had.
func TestNamed(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, f := range planted.All() {
		if names[f.Name] {
			t.Errorf("there are two %s", f.Name)
		}
		names[f.Name] = true
	}
	for _, name := range []string{"exactness-d4", "exactness-d5", "exactness-d8", "security-1"} {
		if !names[name] {
			t.Errorf("%s is missing", name)
		}
	}
}

// TestPlantNeedsOnePlace plants into sources that do not have the old text once.
func TestPlantNeedsOnePlace(t *testing.T) {
	t.Parallel()
	f := planted.Fault{Name: "f", File: "f.go", Old: "a < b", New: "a <= b"}
	if got, err := f.Plant("if a < b {"); got != "if a <= b {" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	for _, source := range []string{"", "if a > b {", "a < b && a < b"} {
		if got, err := f.Plant(source); err == nil {
			t.Errorf("%q became %q", source, got)
		}
	}
}

// TestOverlay reads what a build would.
func TestOverlay(t *testing.T) {
	t.Parallel()
	src, dir := t.TempDir(), t.TempDir()
	f := planted.Fault{Name: "f", File: "p/f.go", Old: "1", New: "2"}
	if _, err := f.Overlay(src, dir); err == nil {
		t.Error("a file that is not there has an overlay")
	}
	original := filepath.Join(src, "p", "f.go")
	if err := os.Mkdir(filepath.Dir(original), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(original, []byte("package p\n\nconst n = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	path, err := f.Overlay(src, dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var overlay struct{ Replace map[string]string }
	if err := json.Unmarshal(text, &overlay); err != nil || len(overlay.Replace) != 1 {
		t.Fatalf("%s: %v", text, err)
	}
	changed, err := os.ReadFile(overlay.Replace[original])
	if want := "package p\n\nconst n = 2\n"; err != nil || string(changed) != want {
		t.Errorf("got %q, %v, want %q", changed, err, want)
	}
}
