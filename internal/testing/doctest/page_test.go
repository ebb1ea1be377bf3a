package doctest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// root is the project's folder.
const root = "../../.."

// block is a fenced block of a page.
type block struct {
	line     int    // number of the line of its fence
	language string // the first word after the fence
	option   string // what follows language on the line of the fence
	text     string
}

// firstLine returns the block's first line, by which lists name the block.
func (b *block) firstLine() string {
	line, _, _ := strings.Cut(b.text, "\n")
	return line
}

// page is a file of the documentation.
type page struct {
	name   string // path from the project's folder
	blocks []block
	port   string // replaces 8080, the port of the page's server
}

// serverURL matches the URL of a server, otherProgram a call of a program other than headgate, curl and jq.
var (
	serverURL    = regexp.MustCompile(`(postgres|mysql|redis)://localhost`)
	otherProgram = regexp.MustCompile(`(?m)^ *(make|go (run [^.]|run \.$|run \.[^/]|get|mod|build|test|install)|nginx|caddy|haproxy|envoy|` +
		`python3|node|java|javac|psql|mysql|redis-cli|docker|git)\b`)
)

var goTestFunc = regexp.MustCompile(`(?m)^func Test`)

// needs returns what a page needs in addition to the command, curl and jq, or "".
func (p *page) needs() string {
	for i := range p.blocks {
		b := &p.blocks[i]
		switch b.language {
		case "sql", "js", "python", "java":
			return b.language
		case "go":
			if goTestFunc.MatchString(b.text) {
				return "a program of its tests"
			}
		case "sh":
			if match := otherProgram.FindString(b.text); match != "" {
				return strings.TrimSpace(match)
			}
		}
		if match := serverURL.FindString(b.text); match != "" {
			return match
		}
	}
	return ""
}

// pageFiles returns the paths of the pages in docs and in its folders.
func pageFiles(t *testing.T) []string {
	t.Helper()
	topPages, topErr := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	nestedPages, nestedErr := filepath.Glob(filepath.Join(root, "docs", "*", "*.md"))
	if topErr != nil || nestedErr != nil || len(topPages) < 5 || len(nestedPages) < 5 {
		t.Fatalf("found %q and %q, %v, %v", topPages, nestedPages, topErr, nestedErr)
	}
	return append(topPages, nestedPages...)
}

// pages returns the README and all pages of docs and of the folders in it.
func pages(t *testing.T) []page {
	t.Helper()
	files := pageFiles(t)
	var pages []page
	for _, file := range append([]string{filepath.Join(root, "README.md")}, files...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			t.Fatal(err)
		}
		blocks, err := parseBlocks(string(text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		pages = append(pages, page{name: name, blocks: blocks})
	}
	return pages
}

var fence = regexp.MustCompile("^( *)```+ *([^ `]*) *(.*)$")

// parseBlocks returns the fenced blocks of a page. Other blocks are errors: nothing would run them.
func parseBlocks(text string) (blocks []block, err error) {
	var (
		openBlock    *block
		indent       string
		inList       bool // in a list, text may be indented
		previousLine string
	)
	for i, line := range strings.Split(text, "\n") {
		m := fence.FindStringSubmatch(line)
		switch {
		case openBlock != nil && m != nil && m[2] == "":
			blocks, openBlock = append(blocks, *openBlock), nil
		case openBlock != nil:
			openBlock.text += strings.TrimPrefix(line, indent) + "\n"
		case m != nil && m[2] == "":
			return nil, fmt.Errorf("line %d: a block without a language", i+1)
		case m != nil:
			openBlock, indent = &block{line: i + 1, language: m[2], option: m[3]}, m[1]
		case strings.HasPrefix(line, "    ") && previousLine == "" && !inList:
			return nil, fmt.Errorf("line %d: an indented block; say by a fence what language it is", i+1)
		case strings.HasPrefix(line, "- "), listItem.MatchString(line):
			inList = true
		case line != "" && line[0] != ' ':
			inList = false
		}
		previousLine = line
	}
	if openBlock != nil {
		return nil, fmt.Errorf("line %d: the block has no end", openBlock.line)
	}
	return blocks, nil
}

var listItem = regexp.MustCompile(`^[0-9]+\. `)

var fileName = regexp.MustCompile(`^(?:#|//|--) ([A-Za-z0-9_-]+\.(?:go|ya?ml|sh|py|java|m?js|sql|conf|cfg|lua|log|service)|Caddyfile)$`)

// file returns the file name in the first line of the block, or "".
func (b *block) file() string {
	if m := fileName.FindStringSubmatch(b.firstLine()); m != nil {
		return m[1]
	}
	return ""
}

func TestPagesAreParsed(t *testing.T) {
	t.Parallel()
	got, err := parseBlocks("a\n\n```sh\nb\n\n    c\n```\n\n- list\n\n    of more\n\n  ```sql mysql\n  d\n  ```\n")
	if err != nil || len(got) != 2 || got[0].text != "b\n\n    c\n" || got[0].line != 3 ||
		got[1].text != "d\n" || got[1].language != "sql" || got[1].option != "mysql" {
		t.Errorf("got %+v, %v; want an sh block and an sql block", got, err)
	}
	for text, want := range map[string]string{
		"a\n\n    b\n":        "line 3: an indented block",
		"```\na\n```\n":       "line 1: a block without a language",
		"a\n```sh\nb\n":       "line 2: the block has no end",
		"- a\n\nb\n\n    c\n": "line 5: an indented block",
	} {
		if _, err := parseBlocks(text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
	for text, want := range map[string]string{"# headgate.yaml\na\n": "headgate.yaml", "// main.go\n": "main.go", "// a\n": ""} {
		if b := (block{text: text}); b.file() != want {
			t.Errorf("%q: got %q, want %q", text, b.file(), want)
		}
	}
}
