package housetest_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// root is the folder of the module.
const root = "../../.."

// pageTexts returns the texts of all Markdown files of the project, by their paths.
func pageTexts(t *testing.T) map[string]string {
	t.Helper()
	pages := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" ||
			d.Name() == "bin"):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		pages[path] = string(text)
		return err
	})
	if err != nil || len(pages) < 20 {
		t.Fatalf("found %d pages (%v), want at least 20", len(pages), err)
	}
	return pages
}

var (
	codeBlock  = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	codeSpan   = regexp.MustCompile("`[^`\n]*`")
	linkTarget = regexp.MustCompile(`\]\(([^)\s]+)\)`)
)

// TestLinks checks that the relative links of all pages lead to files, and to headings of pages.
func TestLinks(t *testing.T) {
	t.Parallel()
	pages := pageTexts(t)
	headings := map[string][]string{}
	for path, text := range pages {
		headings[path] = anchors(text)
	}
	for _, path := range slices.Sorted(maps.Keys(pages)) {
		text := codeSpan.ReplaceAllString(codeBlock.ReplaceAllString(pages[path], ""), "")
		for _, m := range linkTarget.FindAllStringSubmatch(text, -1) {
			if err := checkLink(headings, path, m[1]); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
}

// checkLink returns an error if a link of a page leads nowhere. headings has the anchors of each page.
func checkLink(headings map[string][]string, from, target string) error {
	if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
		return nil
	}
	file, anchor, hasAnchor := strings.Cut(target, "#")
	path := from
	if file != "" {
		path = filepath.Join(filepath.Dir(from), filepath.FromSlash(file))
	}
	if _, err := os.Stat(path); err != nil {
		return err
	}
	if list, ok := headings[path]; hasAnchor && ok && !slices.Contains(list, anchor) {
		return fmt.Errorf("%s has no heading #%s", path, anchor)
	}
	return nil
}

var (
	headingLine = regexp.MustCompile("(?m)^#+ (.*)$")
	linkPattern = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// anchors returns the anchors that GitHub makes for the headings of a page.
func anchors(text string) (list []string) {
	seen := map[string]int{}
	for _, m := range headingLine.FindAllStringSubmatch(codeBlock.ReplaceAllString(text, ""), -1) {
		title := linkPattern.ReplaceAllString(m[1], "$1")
		id := strings.Map(func(c rune) rune {
			switch {
			case c == ' ':
				return '-'
			case c == '-' || c == '_' || unicode.IsLetter(c) || unicode.IsDigit(c):
				return unicode.ToLower(c)
			}
			return -1
		}, title)
		if n := seen[id]; n > 0 {
			list = append(list, fmt.Sprintf("%s-%d", id, n))
		} else {
			list = append(list, id)
		}
		seen[id]++
	}
	return list
}

func TestAnchorsAndLinks(t *testing.T) {
	t.Parallel()
	got := anchors("# One, [two](x.md)!\n```sh\n# no heading\n```\n## A `b_c` .. d\n## A `b_c` .. d\n")
	if want := []string{"one-two", "a-b_c--d", "a-b_c--d-1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	headings := map[string][]string{"../../../README.md": {"a"}, "../../../docs/sql.md": {"b"}}
	for target, want := range map[string]string{
		"docs/sql.md#b": "", "#a": "", "https://example.com/#x": "", "docs": "", "#b": "no heading #b",
		"docs/sql.md#a": "no heading #a", "docs/none.md": "no such file",
	} {
		err := checkLink(headings, "../../../README.md", target)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", target, err, want)
		}
	}
}

var decisionStart = regexp.MustCompile(`(?m)^## .*\n\n(\d{4}-\d\d-\d\d\. )?`)

// TestDecisionsAreDatedAndListed checks that each decision begins with its date, and that design.md lists each file.
func TestDecisionsAreDatedAndListed(t *testing.T) {
	t.Parallel()
	pages := pageTexts(t)
	index := pages[filepath.Join(root, "docs/project/design.md")]
	count := 0
	for path, text := range pages {
		if filepath.Base(filepath.Dir(path)) != "decisions" {
			continue
		}
		for _, m := range decisionStart.FindAllStringSubmatch(text, -1) {
			if count++; m[1] == "" {
				t.Errorf("%s: %q does not begin with a date", path, strings.TrimSpace(m[0]))
			}
		}
		if !strings.Contains(index, "(decisions/"+filepath.Base(path)+")") {
			t.Errorf("docs/project/design.md does not list %s", path)
		}
	}
	if count < 70 {
		t.Errorf("found %d decisions, want at least 70", count)
	}
}

var stepPattern = regexp.MustCompile("(?m)^1\\. `([^`]+\\.(?:go|sql))` `([^`]+)`: ")

// TestTheArchitecture checks that the functions exist which ARCHITECTURE.md names.
func TestTheArchitecture(t *testing.T) {
	t.Parallel()
	steps := stepPattern.FindAllStringSubmatch(pageTexts(t)[filepath.Join(root, "ARCHITECTURE.md")], -1)
	if len(steps) < 20 {
		t.Fatalf("found %d steps, want at least 20", len(steps))
	}
	for _, m := range steps {
		text, err := os.ReadFile(filepath.Join(root, m[1]))
		if err != nil {
			t.Error(err)
			continue
		}
		pattern := `(?m)^func ` + m[2] + `[\[(]`
		if strings.HasSuffix(m[1], ".sql") {
			pattern = `(?m)^create or replace function ` + regexp.QuoteMeta(m[2]) + `\(`
		} else if receiver, name, ok := strings.Cut(m[2], "."); ok {
			pattern = `(?m)^func \(\w+ \*?` + receiver + `(\[[\w, ]+\])?\) ` + name + `\(`
		}
		if !regexp.MustCompile(pattern).Match(text) {
			t.Errorf("ARCHITECTURE.md: %s has no %s", m[1], m[2])
		}
	}
}
