package rest_test

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestEveryFieldIsDescribed compares the schemas with the types of the wire.
func TestEveryFieldIsDescribed(t *testing.T) {
	t.Parallel()
	h, _ := handler(t, "")
	d := described(t, h)
	schemas := d.all["components"].(map[string]any)["schemas"].(map[string]any)
	seen := slices.Clone(notGo)
	all := maps.Clone(replayed)
	for _, v := range types {
		all[reflect.TypeOf(v).Name()] = v
	}
	for of, v := range all {
		seen = append(seen, of)
		schema, ok := schemas[of].(map[string]any)
		if !ok {
			t.Errorf("%s is not described", of)
			continue
		}
		want := members(reflect.TypeOf(v))
		if of == "Replayed" {
			for _, name := range notAsked {
				delete(want, name)
			}
		}
		got := namesOf(schemas, schema)
		delete(got, "violated-policies") // which httplimit adds
		for name := range want {
			if !got[name] {
				t.Errorf("%s.%s is not described", of, name)
			}
		}
		for name := range got {
			if !want[name] {
				t.Errorf("%s.%s is described, and is not there", of, name)
			}
		}
	}
	for name := range schemas {
		if !slices.Contains(seen, name) {
			t.Errorf("schema %s is compared with no type", name)
		}
	}
}

// members returns the names of the members of a type, on the wire.
func members(typ reflect.Type) map[string]bool {
	all := map[string]bool{}
	for _, f := range reflect.VisibleFields(typ) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			all[name] = true
		}
	}
	return all
}

// namesOf returns the names of the members of a schema, and of the one that it refers to.
func namesOf(schemas, schema map[string]any) map[string]bool {
	all := map[string]bool{}
	if ref, ok := schema["$ref"].(string); ok {
		all = namesOf(schemas, schemas[strings.TrimPrefix(ref, "#/components/schemas/")].(map[string]any))
	}
	properties, _ := schema["properties"].(map[string]any)
	for name := range properties {
		all[name] = true
	}
	return all
}
