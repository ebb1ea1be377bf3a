package postgres

import (
	"regexp"
	"testing"
)

// TestNoPositionIsLeft looks for numbers where the texts of the functions should name a
// number of an op, an outcome or another list.
func TestNoPositionIsLeft(t *testing.T) {
	position := regexp.MustCompile(`(?m)^[^-\n]*\b(?:p_ops|op|p_res|res|back|part|outcome|s|p_undo|undo|p_params|params|rate|ask_N\(.*\)\))\[[^]{}]*\d[^]{}]*\].*$`)
	width := regexp.MustCompile(`(?m)^.*[*/] (?:15|23|25)\b.*$`)
	for _, dir := range []string{"sql/functions", "sql/yugabyte"} {
		entries, err := files.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			text, err := files.ReadFile(dir + "/" + e.Name())
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range append(position.FindAllString(string(text), -1), width.FindAllString(string(text), -1)...) {
				t.Errorf("%s: %s", e.Name(), line)
			}
		}
	}
}

func TestAnUnknownNameInATextPanics(t *testing.T) {
	for _, text := range []string{"p_ops[o + {op.celing}]", "array[{out: grantd => 1}]", "res[{outcome.level}]"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s is expanded", text)
				}
			}()
			placeholders.Expand(text)
		}()
	}
}
