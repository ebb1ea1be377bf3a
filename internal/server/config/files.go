package config

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/llm"
)

// Load reads the files that flags or the variable name, if any.
func Load(flags Flags) (*Config, error) {
	for _, name := range removedSettings {
		variable := Setting{Name: name}.Variable()
		if _, set := os.LookupEnv(variable); set {
			return nil, headgate.Invalid(variable, removedHint)
		}
	}
	file, err := (&Config{}).Get(File, flags)
	if err != nil {
		return nil, err
	}
	if file.By == "" {
		return &Config{}, nil
	}
	return Read(splitList(file.Value)...)
}

// Read reads several files as one. A setting or a limit may be in only one of them.
func Read(paths ...string) (*Config, error) {
	return ReadWith(func(path string) ([]byte, error) {
		if path == "/dev/stdin" || strings.HasPrefix(path, "/dev/fd/") { // a pipe such as <(...)
			text, err := os.ReadFile(path)
			return notEmpty(path, text, err)
		}
		return ReadFile(path)
	}, paths...)
}

// ReadFile reads a regular file. Others, such as named pipes, cannot be read again, and reading them may block. An
// empty file is an error: mostly it is being written or was truncated, and it would remove all limits.
func ReadFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file: it cannot be read again", path)
	}
	text, err := os.ReadFile(path)
	return notEmpty(path, text, err)
}

// notEmpty adds an error if the text of a file is empty.
func notEmpty(path string, text []byte, err error) ([]byte, error) {
	if err == nil && len(bytes.TrimSpace(text)) == 0 {
		err = fmt.Errorf("%s is empty; write {} into it for a file that says nothing", path)
	}
	return text, err
}

// ReadWith reads several files as one, like [Read], with a function that reads each path.
func ReadWith(read func(path string) ([]byte, error), paths ...string) (*Config, error) {
	merged := Config{settings: map[string]string{}}
	for _, path := range paths {
		text, err := read(path)
		if err != nil {
			return nil, fmt.Errorf("config: %w", err)
		}
		c, err := parse(path, text)
		if err == nil {
			err = merged.add(c)
		}
		if err != nil {
			return nil, err
		}
	}
	merged.File = strings.Join(paths, ", ")
	if err := merged.compileRules(); err != nil {
		return nil, err
	}
	return &merged, nil
}

// add adds the contents of another file, which may not repeat any. Names of rules are compared later.
func (c *Config) add(next *Config) error {
	twice := func(what string) error {
		return headgate.Invalid(next.File, "%s: is in %s too", what, strings.Join(c.Files, " or "))
	}
	switch {
	case next.Revision != 0 && c.Revision != 0:
		return twice("revision")
	case next.AllowNotations != nil && c.AllowNotations != nil:
		return twice("allow_notations")
	}
	c.Revision = cmp.Or(c.Revision, next.Revision)
	c.AllowNotations = cmp.Or(c.AllowNotations, next.AllowNotations)
	for name, value := range next.settings {
		if _, set := c.settings[name]; set {
			return twice(name)
		}
		c.settings[name] = value
	}
	if c.Limits == nil {
		c.Limits = next.Limits[:0:0] // empty, and nil only if those are
	}
	for _, l := range next.Limits {
		if _, exists := c.find(l.Name()); exists {
			return twice("limits." + l.Name())
		}
		c.Limits = append(c.Limits, l)
	}
	for _, p := range next.Plans {
		if slices.ContainsFunc(c.Plans, func(other catalog.Plan) bool { return other.Name == p.Name }) {
			return twice("plans." + p.Name)
		}
		c.Plans = append(c.Plans, p)
	}
	for model, price := range next.Prices {
		if _, there := c.Prices[model]; there {
			return twice("prices." + model)
		}
		if c.Prices == nil {
			c.Prices = llm.Prices{}
		}
		c.Prices[model] = price
	}
	c.rules.Rules = append(c.rules.Rules, next.rules.Rules...)
	c.rules.Allow = append(c.rules.Allow, next.rules.Allow...)
	c.rules.Block = append(c.rules.Block, next.rules.Block...)
	c.Files = append(c.Files, next.Files...)
	return nil
}

// variable matches ${NAME}, ${NAME:-DEFAULT}, whose default is for an unset or empty variable, $$ for a $, and a ${
// that begins neither, which is an error.
var variable = regexp.MustCompile(`\$(\$|\{([A-Za-z_][A-Za-z0-9_]*)(:-([^}]*))?\}|\{)`)

// expand replaces environment variables in a text by their values; problem says what is wrong with the text.
func expand(text string) (expanded, problem string) {
	expanded = variable.ReplaceAllStringFunc(text, func(found string) string {
		if found == "$$" {
			return "$"
		}
		m := variable.FindStringSubmatch(found)
		value, set := os.LookupEnv(m[2])
		switch {
		case m[2] == "":
			problem = "${ begins the name of a variable, such as ${NAME}; write $${ for the text"
		case m[3] != "" && value == "":
			return m[4]
		case !set:
			problem = "the variable " + m[2] + " is not set; ${" + m[2] + ":-VALUE} has a value for that case"
		}
		return value
	})
	return expanded, problem
}
