package housetest_test

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/headgate/headgate/internal/housetest"
)

// TestUses loads a package of which each file uses another in a way of its own.
func TestUses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.com/m\n\ngo 1.26\n",
		"a.go":   "package m\n\ntype T struct{ field int }\n\nvar one = two\n",
		"b.go":   "package m\n\nconst two = 2\n\nfunc (t *T) Method() int { return t.field }\n",
		"c.go":   "package m\n\nfunc third(t *T) int { return t.Method() }\n",
		"d.go": "package m\n\ntype inner struct{}\n\nfunc (inner) promoted() {}\n\ntype caller interface{ " +
			"promoted() }\n",
		"e.go": "package m\n\ntype outer struct{ caller }\n\nfunc (o outer) do(p pair[int]) { o.promoted(); " +
			"p.both() }\n",
		"f.go": "package m\n\nimport \"fmt\"\n\ntype pair[E any] struct{ x, y E }\n\nfunc (p pair[E]) both() { " +
			"fmt.Println(p.x, p.y) }\n",
		"a_test.go": "package m\n\nvar three = third\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := housetest.Load(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	want := housetest.Uses{
		"a.go": {"b.go": "two"}, "b.go": {"a.go": "T"}, "c.go": {"a.go": "T", "b.go": "Method"},
		"e.go": {"d.go": "caller", "f.go": "both"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("uses are %v, want %v", got, want)
	}
	if cycles, want := got.Cycles(), [][]string{{"a.go", "b.go"}}; !reflect.DeepEqual(cycles, want) {
		t.Errorf("cycles are %v, want %v", cycles, want)
	}
}

// TestCycles finds the components of a graph, the largest first.
func TestCycles(t *testing.T) {
	t.Parallel()
	uses := housetest.Uses{
		"a": {"b": ""}, "b": {"a": "", "c": ""}, "c": {"d": "", "e": ""}, "d": {"c": ""}, "e": {"c": "", "f": ""},
		"f": {"g": ""},
	}
	if got, want := uses.Cycles(), [][]string{{"c", "d", "e"}, {"a", "b"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("cycles are %v, want %v", got, want)
	}
}
