// Command kubeschema writes the JSON schemas that kubeconform reads, one for each kind of object, made of the
// OpenAPI document of Kubernetes: kubeschema swagger.json FOLDER. They are strict: a field that Kubernetes does not
// know is an error.
package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: kubeschema swagger.json FOLDER")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "kubeschema:", err)
		os.Exit(1)
	}
}

// write writes the schemas of a document into a folder, which is there only when all of them are.
func write(document, dir string) error {
	text, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	all, err := schemas(text)
	if err != nil {
		return fmt.Errorf("%s: %w", document, err)
	}
	unfinished := dir + ".tmp"
	if err := os.RemoveAll(unfinished); err != nil {
		return err
	}
	if err := os.MkdirAll(unfinished, 0o755); err != nil {
		return err
	}
	for name, schema := range all {
		if err := os.WriteFile(filepath.Join(unfinished, name), schema, 0o600); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	fmt.Printf("%d schemas in %s\n", len(all), dir)
	return os.Rename(unfinished, dir)
}

// object is one of JSON.
type object = map[string]any

// kind names a kind of object, as Kubernetes does.
type kind struct{ Group, Version, Kind string }

// file is the name that kubeconform expects: of the group the part before the first dot.
func (k kind) file() string {
	group, _, _ := strings.Cut(k.Group, ".")
	parts := slices.DeleteFunc([]string{k.Kind, group, k.Version}, func(s string) bool { return s == "" })
	return strings.ToLower(strings.Join(parts, "-")) + ".json"
}

// apiVersion is what an object says.
func (k kind) apiVersion() string {
	if k.Group == "" {
		return k.Version
	}
	return k.Group + "/" + k.Version
}

// loose are types that the document calls strings, although a number does too.
var loose = map[string]object{
	"io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"type": []any{"string", "integer"}},
	"io.k8s.apimachinery.pkg.api.resource.Quantity":   {"type": []any{"string", "number"}},
}

const (
	reference = "$ref"
	prefix    = "#/definitions/"
	kinds     = "x-kubernetes-group-version-kind"
)

// schemas returns the schema of each kind, by the name of its file.
func schemas(document []byte) (map[string][]byte, error) {
	var doc struct {
		Definitions map[string]object `json:"definitions"`
	}
	if err := json.Unmarshal(document, &doc); err != nil {
		return nil, err
	}
	for name, definition := range doc.Definitions {
		if types, ok := loose[name]; ok {
			doc.Definitions[name] = types
			continue
		}
		tighten(definition)
	}
	all := map[string][]byte{}
	for _, definition := range doc.Definitions {
		k, ok, err := kindOf(definition)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		if all[k.file()], err = json.Marshal(root(k, definition, doc.Definitions)); err != nil {
			return nil, err
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no definition has %s", kinds)
	}
	return all, nil
}

// tighten refuses properties that an object does not have.
func tighten(v any) {
	switch v := v.(type) {
	case object:
		if _, has := v["properties"].(object); has && v["additionalProperties"] == nil {
			v["additionalProperties"] = false
		}
		for _, inner := range v {
			tighten(inner)
		}
	case []any:
		for _, inner := range v {
			tighten(inner)
		}
	}
}

// kindOf returns the kind that a definition is of. Definitions of several kinds are no objects that one creates.
func kindOf(definition object) (k kind, ok bool, err error) {
	list, _ := definition[kinds].([]any)
	if len(list) != 1 {
		return k, false, nil
	}
	text, err := json.Marshal(list[0])
	if err == nil {
		err = json.Unmarshal(text, &k)
	}
	return k, err == nil, err
}

// root is the schema of a kind, with all definitions that it refers to.
func root(k kind, definition object, definitions map[string]object) object {
	properties := object{}
	if own, ok := definition["properties"].(object); ok {
		maps.Copy(properties, own)
	}
	properties["apiVersion"] = object{"enum": []any{k.apiVersion()}}
	properties["kind"] = object{"enum": []any{k.Kind}}
	schema := maps.Clone(definition)
	schema["properties"] = properties
	required, _ := definition["required"].([]any)
	schema["required"] = append(slices.Clone(required), "apiVersion", "kind")
	used := object{}
	collect(definition, definitions, used)
	schema["definitions"] = used
	return schema
}

// collect adds the definitions that something refers to, and those to which they refer.
func collect(v any, definitions map[string]object, used object) {
	switch v := v.(type) {
	case object:
		if ref, ok := v[reference].(string); ok {
			name := strings.TrimPrefix(ref, prefix)
			if used[name] == nil && definitions[name] != nil {
				used[name] = definitions[name]
				collect(definitions[name], definitions, used)
			}
		}
		for _, inner := range v {
			collect(inner, definitions, used)
		}
	case []any:
		for _, inner := range v {
			collect(inner, definitions, used)
		}
	}
}
