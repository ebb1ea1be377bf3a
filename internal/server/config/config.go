// Package config reads the configuration: a YAML file, environment variables
// and flags, in one struct.
package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/server/rules"
	"github.com/headgate/headgate/store"
)

// The defaults.
const (
	DefaultStore = "sqlite:" + stateFile // where the current folder can be written: see state.go
	DefaultHTTP  = "127.0.0.1:8080"
)

// Config is what a file says. The zero Config is an empty file.
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

// Defines is what the file defines.
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

// Limit is Resolve by the file alone: names are those of its limits.
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

// parse is Parse without the rules, which may name limits of another file.
func parse(path string, text []byte) (*Config, error) {
	c := &Config{File: path, Files: []string{path}, said: map[string]string{}}
	var doc yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(text))
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return c, nil
		}
		return nil, syntaxError(path, text, err)
	}
	var more yaml.Node
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		if err != nil {
			return nil, syntaxError(path, text, err)
		}
		return nil, fail(path, &more, "config", "a second document; there may be one")
	}
	root := doc.Content[0]
	if root.Tag == "!!null" {
		return c, nil
	}
	known := map[string]func(*yaml.Node) error{
		"allow_notations": func(n *yaml.Node) error {
			c.AllowNotations = new(bool)
			return c.trueOrFalse("allow_notations", c.AllowNotations)(n)
		},
		"revision": c.revision,
		"limits":   c.limits,
		"plans":    c.plans,
		"rules":    c.ruleList,
		"allow":    c.saidAll("allow", &c.rules.Allow),
		"block":    c.saidAll("block", &c.rules.Block),
	}
	for _, s := range Settings {
		if !s.NotFile {
			known[s.Name] = c.setting(s)
		}
	}
	if err := c.fields(root, "config", known); err != nil {
		return nil, err
	}
	return c, nil
}

// members hands over the names and the values of a mapping. A name that is said twice is an error at its place, which
// names it with what stands before it.
func (c *Config) members(n *yaml.Node, field, before, of string, read func(key, value *yaml.Node) error) error {
	if n.Kind != yaml.MappingNode {
		return fail(c.File, n, field, "must be a mapping of names to "+of)
	}
	seen := map[string]bool{}
	for i := 0; i < len(n.Content); i += 2 {
		key := n.Content[i]
		if seen[key.Value] {
			return fail(c.File, key, before+key.Value, "is said twice")
		}
		seen[key.Value] = true
		if err := read(key, resolved(n.Content[i+1])); err != nil {
			return err
		}
	}
	return nil
}

// fields reads a mapping of fields. One that is not known is an error at its place.
func (c *Config) fields(n *yaml.Node, what string, known map[string]func(*yaml.Node) error) error {
	return c.members(n, what, "", "values", func(key, value *yaml.Node) error {
		if read := known[key.Value]; read != nil {
			return read(value)
		}
		if advice := removed[key.Value]; advice != "" {
			return fail(c.File, key, key.Value, advice)
		}
		return fail(c.File, key, fieldName(key.Value), "is not a field of "+what+"; known are "+
			strings.Join(slices.Sorted(maps.Keys(known)), ", "))
	})
}

// fieldName shows a field that is not known. It may be a URL with a password that
// lost its field.
func fieldName(name string) string {
	if strings.ContainsAny(name, ":@/=") {
		return store.RedactURL(name)
	}
	return name
}

func (c *Config) text(name string, to *string) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
			return fail(c.File, n, name, "must be text")
		}
		value, problem := expand(n.Value)
		if problem != "" {
			return fail(c.File, n, name, problem)
		}
		*to = value
		return nil
	}
}

// setting reads what the file says of a setting.
func (c *Config) setting(s Setting) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		texts := make([]rules.Text, 1)
		read := c.said1(s.Name, &texts[0])
		if s.List {
			texts = nil
			read = c.saidAll(s.Name, &texts)
		}
		if err := read(n); err != nil {
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

func (c *Config) revision(n *yaml.Node) error {
	if err := n.Decode(&c.Revision); err != nil || n.Tag != "!!int" || c.Revision < 1 {
		return fail(c.File, n, "revision", "must be a whole number from 1 on")
	}
	return nil
}

// limits reads the mapping of names to limits.
func (c *Config) limits(n *yaml.Node) error {
	c.Limits = []catalog.Definition{} // there are none, but that is said
	return c.pairs(n, "limits", "limits", func(key, value *yaml.Node) (err error) {
		field, at, notation := "limits."+key.Value, value, ""
		var l catalog.Definition
		switch value.Kind {
		case yaml.ScalarNode:
			err = c.text(field, &notation)(value)
		case yaml.MappingNode:
			err = c.fields(value, field, map[string]func(*yaml.Node) error{
				"limit": func(n *yaml.Node) error {
					at = n
					return c.text(field+".limit", &notation)(n)
				},
				"description": c.text(field+".description", &l.Description),
			})
		default:
			err = fail(c.File, value, field, "must be one line, or a mapping with limit and description")
		}
		if err == nil {
			l.Limit, err = c.limit(at, field, key.Value, notation)
		}
		c.Limits = append(c.Limits, l)
		return err
	})
}

// limit reads the notation of a limit that stands at a place of the file.
func (c *Config) limit(at *yaml.Node, field, name, notation string) (headgate.Limit, error) {
	l, err := headgate.ParseNamed(name, notation)
	if err != nil {
		place := *at
		var pe *headgate.ParseError
		if errors.As(err, &pe) && at.Style == 0 { // plain text: the column is known
			place.Column += pe.Offset
		}
		return l, fail(c.File, &place, field, err.Error())
	}
	return l, nil
}

// fail is an error at a place of the file.
func fail(path string, n *yaml.Node, field, problem string) error {
	return headgate.Invalid(place(path, n), "%s: %s", field, problem)
}

// syntaxError adds the column, which the YAML library does not return: that of
// the first character of the line it names.
func syntaxError(path string, text []byte, err error) error {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 1
	if _, scan := fmt.Sscanf(message, "line %d:", &line); scan == nil {
		_, message, _ = strings.Cut(message, ": ")
	}
	column := 1
	if lines := strings.Split(string(text), "\n"); line <= len(lines) {
		l := lines[line-1]
		column += len(l) - len(strings.TrimLeft(l, " \t"))
	}
	return headgate.Invalid(fmt.Sprintf("%s:%d:%d", path, line, column), "%s", message)
}
