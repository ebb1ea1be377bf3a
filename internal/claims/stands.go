package main

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// stands says what is wrong with a claim that can be seen without its commands, or nil.
func (c *claim) stands(root string) error {
	text, err := os.ReadFile(filepath.Join(root, c.page))
	if err != nil {
		return err
	}
	if !strings.Contains(plain(string(text)), c.words) {
		return fmt.Errorf("%s does not say so any more: correct %s:%d, and look whether the command still proves it",
			c.page, list, c.line)
	}
	for _, command := range c.commands {
		if err := available(root, command); err != nil {
			return err
		}
	}
	if c.result == "" {
		return nil
	}
	return c.agrees(root)
}

var makes = regexp.MustCompile(`^make ([a-z]+)`)

// available says whether the tests and the target of make that a command names are there.
func available(root, command string) error {
	if m := makes.FindStringSubmatch(command); m != nil {
		text, err := os.ReadFile(filepath.Join(root, "Makefile"))
		if err == nil && !regexp.MustCompile(`(?m)^`+m[1]+`:`).Match(text) {
			err = fmt.Errorf("the Makefile has no target %s", m[1])
		}
		return err
	}
	t, ok := tested(command)
	if !ok {
		return nil
	}
	for _, dir := range t.packages {
		files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
		if err != nil {
			return err
		}
		all := ""
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			all += string(text)
		}
		for _, name := range t.names {
			name, _, _ = strings.Cut(name, "/")
			if !strings.Contains(all, "\nfunc "+name+"(") {
				return fmt.Errorf("%s has no %s", dir, name)
			}
		}
	}
	return nil
}

var (
	commit = regexp.MustCompile(`commit ([0-9a-f]{7,40})`)
	number = regexp.MustCompile(`^[0-9]+(?:\.[0-9]+)?`)
	each   = regexp.MustCompile(`: each ([0-9.]+)$`)
)

// agrees compares the figures of a claim with the result that it names.
//
// "`COLUMN` of `ROW`, `ROW`" means the figures in that column of the result's tables, in rows whose first cell matches
// one of the patterns. The claim has to say "LEAST to MOST" of them; with ": each N" behind it, all have to be N.
func (c *claim) agrees(root string) error {
	text, err := os.ReadFile(filepath.Join(root, c.result))
	if err != nil {
		return err
	}
	if m := commit.FindStringSubmatch(c.told); m == nil {
		return errors.New("the result names no commit")
	} else if strings.HasPrefix(c.result, "bench/") && !strings.Contains(string(text), m[1]) {
		return fmt.Errorf("%s is not of commit %s", c.result, m[1])
	}
	if c.figures == "-" {
		return nil
	}
	names := code.FindAllStringSubmatch(c.figures, -1)
	if len(names) < 2 {
		return fmt.Errorf("%q does not name a column and rows in `code`", c.figures)
	}
	var patterns []string
	for _, m := range names[1:] {
		patterns = append(patterns, m[1])
	}
	figures, err := column(string(text), names[0][1], patterns)
	if err != nil {
		return fmt.Errorf("%s: %w", c.result, err)
	}
	if m := each.FindStringSubmatch(c.figures); m != nil {
		for _, f := range figures {
			if f != m[1] {
				return fmt.Errorf("%s has %s in column %q, not %s", c.result, f, names[0][1], m[1])
			}
		}
		return nil
	}
	least, most := extremes(figures)
	if want := least + " to " + most; !strings.Contains(c.words, want) {
		return fmt.Errorf("%s has %s", c.result, want)
	}
	return nil
}

// column returns the figures of a column, in rows of which the first cell matches a pattern.
func column(text, name string, patterns []string) (figures []string, err error) {
	at := -1
	inside := false
	found := map[string]bool{}
	for line := range strings.Lines(text) {
		row := cells(line)
		switch {
		case row == nil:
			inside = false
		case !inside:
			inside, at = true, -1
			for i, title := range row {
				if title == name {
					at = i
				}
			}
		case at >= 0 && at < len(row):
			hit := false
			for _, pattern := range patterns {
				ok, err := path.Match(pattern, row[0])
				if err != nil {
					return nil, err
				}
				if ok && number.MatchString(row[at]) {
					hit, found[pattern] = true, true
				}
			}
			if hit {
				figures = append(figures, number.FindString(row[at]))
			}
		}
	}
	for _, pattern := range patterns {
		if !found[pattern] {
			return nil, fmt.Errorf("no row %q has a figure in a column %q", pattern, name)
		}
	}
	return figures, nil
}

func extremes(figures []string) (least, most string) {
	value := func(s string) float64 {
		v, _ := strconv.ParseFloat(s, 64) // it matches number
		return v
	}
	least, most = figures[0], figures[0]
	for _, f := range figures {
		if value(f) < value(least) {
			least = f
		}
		if value(f) > value(most) {
			most = f
		}
	}
	return least, most
}
