// Package strict reads files of YAML in which nothing is passed over: a key that is not known is an error, and so is
// one that is said twice. Errors say where in the file something is wrong, and of what.
package strict

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// Bounds of a file, so that an error in a program that writes it, or aliases that name each other, are found when it
// is read.
const (
	maxValues = 500_000 // those of an alias counted each time
	maxMerges = 64      // of mappings into each other
)

// Place is a place in a file.
type Place struct {
	File      string // or the name of what is no file
	Line, Col int    // 0: there are no lines
	Path      string // as descriptors[0].rate_limit
}

// In returns a place within another one: a name, or an index as [0].
func (p Place) In(path string) Place {
	if p.Path != "" && path != "" && path[0] != '[' {
		path = "." + path
	}
	p.Path += path
	return p
}

// String writes a place as file:line:col: path.
func (p Place) String() string {
	text := p.File
	if p.Line > 0 {
		text = fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Col)
	}
	if p.Path != "" {
		text += ": " + p.Path
	}
	return text
}

// Wrong returns an error at a place. It is headgate.ErrInvalid.
func (p Place) Wrong(format string, args ...any) error {
	return headgate.Invalid(p.String(), format, args...)
}

// Value is a value of a file with its place: what an alias stands for, where the alias stands.
type Value struct {
	*yaml.Node
	At   Place
	seen *int // values of the file
}

// Read reads the text of a file. The Node of an empty one is nil.
func Read(file string, text []byte) (Value, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var root, more yaml.Node
	err := decoder.Decode(&root)
	if errors.Is(err, io.EOF) {
		return Value{}, nil
	}
	if err == nil {
		if err = decoder.Decode(&more); err == nil {
			return Value{}, Place{File: file, Line: more.Line, Col: more.Column}.Wrong("begins a second document; " +
				"there may be one")
		}
	}
	if !errors.Is(err, io.EOF) {
		return Value{}, syntaxError(file, text, err)
	}
	return Value{seen: new(int)}.value(root.Content[0], Place{File: file})
}

// syntaxError adds the column, which the YAML library does not return: that of
// the first character of the line it names.
func syntaxError(file string, text []byte, err error) error {
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
	return Place{File: file, Line: line, Col: column}.Wrong("%s", message)
}

// value returns a node of the file of v.
func (v Value) value(n *yaml.Node, at Place) (Value, error) {
	at.Line, at.Col = n.Line, n.Column
	if *v.seen++; *v.seen > maxValues {
		return Value{}, at.Wrong("the file says more than %d values", maxValues)
	}
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return Value{n, at, v.seen}, nil
}

// Null reports whether nothing is said.
func (v Value) Null() bool { return v.Tag == "!!null" }

// Keys has a reader for each key of a mapping.
type Keys map[string]func(Value) error

// Fields reads a mapping that says nothing else than the known keys, as [Value.Members] does.
func (v Value) Fields(known Keys) error {
	return v.Members(func(key, value Value) error {
		if read := known[key.Value]; read != nil {
			return read(value)
		}
		return key.At.Wrong("the key is not known here; known are %s",
			strings.Join(slices.Sorted(maps.Keys(known)), ", "))
	})
}

// Members reads a mapping of any keys. Each may stand there once. What is merged (<<) counts unless the mapping says
// it itself.
func (v Value) Members(read func(key, value Value) error) error {
	return v.members(read, map[string]bool{}, 0)
}

func (v Value) members(read func(key, value Value) error, said map[string]bool, merged int) error {
	if v.Kind != yaml.MappingNode {
		return v.At.Wrong("must be a mapping, of keys with values")
	}
	if merged > maxMerges {
		return v.At.Wrong("merges more than %d mappings into each other", maxMerges)
	}
	var merges []*yaml.Node
	own := map[string]bool{}
	for i := 0; i < len(v.Content); i += 2 {
		k, content := v.Content[i], v.Content[i+1]
		if k.Tag == "!!merge" {
			merges = append(merges, content)
			continue
		}
		key := Value{k, v.At.In(shown(k.Value)), v.seen}
		key.At.Line, key.At.Col = k.Line, k.Column
		switch {
		case k.Kind != yaml.ScalarNode:
			return key.At.Wrong("the key is not known here")
		case own[k.Value]:
			return key.At.Wrong("is said twice")
		case said[k.Value]: // the mapping that is merged into says it
			continue
		}
		own[k.Value] = true
		value, err := v.value(content, key.At)
		if err == nil {
			err = read(key, value)
		}
		if err != nil {
			return err
		}
	}
	maps.Copy(said, own)
	for _, m := range merges {
		if err := v.merge(m, read, said, merged); err != nil {
			return err
		}
	}
	return nil
}

// merge reads what a mapping merges: one mapping, or a list of them.
func (v Value) merge(n *yaml.Node, read func(key, value Value) error, said map[string]bool, merged int) error {
	m, err := v.value(n, v.At)
	if err != nil {
		return err
	}
	if m.Kind != yaml.SequenceNode {
		return m.members(read, said, merged+1)
	}
	for _, one := range m.Content {
		if err := v.merge(one, read, said, merged+1); err != nil {
			return err
		}
	}
	return nil
}

// shown shows a key. One that is not known may be a URL with a password.
func shown(key string) string {
	if strings.ContainsAny(key, ":@/=") {
		return store.RedactURL(key)
	}
	return key
}

// Member returns the value of a key of a mapping; nil: there is none.
func (v Value) Member(key string) *yaml.Node {
	for i := 0; i+1 < len(v.Content) && v.Kind == yaml.MappingNode; i += 2 {
		if v.Content[i].Value == key {
			return v.Content[i+1]
		}
	}
	return nil
}

// Each reads the values of a list; null is an empty one.
func (v Value) Each(read func(Value) error) error {
	if v.Null() {
		return nil
	}
	if v.Kind != yaml.SequenceNode {
		return v.At.Wrong("must be a list")
	}
	for i, n := range v.Content {
		one, err := v.value(n, v.At.In(fmt.Sprintf("[%d]", i)))
		if err == nil {
			err = read(one)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
