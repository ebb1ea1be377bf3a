package rest_test

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestEveryFieldIsDescribed compares the members of each schema, but schemasOnly, with the JSON fields of its type.
func TestEveryFieldIsDescribed(t *testing.T) {
	t.Parallel()
	h, _ := newHandler(t, "")
	d := readDescription(t, h)
	schemas := d.doc["components"].(map[string]any)["schemas"].(map[string]any)
	listed := slices.Clone(schemasOnly)
	valueOf := maps.Clone(replayTypes)
	for _, v := range goTypes {
		valueOf[reflect.TypeOf(v).Name()] = v
	}
	for typeName, v := range valueOf {
		listed = append(listed, typeName)
		schema, ok := schemas[typeName].(map[string]any)
		if !ok {
			t.Errorf("%s is not described", typeName)
			continue
		}
		want := jsonFields(reflect.TypeOf(v))
		if typeName == "Replayed" {
			for _, name := range commandFields {
				delete(want, name)
			}
		}
		got := schemaMembers(schemas, schema)
		delete(got, "violated-policies") // which httplimit adds
		for name := range want {
			if !got[name] {
				t.Errorf("%s.%s is not described", typeName, name)
			}
		}
		for name := range got {
			if !want[name] {
				t.Errorf("%s.%s is described, but is no field", typeName, name)
			}
		}
	}
	for name := range schemas {
		if !slices.Contains(listed, name) {
			t.Errorf("schema %s is compared with no type", name)
		}
	}
}

// jsonFields returns the names of the JSON fields of a type.
func jsonFields(typ reflect.Type) map[string]bool {
	names := map[string]bool{}
	for _, f := range reflect.VisibleFields(typ) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			names[name] = true
		}
	}
	return names
}

// schemaMembers returns the names of the members of a schema, and of the schema that it refers to.
func schemaMembers(schemas, schema map[string]any) map[string]bool {
	names := map[string]bool{}
	if reference, ok := schema["$ref"].(string); ok {
		names = schemaMembers(schemas, schemas[strings.TrimPrefix(reference, "#/components/schemas/")].(map[string]any))
	}
	properties, _ := schema["properties"].(map[string]any)
	for name := range properties {
		names[name] = true
	}
	return names
}
