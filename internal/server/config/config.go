// Package config reads the configuration from YAML files, environment variables and flags.
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
	"github.com/headgate/headgate/llm"
)

// The defaults.
const (
	DefaultStore = "sqlite:" + stateFile // if the current folder is writable: see state.go
	DefaultHTTP  = "127.0.0.1:8080"
)

// Config has the contents of parsed files. The zero Config is an empty file.
type Config struct {
	File           string               // paths of the files, for people, separated by commas; empty: no file
	Files          []string             // paths of the files
	AllowNotations *bool                // accept notations in requests; nil: only without a file
	Revision       int64                // a newer file has a greater one; 0: not set
	Limits         []catalog.Definition // nil: the files have no limits member
	Plans          []catalog.Plan
	Prices         llm.Prices     // of a million tokens, by model
	NotationBounds NotationBounds // the server sets them, by Reader.NotationBounds

	Rules *rules.Rules // charges of HTTP requests; nil: the files have no rules

	settings map[string]string // values of settings, by name
	rules    rules.Definitions // source of Rules
}

// Find implements headgate.Names with the limits of the file.
func (c *Config) Find(_ context.Context, name, _ string) (headgate.Limit, error) {
	if l, ok := c.find(name); ok {
		return l, nil
	}
	return headgate.Limit{}, c.unknownLimit(name)
}

// FindAll implements headgate.Names with the limits of the file.
func (c *Config) FindAll(_ context.Context, charges []headgate.Charge) error {
	for i := range charges {
		if l := charges[i].Limit; l.OnlyName() {
			found, ok := c.find(l.Name())
			if !ok {
				return c.unknownLimit(l.Name())
			}
			charges[i].Limit = found
		}
	}
	return nil
}

// List implements catalog.Names with the limits of the file.
func (c *Config) List() []catalog.Definition { return slices.Clone(c.Limits) }

// Err implements catalog.Names. The limits of a Config are always available.
func (c *Config) Err() error { return nil }

// CatalogFile returns the limits and plans that the file defines.
func (c *Config) CatalogFile() catalog.File {
	return catalog.File{Path: c.File, Limits: c.Limits, Plans: c.Plans, Revision: c.Revision}
}

// find returns the file's limit of a name.
func (c *Config) find(name string) (headgate.Limit, bool) {
	i := slices.IndexFunc(c.Limits, func(l catalog.Definition) bool { return l.Name() == name || l.RenamedTo == name })
	if i < 0 {
		return headgate.Limit{}, false
	}
	return c.Limits[i].Limit, true
}

// Resolve returns the limit of a name, not looked up, or of an accepted notation. Errors are headgate.ErrInvalid.
func (c *Config) Resolve(nameOrNotation string) (headgate.Limit, error) {
	if headgate.ValidName(nameOrNotation) == nil {
		return headgate.Named(nameOrNotation)
	}
	if !c.acceptsNotations() {
		return headgate.Limit{}, headgate.Invalid("limit",
			"%.100q is not the name of a limit, and notations are not accepted (allow_notations in %s)",
			nameOrNotation, c.File)
	}
	l, err := headgate.Parse(nameOrNotation)
	if err != nil {
		return l, err
	}
	return l, c.NotationBounds.check(l)
}

// Limit returns the limit of a name, from the file, or of a notation.
func (c *Config) Limit(nameOrNotation string) (headgate.Limit, error) {
	l, err := c.Resolve(nameOrNotation)
	if err != nil || !l.OnlyName() {
		return l, err
	}
	return c.Find(context.Background(), nameOrNotation, "")
}

// acceptsNotations reports whether requests may have notations.
func (c *Config) acceptsNotations() bool {
	if c.AllowNotations != nil {
		return *c.AllowNotations
	}
	return c.File == ""
}

// maxListed is how many names an error lists. Thousands would be costly if a client sends unknown names all the time.
const maxListed = 20

// unknownLimit returns the error about a name that is not in the file.
func (c *Config) unknownLimit(name string) error {
	if c.File == "" {
		return fmt.Errorf("%w: %.100q; names come from a config file, without one write a notation such as "+
			"token-bucket 100/s", headgate.ErrUnknownLimit, name)
	}
	names := make([]string, min(len(c.Limits), maxListed))
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

// parse reads a file without compiling its rules, which may name limits of another file.
func parse(path string, text []byte) (*Config, error) {
	c := &Config{File: path, Files: []string{path}, settings: map[string]string{}}
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
			return readBool(c.AllowNotations)(v)
		},
		"revision": c.readRevision,
		"limits":   c.readLimits,
		"plans":    c.readPlans,
		"prices":   c.readPrices,
		"rules":    c.readRules,
		"allow":    readTexts(&c.rules.Allow),
		"block":    readTexts(&c.rules.Block),
	}
	for _, s := range Settings {
		if !s.NotFile {
			known[s.Name] = c.readSetting(s)
		}
	}
	return c, readFields(root, known)
}

// removedSettings are settings and fields of limits that no longer exist, and removedHint says what to use instead.
var removedSettings = []string{"max_keys", "notation_max_keys"}

const removedHint = "was removed: each key has a cell of its own. Leave it out; a store in memory keeps as many keys " +
	"as its URL says (memory:?max_keys=N), and a limit by address in front bounds what callers can invent"

// readFields reads a mapping of known fields, and rejects removed ones.
func readFields(v strict.Value, known strict.Keys) error {
	for _, name := range removedSettings {
		if v.Member(name) != nil {
			return v.At.In(name).Wrong(removedHint)
		}
	}
	return v.Fields(known)
}

// readPlain returns a function that reads a text into to, and expands variables in it.
func readPlain(to *string) func(strict.Value) error {
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

// readSetting returns a function that reads the value of a setting; a list is joined with commas.
func (c *Config) readSetting(s Setting) func(strict.Value) error {
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
		c.settings[s.Name] = strings.Join(values, ",")
		return nil
	}
}

// readRevision reads the revision of the file.
func (c *Config) readRevision(v strict.Value) error {
	if err := v.Decode(&c.Revision); err != nil || v.Tag != "!!int" || c.Revision < 1 {
		return v.At.Wrong("must be a whole number from 1 on")
	}
	return nil
}

// readLimits reads the mapping of names to limits.
func (c *Config) readLimits(v strict.Value) error {
	c.Limits = []catalog.Definition{} // not nil, even if the mapping is empty
	renamed := false
	return readPairs(v, func(name string, v strict.Value) (err error) {
		at, notation, from := v, "", ""
		var l catalog.Definition
		switch v.Kind {
		case yaml.ScalarNode:
			err = readPlain(&notation)(v)
		case yaml.MappingNode:
			err = readFields(v, strict.Keys{
				"limit": func(v strict.Value) error {
					at = v
					return readPlain(&notation)(v)
				},
				"description":  readPlain(&l.Description),
				"renamed_from": readPlain(&from),
			})
		default:
			err = v.At.Wrong("must be one line, or a mapping with limit, description and renamed_from")
		}
		if from != "" {
			l.RenamedTo, name, renamed = name, from, true
		}
		if err == nil {
			l.Limit, err = parseLimit(at, name, notation)
		}
		if renamed && err == nil { // else names differ: they are keys of a mapping
			if _, exists := c.find(name); exists {
				err = v.At.Wrong("is the limit %s, which is there too", name)
			}
		}
		c.Limits = append(c.Limits, l)
		return err
	})
}

// parseLimit parses the notation of a limit, which v has in the file.
func parseLimit(v strict.Value, name, notation string) (headgate.Limit, error) {
	l, err := headgate.ParseNamed(name, notation)
	if err != nil {
		place := v.At
		if pe, ok := errors.AsType[*headgate.ParseError](err); ok && v.Style == 0 { // plain text: the column is known
			place.Col += pe.Offset
		}
		return l, place.Wrong("%v", err)
	}
	return l, nil
}

// readPlans reads the mapping of names to plans. A plan is a mapping of names of limits to notations.
func (c *Config) readPlans(v strict.Value) error {
	return readPairs(v, func(name string, v strict.Value) error {
		plan := catalog.Plan{Name: name}
		err := readPairs(v, func(name string, v strict.Value) error {
			var notation string
			if err := readPlain(&notation)(v); err != nil {
				return err
			}
			l, err := parseLimit(v, name, notation)
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

// readPrices reads the mapping of models to prices.
func (c *Config) readPrices(v strict.Value) error {
	c.Prices = llm.Prices{}
	return v.Members(func(model, v strict.Value) error {
		var p llm.Price
		known := strict.Keys{}
		for name, to := range map[string]*headgate.Cost{
			"input": &p.Input, "cached_input": &p.CachedInput, "cache_write": &p.CacheWrite,
			"long_cache_write": &p.LongCacheWrite, "output": &p.Output,
		} {
			known[name] = func(v strict.Value) (err error) {
				if *to, err = headgate.ParseCostUp(v.Value); err != nil {
					err = v.At.Wrong("%v", err)
				}
				return err
			}
		}
		err := v.Fields(known)
		if err == nil && (p.Input.IsZero() || p.Output.IsZero()) {
			err = v.At.Wrong("needs input and output, what a million tokens of these cost; 0 for nothing")
		}
		c.Prices[model.Value] = p
		return err
	})
}

// readPairs calls read for each pair of a mapping whose keys are names. The mapping may be null.
func readPairs(v strict.Value, read func(name string, v strict.Value) error) error {
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
