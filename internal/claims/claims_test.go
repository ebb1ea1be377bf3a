package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestThePageIsRight: all claims stand where docs/claims.md says, their tests are there, and the figures are those of
// their results. The commands are run by make claims.
func TestThePageIsRight(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"-root", "../..", "-static"}, &out, &errs); code != 0 {
		t.Errorf("status %d: %s", code, errs.String())
		for line := range strings.Lines(out.String()) {
			if !strings.HasPrefix(line, "ok ") {
				t.Log(strings.TrimRight(line, "\n"))
			}
		}
	}
}

// project is a small project with claims, true and false.
var project = map[string]string{
	"go.mod": "module example.org/small\n\ngo 1.26\n",
	"small_test.go": `package small

import "testing"

func TestTrue(t *testing.T)    {}
func TestOther(t *testing.T)   {}
func TestFalse(t *testing.T)   { t.Error("41 are not 42") }
func TestSkipped(t *testing.T) { t.Skip("not here") }
func TestParts(t *testing.T) {
	t.Run("a part, first", func(t *testing.T) {})
}
`,
	"broken/broken_test.go": "package broken\n\nimport \"testing\"\n\nfunc TestBroken(t *testing.T) { undefined() }\n",
	"Makefile":              "bench:\n\ttrue\n",
	"README.md":             "It is *fast*: 1.5 to 3 times as [fast](x), and\nexact. It is [small](y). It is `old`.\n",
	"bench/results.md": "Commit 0123456abc.\n\n| comparison | ratio | over |\n|---|---|---|\n" +
		"| one, a | 1.5x | 0 |\n| one, b | 3x | 0 |\n| two, c | 7x | 1 |\n| three, d | - | 0 |\n",
}

// in writes a project with a page of claims.
func in(t *testing.T, rows string) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{list: rows}
	for name, text := range project {
		files[name] = text
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const (
	quick  = "| claim | made in | proved by |\n|---|---|---|\n"
	longer = "| claim | made in | proved by | last result | read off |\n|---|---|---|---|---|\n"
)

// TestAFalseClaimTurnsItRed: each claim by itself, and what is said of it.
func TestAFalseClaimTurnsItRed(t *testing.T) {
	t.Parallel()
	const of = "| `make bench` | [results](../bench/results.md), commit 0123456 |"
	for name, tt := range map[string]struct{ rows, says string }{
		"true":            {quick + "| It is fast | [README](../README.md) | `go test . -run TestTrue` |\n", ""},
		"two tests":       {quick + "| exact. It is small. | [R](../README.md) | `A=1 go test . -run 'TestTrue\\|TestOther'`, `true` |\n", ""},
		"a part":          {quick + "| small | [R](../README.md) | `go test . -run 'TestParts/a_part,_first'` |\n", ""},
		"false":           {quick + "| small | [R](../README.md) | `go test . -run 'TestTrue\\|TestFalse'` |\n", "41 are not 42"},
		"false command":   {quick + "| small | [R](../README.md) | `go test . -run TestTrue`, `echo no; false` |\n", "exit status 1\n         no"},
		"skipped":         {quick + "| small | [R](../README.md) | `go test . -run TestSkipped` |\n", "TestSkipped: skip"},
		"no test":         {quick + "| small | [R](../README.md) | `go test . -run TestNone` |\n", ". has no TestNone"},
		"no part":         {quick + "| small | [R](../README.md) | `go test . -run TestParts/a` |\n", "TestParts/a was not run"},
		"does not build":  {quick + "| small | [R](../README.md) | `go test ./broken -run TestBroken` |\n", "undefined: undefined"},
		"changed words":   {quick + "| It is large | [R](../README.md) | `true` |\n", "README.md does not say so any more: correct docs/claims.md:3"},
		"no page":         {quick + "| small | [R](../NONE.md) | `true` |\n", "no such file"},
		"figures":         {longer + "| 1.5 to 3 times as fast | [R](../README.md) " + of + " `ratio` of `one, *`, `one, b` |\n", ""},
		"other figures":   {longer + "| 1.5 to 3 times as fast | [R](../README.md) " + of + " `ratio` of `one, *`, `two, *` |\n", "has 1.5 to 7"},
		"all the same":    {longer + "| exact | [R](../README.md) " + of + " `over` of `one, *`: each 0 |\n", ""},
		"not all":         {longer + "| exact | [R](../README.md) " + of + " `over` of `*`: each 0 |\n", "not 0"},
		"no figure":       {longer + "| exact | [R](../README.md) " + of + " `ratio` of `three, *` |\n", "no row"},
		"not read off":    {longer + "| exact | [R](../README.md) " + of + " - |\n", ""},
		"no result":       {longer + "| exact | [R](../README.md) | `make bench` | [r](../bench/none.md), commit 0123456 | - |\n", "no such file"},
		"another commit":  {longer + "| exact | [R](../README.md) | `make bench` | [r](../bench/results.md), commit 9999999 | - |\n", "is not of commit 9999999"},
		"no commit":       {longer + "| exact | [R](../README.md) | `make bench` | [r](../bench/results.md) | - |\n", "names no commit"},
		"no such target":  {longer + "| exact | [R](../README.md) | `make chaos` | [r](../bench/results.md), commit 0123456 | - |\n", "has no target chaos"},
		"a test's result": {longer + "| exact | [R](../README.md) | `go test . -run TestNone` | [r](../bench/results.md), commit 0123456 | - |\n", "has no TestNone"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, errs bytes.Buffer
			code := run(t.Context(), []string{"-root", in(t, tt.rows)}, &out, &errs)
			want, summary := 0, "1 claims: 1 ok, 0 failed"
			if tt.says != "" {
				want, summary = 1, "1 claims: 0 ok, 1 failed"
			}
			if code != want || !strings.Contains(out.String(), summary) || !strings.Contains(out.String(), tt.says) ||
				errs.Len() > 0 {
				t.Errorf("status %d, want %d and %q:\n%s%s", code, want, tt.says, out.String(), errs.String())
			}
		})
	}
}

// TestOneFalseClaimOfSeveral: each has its line, and the true ones stay ok.
func TestOneFalseClaimOfSeveral(t *testing.T) {
	t.Parallel()
	root := in(t, quick+"| It is fast | [R](../README.md) | `go test . -run TestTrue` |\n"+
		"| small | [R](../README.md) | `go test . -run TestFalse` |\n"+
		"| old | [R](../README.md) | `go test . -run 'TestTrue\\|TestOther'` |\n")
	for only, want := range map[string]string{
		"":                "status 1 ok FAILED ok",
		"old|It is fast":  "status 0 ok ok",
		"TestFalse":       "status 1 FAILED",
		"no claim has it": "status 2",
		"(":               "status 2",
	} {
		var out, errs bytes.Buffer
		got := "status " + string(rune('0'+run(t.Context(), []string{"-root", root, "-only", only}, &out, &errs)))
		for _, m := range regexp.MustCompile(`(?m)^(ok|FAILED) +[0-9.]+ s  README.md: `).FindAllStringSubmatch(out.String(), -1) {
			got += " " + m[1]
		}
		if got != want {
			t.Errorf("-only %q: got %q, want %q:\n%s%s", only, got, want, out.String(), errs.String())
		}
	}
}

func TestWhatIsNoPageOfClaims(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ rows, says string }{
		"empty":       {"# Claims\n", "has no claims"},
		"cells":       {quick + "| a | b |\n", "docs/claims.md:3: a row of 2 cells, want 3"},
		"columns":     {"| claim | made in |\n|---|---|\n| a | b |\n", "3 or 5 cells"},
		"no link":     {quick + "| a | README | `true` |\n", `"README" has no link`},
		"no command":  {quick + "| a | [R](../README.md) | true |\n", "needs words and a command"},
		"no read off": {longer + "| a | [R](../README.md) | `true` | [r](../bench/results.md) | |\n", "how the figures are read off"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, errs bytes.Buffer
			if code := run(t.Context(), []string{"-root", in(t, tt.rows)}, &out, &errs); code != 2 ||
				!strings.Contains(errs.String(), tt.says) {
				t.Errorf("status %d, %q, want 2 and %q", code, errs.String(), tt.says)
			}
		})
	}
	if _, err := read(t.TempDir()); !os.IsNotExist(err) {
		t.Errorf("without the page: %v, want %v", err, fs.ErrNotExist)
	}
}
