package housetest_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTheTestsThatPagesNameAreThere looks for each test that a page names as the proof of what it says.
func TestTheTestsThatPagesNameAreThere(t *testing.T) {
	declared := map[string]bool{}
	declares := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range declares.FindAllSubmatch(text, -1) {
			declared[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	names := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`")
	for page, text := range texts(t) {
		for _, m := range names.FindAllStringSubmatch(text, -1) {
			if named++; !declared[m[1]] {
				t.Errorf("%s names %s, which is not there", page, m[1])
			}
		}
	}
	if named < 50 {
		t.Errorf("the pages name %d tests only: is the pattern right?", named)
	}
}

// TestTheTestsAreInTheFilesThatPagesName: where a page says in which file a test is, it is there.
func TestTheTestsAreInTheFilesThatPagesName(t *testing.T) {
	t.Parallel()
	linked := regexp.MustCompile("`((?:Test|Fuzz)\\w+)` in \\[[^\\]]*\\]\\(([^)]*)\\)")
	found := 0
	for path, text := range texts(t) {
		for _, m := range linked.FindAllStringSubmatch(text, -1) {
			found++
			file, err := os.ReadFile(filepath.Join(filepath.Dir(path), filepath.FromSlash(m[2])))
			if err != nil || !strings.Contains(string(file), "\nfunc "+m[1]+"(") {
				t.Errorf("%s: %s is not in %s (%v)", path, m[1], m[2], err)
			}
		}
	}
	if found < 50 {
		t.Errorf("the pages name files of %d tests only: is the pattern right?", found)
	}
}
