package housetest_test

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var claimRow = regexp.MustCompile("(?m)^- (.+?): (`.+)$")

// TestClaims checks for each claim of docs/project/claims.md that its words stand in the README or in a page of docs,
// and that it names a test with its package, a target of make, or a benchmark.
func TestClaims(t *testing.T) {
	t.Parallel()
	pages := pageTexts(t)
	claims := claimRow.FindAllStringSubmatch(pages[filepath.Join(root, "docs", "project", "claims.md")], -1)
	if len(claims) < 60 {
		t.Errorf("docs/project/claims.md has %d claims only: is the pattern right?", len(claims))
	}
	pageWords := []string{plainText(pages[filepath.Join(root, "README.md")])}
	for path, text := range pages {
		if dir := filepath.Dir(path); dir == filepath.Join(root, "docs") || dir == filepath.Join(root, "docs", "tasks") {
			pageWords = append(pageWords, plainText(text))
		}
	}
	for _, row := range claims {
		words := plainText(row[1])
		if !slices.ContainsFunc(pageWords, func(page string) bool { return strings.Contains(page, words) }) {
			t.Errorf("no page says so any more: %q. Does its test still prove what the pages say?", words)
		}
		if !testsInDirs.MatchString(row[2]) && !strings.HasPrefix(row[2], "`make ") && !strings.Contains(row[2], " -bench ") {
			t.Errorf("%q: no test is named as `TestX` in `p`, nor a target of make, nor a benchmark", words)
		}
	}
}

// plainText returns a text without links and marks, and with single spaces.
func plainText(text string) string {
	text = linkPattern.ReplaceAllString(text, "$1")
	return strings.Join(strings.Fields(strings.NewReplacer("`", "", "*", "").Replace(text)), " ")
}
