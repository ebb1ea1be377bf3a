package housetest_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTheTestsThatPagesNameAreThere checks that each test exists which a page names as the proof of a statement.
func TestTheTestsThatPagesNameAreThere(t *testing.T) {
	declared := map[string]bool{}
	declaration := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range declaration.FindAllSubmatch(text, -1) {
			declared[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	mention := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`")
	for page, text := range pageTexts(t) {
		for _, m := range mention.FindAllStringSubmatch(text, -1) {
			if count++; !declared[m[1]] {
				t.Errorf("%s names %s, which is not there", page, m[1])
			}
		}
	}
	if count < 50 {
		t.Errorf("the pages name %d tests only: is the pattern right?", count)
	}
}

var testsInDirs = regexp.MustCompile("((?:`Test\\w+`(?:,\\s+)?)+)\\s+in\\s+((?:`[\\w./-]+`(?:,\\s+)?)+)")

// TestTheTestsAreInThePackagesThatPagesName checks that tests are in the packages in which the pages say they are.
func TestTheTestsAreInThePackagesThatPagesName(t *testing.T) {
	t.Parallel()
	sources := map[string]string{}
	count := 0
	for path, text := range pageTexts(t) {
		for _, group := range testsInDirs.FindAllStringSubmatch(text, -1) {
			for _, dir := range codeSpan.FindAllString(group[2], -1) {
				dir = strings.Trim(dir, "`")
				if _, ok := sources[dir]; !ok {
					sources[dir] = testText(t, dir)
				}
				for _, name := range codeSpan.FindAllString(group[1], -1) {
					count++
					if name = strings.Trim(name, "`"); !strings.Contains(sources[dir], "\nfunc "+name+"(") {
						t.Errorf("%s: %s has no %s", path, dir, name)
					}
				}
			}
		}
	}
	if count < 100 {
		t.Errorf("the pages name packages of %d tests only: is the pattern right?", count)
	}
}

// testText returns the text of a package's tests.
func testText(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(text)
	}
	return b.String()
}
