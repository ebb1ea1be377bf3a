// Package config reads the configuration: a YAML file, environment variables
// and flags, in one struct.
package config

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/server/rules"
	"github.com/headgate/headgate/internal/server/strict"
)

// The defaults.
const (
	DefaultStore = "sqlite:" + stateFile // where the current folder can be written: see state.go
	DefaultHTTP  = "127.0.0.1:8080"
)

// Config is a parsed file. The zero Config is an empty file.
type Config struct {
	File           string               // it was read from, for people; empty: none. Several have commas between them
	Files          []string             // their paths
	AllowNotations *bool                // accept notations in requests; nil: only without a file
	Revision       int64                // says which file is newer; 0: it does not say
	Limits         []catalog.Definition // nil: the file says nothing of limits
	Plans          []catalog.Plan
	Notations      Notations // bounds of notations, see Reader.Notations

	Rules *rules.Rules // which charges HTTP requests carry; nil: the files say nothing of them

	said  map[string]string // of settings, by name
	rules rules.Definitions // that Rules are made of
}

// Find implements headgate.Names, by the limits of the file alone.
func (c *Config) Find(_ context.Context, name, _ string) (headgate.Limit, error) {
	if l, ok := c.find(name); ok {
		return l, nil
	}
	return headgate.Limit{}, c.unknown(name)
}

// FindAll implements headgate.Names, by the limits of the file alone.
func (c *Config) FindAll(_ context.Context, charges []headgate.Charge) error {
	for i := range charges {
		if l := charges[i].Limit; l.OnlyName() {
			found, ok := c.find(l.Name())
			if !ok {
				return c.unknown(l.Name())
			}
			charges[i].Limit = found
		}
	}
	return nil
}

// List implements catalog.Names, by the limits of the file alone.
func (c *Config) List() []catalog.Definition { return slices.Clone(c.Limits) }

// Err implements catalog.Names: a file was read, or there is no Config.
func (c *Config) Err() error { return nil }

// Defines returns what the file defines.
func (c *Config) Defines() catalog.File {
	return catalog.File{Path: c.File, Limits: c.Limits, Plans: c.Plans, Revision: c.Revision}
}

func (c *Config) find(name string) (headgate.Limit, bool) {
	i := slices.IndexFunc(c.Limits, func(l catalog.Definition) bool { return l.Name() == name })
	if i < 0 {
		return headgate.Limit{}, false
	}
	return c.Limits[i].Limit, true
}

// Resolve returns the limit that a person means: by its name alone, or by a
// notation where these are accepted. Errors are headgate.ErrInvalid.
func (c *Config) Resolve(nameOrNotation string) (headgate.Limit, error) {
	if headgate.ValidName(nameOrNotation) == nil {
		return headgate.Named(nameOrNotation)
	}
	if !c.notations() {
		return headgate.Limit{}, headgate.Invalid("limit",
			"%.100q is not the name of a limit, and notations are not accepted (allow_notations in %s)",
			nameOrNotation, c.File)
	}
	l, err := headgate.Parse(nameOrNotation)
	if err != nil {
		return l, err
	}
	return l, c.Notations.valid(l)
}

// Limit resolves names by the file alone.
func (c *Config) Limit(nameOrNotation string) (headgate.Limit, error) {
	l, err := c.Resolve(nameOrNotation)
	if err != nil || !l.OnlyName() {
		return l, err
	}
	return c.Find(context.Background(), nameOrNotation, "")
}

func (c *Config) notations() bool {
	if c.AllowNotations != nil {
		return *c.AllowNotations
	}
	return c.File == ""
}

// namesShown is how many names an error lists: a client that asks for a name that is not
// there, many times a second, should not have thousands of them put together.
const namesShown = 20

func (c *Config) unknown(name string) error {
	if c.File == "" {
		return fmt.Errorf("%w: %.100q; names come from a config file, without one write a notation such as "+
			"token-bucket 100/s", headgate.ErrUnknownLimit, name)
	}
	names := make([]string, min(len(c.Limits), namesShown))
	for i := range names {
		names[i] = c.Limits[i].Name()
	}
	if more := len(c.Limits) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return fmt.Errorf("%w: %.100q; %s has %s", headgate.ErrUnknownLimit, name, c.File, strings.Join(names, ", "))
}

// Parse reads the text of a file. Errors name the file, line and column.
func Parse(path string, text []byte) (*Config, error) {
	return ReadWith(func(string) ([]byte, error) { return text, nil }, path)
}

// parse leaves out the rules, which may name limits of another file.
func parse(path string, text []byte) (*Config, error) {
	c := &Config{File: path, Files: []string{path}, said: map[string]string{}}
	root, err := strict.Read(path, text)
	if err != nil {
		return nil, err
	}
	if root.Node == nil || root.Null() {
		return c, nil
	}
	known := strict.Keys{
		"allow_notations": func(v strict.Value) error {
			c.AllowNotations = new(bool)
			return trueOrFalse(c.AllowNotations)(v)
		},
		"revision": c.revision,
		"limits":   c.limits,
		"plans":    c.plans,
		"rules":    c.ruleList,
		"allow":    readTexts(&c.rules.Allow),
		"block":    readTexts(&c.rules.Block),
	}
	for _, s := range Settings {
		if !s.NotFile {
			known[s.Name] = c.setting(s)
		}
	}
	if err := fields(root, known); err != nil {
		return nil, err
	}
	return c, nil
}

// removed are settings and fields of limits that there are no longer, and wasRemoved says what to do instead.
var removed = []string{"max_keys", "notation_max_keys"}

const wasRemoved = "was removed: each key has a cell of its own. Leave it out; a store in memory keeps as many keys " +
	"as its URL says (memory:?max_keys=N), and a limit by address in front bounds what callers can invent"

// fields reads a mapping of fields.
func fields(v strict.Value, known strict.Keys) error {
	for _, name := range removed {
		if v.Member(name) != nil {
			return v.At.In(name).Wrong(wasRemoved)
		}
	}
	return v.Fields(known)
}

func text(to *string) func(strict.Value) error {
	return func(v strict.Value) error {
		if v.Kind != yaml.ScalarNode || v.Null() {
			return v.At.Wrong("must be text")
		}
		value, problem := expand(v.Value)
		if problem != "" {
			return v.At.Wrong("%s", problem)
		}
		*to = value
		return nil
	}
}

// setting reads what the file says of a setting.
func (c *Config) setting(s Setting) func(strict.Value) error {
	return func(v strict.Value) error {
		texts := make([]rules.Text, 1)
		read := readText(&texts[0])
		if s.List {
			texts = nil
			read = readTexts(&texts)
		}
		if err := read(v); err != nil {
			return err
		}
		values := make([]string, len(texts))
		for i := range texts {
			values[i] = texts[i].Value
		}
		c.said[s.Name] = strings.Join(values, ",")
		return nil
	}
}

func (c *Config) revision(v strict.Value) error {
	if err := v.Decode(&c.Revision); err != nil || v.Tag != "!!int" || c.Revision < 1 {
		return v.At.Wrong("must be a whole number from 1 on")
	}
	return nil
}

// limits reads the mapping of names to limits.
func (c *Config) limits(v strict.Value) error {
	c.Limits = []catalog.Definition{} // there are none, but that is said
	return pairs(v, func(name string, v strict.Value) (err error) {
		at, notation := v, ""
		var l catalog.Definition
		switch v.Kind {
		case yaml.ScalarNode:
			err = text(&notation)(v)
		case yaml.MappingNode:
			err = fields(v, strict.Keys{
				"limit": func(v strict.Value) error {
					at = v
					return text(&notation)(v)
				},
				"description": text(&l.Description),
			})
		default:
			err = v.At.Wrong("must be one line, or a mapping with limit and description")
		}
		if err == nil {
			l.Limit, err = limit(at, name, notation)
		}
		c.Limits = append(c.Limits, l)
		return err
	})
}

// limit reads the notation of a limit that stands at a place of the file.
func limit(v strict.Value, name, notation string) (headgate.Limit, error) {
	l, err := headgate.ParseNamed(name, notation)
	if err != nil {
		place := v.At
		var pe *headgate.ParseError
		if errors.As(err, &pe) && v.Style == 0 { // plain text: the column is known
			place.Col += pe.Offset
		}
		return l, place.Wrong("%v", err)
	}
	return l, nil
}

// plans reads the mapping of names to plans: each is a mapping of names of limits to notations.
func (c *Config) plans(v strict.Value) error {
	return pairs(v, func(name string, v strict.Value) error {
		plan := catalog.Plan{Name: name}
		err := pairs(v, func(name string, v strict.Value) error {
			var notation string
			if err := text(&notation)(v); err != nil {
				return err
			}
			l, err := limit(v, name, notation)
			plan.Limits = append(plan.Limits, l)
			return err
		})
		if err != nil {
			return err
		}
		if len(plan.Limits) == 0 {
			return v.At.Wrong("has no limits")
		}
		slices.SortFunc(plan.Limits, func(a, b headgate.Limit) int { return strings.Compare(a.Name(), b.Name()) })
		c.Plans = append(c.Plans, plan)
		return nil
	})
}

// pairs reads a mapping of names to something, or nothing.
func pairs(v strict.Value, read func(name string, v strict.Value) error) error {
	if v.Null() {
		return nil
	}
	return v.Members(func(key, value strict.Value) error {
		if err := headgate.ValidName(key.Value); err != nil {
			return key.At.Wrong("%v", err)
		}
		return read(key.Value, value)
	})
}
