package postgres

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate/law"
)

// TestSQLTextsHaveNoBareIndexes checks that the texts of functions use placeholders, not bare indexes, for the numbers
// of ops, outcomes and other lists.
func TestSQLTextsHaveNoBareIndexes(t *testing.T) {
	position := regexp.MustCompile(`\b(?:p_ops|op|p_res|res|back|part|outcome|s|p_undo|undo|p_params|params|rate|ask_N\(.*\)\))\[[^]{}]*\d[^]{}]*\]`)
	offset := regexp.MustCompile(`\b(?:p_ops|p_res|res|p_undo|undo)\[[^]]*\+ \d+\]`)
	width := regexp.MustCompile(fmt.Sprintf(`[*/] *(?:%d|%d|%d)\b`, opWidth, law.Width, len(placeholders["undo"])))
	for _, dir := range []string{"sql/functions", "sql/blocks", "sql/yugabyte"} {
		entries, err := sqlFiles.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			text, err := sqlFiles.ReadFile(dir + "/" + e.Name())
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(text)) {
				line, _, _ = strings.Cut(line, "--")
				if position.MatchString(line) || offset.MatchString(line) || width.MatchString(line) {
					t.Errorf("%s: got a bare index, want a placeholder: %s", e.Name(), strings.TrimSpace(line))
				}
			}
		}
	}
}

// TestAssemblePanicsAtUnknownNames checks misspelt placeholders, blocks and parameters.
func TestAssemblePanicsAtUnknownNames(t *testing.T) {
	for _, text := range []string{
		"p_ops[o + {op.celing}]", "array[{out: grantd => 1}]", "res[{outcome.level}]",
		`{{template "use bukket"}}`, `    {{template "use bukket"}}`,
		`x := {{template "weighed" (as "prv" "w_prev")}};`,
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("assemble(%s): got a text, want a panic", text)
				}
			}()
			assemble("text", text)
		}()
	}
}

// TestAssembleIndentsBlocks checks that all lines of a block have the indentation of the line that includes it.
func TestAssembleIndentsBlocks(t *testing.T) {
	got := assemble("text", "if\n    {{template \"expire log\" (as \"limit\" \"l\" \"key\" \"k\")}}\nend if;")
	for line := range strings.Lines(strings.TrimSuffix(strings.TrimPrefix(got, "if\n"), "end if;")) {
		if !strings.HasPrefix(line, "    ") {
			t.Errorf("got %q, want 4 spaces before it", line)
		}
	}
}
