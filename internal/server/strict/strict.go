// Package strict reads YAML files and ignores nothing: an unknown key is an error, and so is a repeated key. Errors
// have the position in the file and the path of the value.
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

// Bounds of a file, which catch aliases that name each other, and errors in a program that writes the file.
const (
	maxValues = 500_000 // the values of an alias are counted each time
	maxMerges = 64      // depth of mappings that are merged into each other
)

// Place is a place in a file.
type Place struct {
	File      string // name of the file or of another source
	Line, Col int    // 0 if the source has no lines
	Path      string // such as descriptors[0].rate_limit
}

// In returns the place of a member of p: path is a name, or an index such as [0].
func (p Place) In(path string) Place {
	if p.Path != "" && path != "" && path[0] != '[' {
		path = "." + path
	}
	p.Path += path
	return p
}

// String returns the place as file:line:col: path.
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

// Value is a value of a file with its place. For an alias, Node is its target, and At the place of the alias.
type Value struct {
	*yaml.Node
	At         Place
	valueCount *int // number of values that were read from the file
}

// Read parses the text of a file. The Node of an empty file is nil. Errors are headgate.ErrInvalid.
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
	return Value{valueCount: new(int)}.value(root.Content[0], Place{File: file})
}

// syntaxError adds a column to an error of the YAML library, which has only a line: that of its first character.
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

// value counts a node, resolves aliases, and returns its Value.
func (v Value) value(n *yaml.Node, at Place) (Value, error) {
	at.Line, at.Col = n.Line, n.Column
	if *v.valueCount++; *v.valueCount > maxValues {
		return Value{}, at.Wrong("the file says more than %d values", maxValues)
	}
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return Value{n, at, v.valueCount}, nil
}

// Null reports whether the value is null or empty.
func (v Value) Null() bool { return v.Tag == "!!null" }

// Keys has a function for each known key of a mapping, which reads its value.
type Keys map[string]func(Value) error

// Fields reads a mapping whose keys are known. Any other key is an error.
func (v Value) Fields(known Keys) error {
	return v.Members(func(key, value Value) error {
		if read := known[key.Value]; read != nil {
			return read(value)
		}
		return key.At.Wrong("the key is not known here; known are %s",
			strings.Join(slices.Sorted(maps.Keys(known)), ", "))
	})
}

// Members calls read for each key of a mapping. A repeated key is an error. A merged key (<<) counts unless the mapping
// has the key itself.
func (v Value) Members(read func(key, value Value) error) error {
	return v.members(read, map[string]bool{}, 0)
}

// members is the recursive part of Members. seenKeys has the keys that were read before, which override those of v.
func (v Value) members(read func(key, value Value) error, seenKeys map[string]bool, depth int) error {
	if v.Kind != yaml.MappingNode {
		return v.At.Wrong("must be a mapping, of keys with values")
	}
	if depth > maxMerges {
		return v.At.Wrong("merges more than %d mappings into each other", maxMerges)
	}
	var merges []*yaml.Node
	ownKeys := map[string]bool{}
	for i := 0; i < len(v.Content); i += 2 {
		k, content := v.Content[i], v.Content[i+1]
		if k.Tag == "!!merge" {
			merges = append(merges, content)
			continue
		}
		name := k.Value
		if strings.ContainsAny(name, ":@/=") { // an unknown key may be a URL with a password
			name = store.RedactURL(name)
		}
		key := Value{k, v.At.In(name), v.valueCount}
		key.At.Line, key.At.Col = k.Line, k.Column
		switch {
		case k.Kind != yaml.ScalarNode:
			return key.At.Wrong("the key is not known here")
		case ownKeys[k.Value]:
			return key.At.Wrong("is said twice")
		case seenKeys[k.Value]: // overridden
			continue
		}
		ownKeys[k.Value] = true
		value, err := v.value(content, key.At)
		if err == nil {
			err = read(key, value)
		}
		if err != nil {
			return err
		}
	}
	maps.Copy(seenKeys, ownKeys)
	for _, m := range merges {
		if err := v.merge(m, read, seenKeys, depth); err != nil {
			return err
		}
	}
	return nil
}

// merge reads the value of a merge key: one mapping, or a list of them.
func (v Value) merge(n *yaml.Node, read func(key, value Value) error, seenKeys map[string]bool, depth int) error {
	m, err := v.value(n, v.At)
	if err != nil {
		return err
	}
	if m.Kind != yaml.SequenceNode {
		return m.members(read, seenKeys, depth+1)
	}
	for _, value := range m.Content {
		if err := v.merge(value, read, seenKeys, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// Member returns the value of a key of a mapping, which is not merged into it; nil if there is none.
func (v Value) Member(key string) *yaml.Node {
	for i := 0; i+1 < len(v.Content) && v.Kind == yaml.MappingNode; i += 2 {
		if v.Content[i].Value == key {
			return v.Content[i+1]
		}
	}
	return nil
}

// Each calls read for the values of a list; null is an empty list.
func (v Value) Each(read func(Value) error) error {
	if v.Null() {
		return nil
	}
	if v.Kind != yaml.SequenceNode {
		return v.At.Wrong("must be a list")
	}
	for i, n := range v.Content {
		value, err := v.value(n, v.At.In(fmt.Sprintf("[%d]", i)))
		if err == nil {
			err = read(value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
