package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// list is the page with the claims.
const list = "docs/claims.md"

// claim is a row of the page.
type claim struct {
	line     int    // in the page
	words    string // as they stand in the page that makes the claim
	page     string // which makes it, from the project's folder
	commands []string
	result   string // the file with the last result of a command that takes longer; "" of a quick one
	told     string // what is said beside the file: machine and commit
	figures  string // how the figures are read off the result; "-": they are not
	took     time.Duration
}

var (
	link = regexp.MustCompile(`!?\[([^\]]*)\]\(([^)]*)\)`)
	code = regexp.MustCompile("`([^`]+)`")
)

// read returns the claims of the page.
func read(root string) ([]*claim, error) {
	text, err := os.ReadFile(filepath.Join(root, list))
	if err != nil {
		return nil, err
	}
	var all []*claim
	columns := 0
	for i, line := range strings.Split(string(text), "\n") {
		row := cells(line)
		switch {
		case len(row) == 0:
			columns = 0
		case row[0] == "claim":
			columns = len(row)
		case columns == 0 || strings.HasPrefix(row[0], "---"):
		case len(row) != columns:
			return nil, fmt.Errorf("%s:%d: a row of %d cells, want %d", list, i+1, len(row), columns)
		default:
			c, err := parse(row)
			if err != nil {
				return nil, fmt.Errorf("%s:%d: %w", list, i+1, err)
			}
			c.line = i + 1
			all = append(all, c)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no claims", list)
	}
	return all, nil
}

// parse reads a row: words, page and commands, of longer ones also the last result and how its figures are read off.
func parse(row []string) (*claim, error) {
	if len(row) != 3 && len(row) != 5 {
		return nil, fmt.Errorf("a row has 3 or 5 cells, not %d", len(row))
	}
	c := &claim{words: plain(row[0])}
	var err error
	if c.page, _, err = target(row[1]); err != nil {
		return nil, fmt.Errorf("the page that makes the claim: %w", err)
	}
	for _, m := range code.FindAllStringSubmatch(row[2], -1) {
		c.commands = append(c.commands, m[1])
	}
	if c.words == "" || len(c.commands) == 0 {
		return nil, errors.New("a claim needs words and a command in `code`")
	}
	if len(row) == 5 {
		if c.result, c.told, err = target(row[3]); err != nil {
			return nil, fmt.Errorf("the last result: %w", err)
		}
		if c.figures = row[4]; c.figures == "" {
			return nil, errors.New(`say how the figures are read off the result, or "-"`)
		}
	}
	return c, nil
}

// target returns the file of a cell's link, from the project's folder, and what follows it.
func target(cell string) (file, rest string, err error) {
	m := link.FindStringSubmatch(cell)
	if m == nil {
		return "", "", fmt.Errorf("%q has no link", cell)
	}
	file, _, _ = strings.Cut(m[2], "#")
	return filepath.ToSlash(filepath.Join(filepath.Dir(list), filepath.FromSlash(file))),
		strings.Replace(cell, m[0], "", 1), nil
}

// cells returns the cells of a table's line, nil for any other line. In a cell `\|` is `|`.
func cells(line string) (row []string) {
	line, ok := strings.CutPrefix(strings.TrimSpace(line), "|")
	if !ok {
		return nil
	}
	const escaped = "\x00"
	line = strings.ReplaceAll(strings.TrimSuffix(line, "|"), `\|`, escaped)
	for cell := range strings.SplitSeq(line, "|") {
		row = append(row, strings.TrimSpace(strings.ReplaceAll(cell, escaped, "|")))
	}
	return row
}

// plain returns the words of a text of Markdown: links by their texts, no marks of code and emphasis, and single
// spaces.
func plain(text string) string {
	text = link.ReplaceAllString(text, "$1")
	return strings.Join(strings.Fields(strings.NewReplacer("`", "", "*", "").Replace(text)), " ")
}

func indent(text string) string {
	return "         " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n         ")
}
