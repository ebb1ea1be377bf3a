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
)

// Load reads the file that flags or the variable name, if they name one.
func Load(flags Flags) (*Config, error) {
	for _, name := range removed {
		variable := Setting{Name: name}.Variable()
		if _, set := os.LookupEnv(variable); set {
			return nil, headgate.Invalid(variable, wasRemoved)
		}
	}
	file, err := (&Config{}).Get(File, flags)
	if err != nil {
		return nil, err
	}
	if file.By == "" {
		return &Config{}, nil
	}
	return Read(list(file.Value)...)
}

// Read reads files as one. A setting or a limit may be in one of them only.
func Read(paths ...string) (*Config, error) {
	return ReadWith(func(path string) ([]byte, error) {
		if path == "/dev/stdin" || strings.HasPrefix(path, "/dev/fd/") { // somebody writes into it, as of <(...)
			text, err := os.ReadFile(path)
			return notEmpty(path, text, err)
		}
		return ReadFile(path)
	}, paths...)
}

// ReadFile reads a file that can be read again. Another kind, such as a named pipe, has its text once, and would be
// waited for. An empty file is an error: it is being written, or was cut off, and does not say that there are no limits
// any more.
func ReadFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file: it cannot be read again", path)
	}
	text, err := os.ReadFile(path)
	return notEmpty(path, text, err)
}

func notEmpty(path string, text []byte, err error) ([]byte, error) {
	if err == nil && len(bytes.TrimSpace(text)) == 0 {
		err = fmt.Errorf("%s is empty; write {} into it for a file that says nothing", path)
	}
	return text, err
}

// ReadWith reads each path by a function: see [Read].
func ReadWith(read func(path string) ([]byte, error), paths ...string) (*Config, error) {
	all := Config{said: map[string]string{}}
	for _, path := range paths {
		text, err := read(path)
		if err != nil {
			return nil, fmt.Errorf("config: %w", err)
		}
		c, err := parse(path, text)
		if err == nil {
			err = all.add(c)
		}
		if err != nil {
			return nil, err
		}
	}
	all.File = strings.Join(paths, ", ")
	if err := all.compileRules(); err != nil {
		return nil, err
	}
	return &all, nil
}

// add adds what another file says.
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
	for name, value := range next.said {
		if _, said := c.said[name]; said {
			return twice(name)
		}
		c.said[name] = value
	}
	if c.Limits == nil {
		c.Limits = next.Limits[:0:0]
	}
	for _, l := range next.Limits {
		if _, there := c.find(l.Name()); there {
			return twice("limits." + l.Name())
		}
		c.Limits = append(c.Limits, l)
	}
	for _, p := range next.Plans {
		if slices.ContainsFunc(c.Plans, func(have catalog.Plan) bool { return have.Name == p.Name }) {
			return twice("plans." + p.Name)
		}
		c.Plans = append(c.Plans, p)
	}
	c.rules.Rules = append(c.rules.Rules, next.rules.Rules...)
	c.rules.Allow = append(c.rules.Allow, next.rules.Allow...)
	c.rules.Block = append(c.rules.Block, next.rules.Block...)
	c.Files = append(c.Files, next.Files...)
	return nil
}

// variable is ${NAME}, or ${NAME:-what stands for it where it is not set or empty}. $$ is a $.
var variable = regexp.MustCompile(`\$(\$|\{([A-Za-z_][A-Za-z0-9_]*)(:-([^}]*))?\}|\{)`)

// expand puts the values of environment variables into a text, or says what is wrong with it.
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
