package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/headgate/headgate/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const small = `{"definitions": {
  "apps.v1.Thing": {
    "type": "object", "required": ["spec"],
    "properties": {
      "apiVersion": {"type": "string"}, "kind": {"type": "string"},
      "spec": {"$ref": "#/definitions/apps.v1.Spec"}
    },
    "x-kubernetes-group-version-kind": [{"group": "apps.example.com", "kind": "Thing", "version": "v1"}]
  },
  "apps.v1.Spec": {
    "type": "object",
    "properties": {
      "port": {"$ref": "#/definitions/io.k8s.apimachinery.pkg.util.intstr.IntOrString"},
      "cpu": {"$ref": "#/definitions/io.k8s.apimachinery.pkg.api.resource.Quantity"},
      "labels": {"type": "object", "additionalProperties": {"type": "string"}},
      "inner": {"type": "array", "items": {"$ref": "#/definitions/apps.v1.Spec"}}
    }
  },
  "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"type": "string", "format": "int-or-string"},
  "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": "string"},
  "core.v1.Plain": {
    "type": "object", "properties": {"kind": {"type": "string"}, "apiVersion": {"type": "string"}},
    "x-kubernetes-group-version-kind": [{"group": "", "kind": "Plain", "version": "v1"}]
  },
  "meta.Options": {
    "type": "object",
    "x-kubernetes-group-version-kind": [{"kind": "Options", "version": "v1"}, {"kind": "Options", "version": "v2"}]
  }
}}`

func TestSchemas(t *testing.T) {
	t.Parallel()
	all, err := schemas([]byte(small))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := slices.Sorted(maps.Keys(all)), []string{"plain-v1.json", "thing-apps-v1.json"}; !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	parsed, err := jsonschema.UnmarshalJSON(strings.NewReader(string(all["thing-apps-v1.json"])))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft4) // as kubeconform has it
	if err := c.AddResource("thing.json", parsed); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("thing.json")
	if err != nil {
		t.Fatal(err)
	}
	const head = `{"apiVersion": "apps.example.com/v1", "kind": "Thing", `
	for text, valid := range map[string]bool{
		head + `"spec": {"port": 80, "cpu": 0.5, "labels": {"a": "b"}}}`:     true,
		head + `"spec": {"port": "http", "cpu": "500m"}}`:                    true,
		head + `"spec": {"inner": [{"inner": [{"port": 1}]}]}}`:              true,
		head + `"spec": {"port": true}}`:                                     false,
		head + `"spec": {"prot": 80}}`:                                       false,
		head + `"spec": {"inner": [{"inner": [{"prot": 1}]}]}}`:              false,
		head + `"spec": {"labels": {"a": 1}}}`:                               false,
		head + `"spec": {}, "more": 1}`:                                      false,
		`{"apiVersion": "apps.example.com/v1", "kind": "Thing"}`:             false,
		`{"apiVersion": "apps.example.com/v2", "kind": "Thing", "spec": {}}`: false,
		`{"kind": "Thing", "spec": {}}`:                                      false,
	} {
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(v); (err == nil) != valid {
			t.Errorf("%s: got %v, want valid %v", text, err, valid)
		}
	}
}

func TestWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	document, out := filepath.Join(dir, "swagger.json"), filepath.Join(dir, "schemas")
	if err := os.WriteFile(document, []byte(small), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time in the place of the first
		if err := write(document, out); err != nil {
			t.Fatal(err)
		}
	}
	files, err := os.ReadDir(out)
	if err != nil || len(files) != 2 {
		t.Errorf("got %v, %v", files, err)
	}
	if err := os.WriteFile(document, []byte(`{"definitions": {"a": {}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := write(document, out); err == nil || !strings.Contains(err.Error(), kinds) {
		t.Errorf("a document without kinds: %v", err)
	}
}
