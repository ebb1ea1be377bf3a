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
	for page, text := range pageTexts(t) {
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

var proofs = regexp.MustCompile("((?:`Test\\w+`(?:,\\s+)?)+)\\s+in\\s+((?:`[\\w./-]+`(?:,\\s+)?)+)")

// TestTheTestsAreInThePackagesThatPagesName: where a page says in which packages tests are, they are there.
func TestTheTestsAreInThePackagesThatPagesName(t *testing.T) {
	t.Parallel()
	sources := map[string]string{}
	found := 0
	for path, text := range pageTexts(t) {
		for _, group := range proofs.FindAllStringSubmatch(text, -1) {
			for _, dir := range code.FindAllString(group[2], -1) {
				dir = strings.Trim(dir, "`")
				if _, ok := sources[dir]; !ok {
					sources[dir] = testText(t, dir)
				}
				for _, name := range code.FindAllString(group[1], -1) {
					found++
					if name = strings.Trim(name, "`"); !strings.Contains(sources[dir], "\nfunc "+name+"(") {
						t.Errorf("%s: %s has no %s", path, dir, name)
					}
				}
			}
		}
	}
	if found < 100 {
		t.Errorf("the pages name packages of %d tests only: is the pattern right?", found)
	}
}

// testText returns the text of a package's tests.
func testText(t *testing.T, dir string) string {
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
