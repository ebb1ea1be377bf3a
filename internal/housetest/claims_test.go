package housetest_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	claimRow = regexp.MustCompile(`(?m)^\| (.+?) \| \[[^\]]*\]\(([^)#]+)\) \| (.+?) \|`)
	proofs   = regexp.MustCompile("((?:`Test\\w+`(?:, )?)+) in ((?:`[\\w./-]+`(?:, )?)+)")
)

// TestClaims: the words of each claim of docs/claims.md stand in the page that makes it, and the tests that prove it
// are in the packages that are named.
func TestClaims(t *testing.T) {
	t.Parallel()
	all := texts(t)
	docs := filepath.Join(root, "docs")
	rows := claimRow.FindAllStringSubmatch(all[filepath.Join(docs, "claims.md")], -1)
	if len(rows) < 60 {
		t.Errorf("docs/claims.md has %d claims only: is the pattern right?", len(rows))
	}
	for _, row := range rows {
		words, page := plain(row[1]), filepath.Join(docs, row[2])
		if !strings.Contains(plain(all[page]), words) {
			t.Errorf("%s does not say so any more: %q. Does its test still prove what it says?", page, words)
		}
		groups := proofs.FindAllStringSubmatch(row[3], -1)
		if groups == nil && !strings.HasPrefix(row[3], "`make ") && !strings.Contains(row[3], " -bench ") {
			t.Errorf("%q: no test is named as `TestX` in `p`, nor a target of make, nor a benchmark", words)
		}
		for _, group := range groups {
			for _, dir := range code.FindAllString(group[2], -1) {
				source := testsOf(t, strings.Trim(dir, "`"))
				for _, name := range code.FindAllString(group[1], -1) {
					if name = strings.Trim(name, "`"); !strings.Contains(source, "\nfunc "+name+"(") {
						t.Errorf("%q: %s has no %s", words, dir, name)
					}
				}
			}
		}
	}
}

// testsOf returns the text of a package's tests.
func testsOf(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

// plain returns a text without links and marks, and with single spaces.
func plain(text string) string {
	text = linked.ReplaceAllString(text, "$1")
	return strings.Join(strings.Fields(strings.NewReplacer("`", "", "*", "").Replace(text)), " ")
}
