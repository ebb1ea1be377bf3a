package rest_test

import (
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// node is a value of the OpenAPI document. The zero node stands for a missing value.
type node struct{ *yaml.Node }

// members returns the names and the values of a mapping.
func (n node) members() iter.Seq2[string, node] {
	return func(yield func(string, node) bool) {
		for i := 0; n.Node != nil && n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
			if !yield(n.Content[i].Value, node{n.Content[i+1]}) {
				return
			}
		}
	}
}

func (n node) get(name string) node {
	for member, v := range n.members() {
		if member == name {
			return v
		}
	}
	return node{}
}

func (n node) at(names ...string) node {
	for _, name := range names {
		n = n.get(name)
	}
	return n
}

func (n node) items() (items []node) {
	for i := 0; n.Node != nil && n.Kind == yaml.SequenceNode && i < len(n.Content); i++ {
		items = append(items, node{n.Content[i]})
	}
	return items
}

func (n node) text() string {
	if n.Node == nil {
		return ""
	}
	return n.Value
}

// name returns the last part of a $ref, which is the name of a schema.
func (n node) name() string { return n.text()[strings.LastIndex(n.text(), "/")+1:] }

// json returns the value as JSON in one line, with the members in the order of the document.
func (n node) json() string {
	if n.Node == nil {
		return ""
	}
	var parts []string
	switch n.Kind {
	case yaml.MappingNode:
		for name, v := range n.members() {
			parts = append(parts, fmt.Sprintf("%q:%s", name, v.json()))
		}
		return "{" + strings.Join(parts, ",") + "}"
	case yaml.SequenceNode:
		for _, v := range n.items() {
			parts = append(parts, v.json())
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	var v any
	if err := n.Decode(&v); err != nil {
		return err.Error()
	}
	text, _ := json.Marshal(v)
	return string(text)
}

// anchor returns the fragment of a heading.
func anchor(heading string) string {
	return strings.NewReplacer(" ", "-", "/", "", ".", "").Replace(strings.ToLower(heading))
}

// tableCell escapes a text for a cell of a table.
func tableCell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// scalar returns the schema that a $ref refers to if it is no object, or else the zero node.
func (r *reference) scalar(ref node) node {
	s := r.at("components", "schemas", ref.name())
	if ref.Node == nil || s.get("type").text() == "object" || s.get("$ref").Node != nil || s.get("anyOf").Node != nil {
		return node{}
	}
	return s
}

// about returns the description of the scalar that a $ref refers to.
func (r *reference) about(ref node) string { return r.scalar(ref).get("description").text() }

// names returns the names of the schemas of objects that a schema refers to.
func (r *reference) names(s node) (names []string) {
	if s.Node == nil {
		return nil
	}
	if ref := s.get("$ref"); ref.Node != nil && r.scalar(ref).Node == nil {
		names = append(names, ref.name())
	}
	names = append(names, r.names(s.get("items"))...)
	for _, list := range []string{"anyOf", "oneOf"} {
		for _, member := range s.get(list).items() {
			names = append(names, r.names(member)...)
		}
	}
	for _, f := range s.get("properties").members() {
		names = append(names, r.names(f)...)
	}
	return names
}

// typ returns the type of a value with its bounds, or a link to the object.
func (r *reference) typ(s node) string {
	if ref := s.get("$ref"); ref.Node != nil {
		if scalar := r.scalar(ref); scalar.Node != nil {
			return r.typ(scalar)
		}
		return fmt.Sprintf("[%s](#%s)", ref.name(), anchor(ref.name()))
	}
	var parts []string
	for _, list := range []string{"anyOf", "oneOf"} {
		for _, member := range s.get(list).items() {
			if value := member.get("const"); value.Node != nil {
				parts = append(parts, "`"+value.text()+"`")
			} else if typ := r.typ(member); typ != "" {
				parts = append(parts, typ)
			}
		}
	}
	for _, value := range s.get("enum").items() {
		parts = append(parts, "`"+value.text()+"`")
	}
	if value := s.get("const"); value.Node != nil {
		parts = append(parts, "`"+value.text()+"`")
	}
	const maxParts = 6 // a longer list stands in a table elsewhere
	switch {
	case len(parts) > maxParts:
		return "text"
	case len(parts) > 0:
		return strings.Join(parts, " or ")
	}
	list, name := s.get("type").items(), s.get("type").text()
	switch {
	case len(list) > 0:
		for _, typ := range list {
			parts = append(parts, plainType(typ.text()))
		}
	case name == "array":
		parts = []string{strings.TrimSpace("list of " + r.typ(s.get("items")))}
	case name == "object":
		for field := range s.get("properties").members() {
			parts = append(parts, "`"+field+"`")
		}
		return strings.TrimSpace("object of " + strings.Join(parts, ", "))
	default:
		parts = []string{plainType(name)}
	}
	return strings.Join(parts, " or ") + bounds(s)
}

var plainTypes = map[string]string{"string": "text", "integer": "whole number", "boolean": "true or false"}

func plainType(name string) string {
	if plain, ok := plainTypes[name]; ok {
		return plain
	}
	return name
}

// bounds returns how small and how large a value may be.
func bounds(s node) string {
	low, high, unit := s.get("minimum"), s.get("maximum"), ""
	switch {
	case s.get("maxLength").Node != nil:
		high, unit = s.get("maxLength"), " bytes"
	case s.get("maxItems").Node != nil:
		low, high = s.get("minItems"), s.get("maxItems")
	case s.get("exclusiveMinimum").Node != nil:
		return ", above " + s.get("exclusiveMinimum").text()
	}
	switch {
	case low.Node != nil && high.Node != nil && low.text() == high.text():
		return ", " + low.text()
	case low.Node != nil && high.Node != nil:
		return ", " + low.text() + " to " + high.text() + unit
	case high.Node != nil:
		return ", at most " + high.text() + unit
	case low.Node != nil:
		return ", at least " + low.text()
	}
	return ""
}

// problems writes the table of problems.
func (r *reference) problems(t *testing.T) {
	t.Helper()
	r.printf("\n## Problems\n\nErrors are problems in JSON (RFC 9457), `application/problem+json`. Match `type`, or " +
		"the status where there is none, and not the text. An answer of 503 has `Retry-After`.\n\n")
	r.printf("| status | type | title | cause | do | charged |\n|---|---|---|---|---|---|\n")
	for _, p := range readProblems(t) {
		typ := ""
		if p.Type != "" {
			typ = "`" + p.Type + "`"
		}
		if p.Charged == "" {
			p.Charged = "no"
		}
		r.printf("| %d | %s | %s | %s | %s | %s |\n", p.Status, typ, p.Title, p.Cause, p.Do, p.Charged)
	}
	delete(r.defined, "Problem")
	r.inAnswer = true
	r.tables([]string{"Problem"})
}
