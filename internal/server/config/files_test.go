package config_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/docs"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/rules"
	"github.com/headgate/headgate/law"
)

// TestSchemaMatchesTheFields compares the schema with the settings, the fields, and their bounds.
func TestSchemaMatchesTheFields(t *testing.T) {
	t.Parallel()
	type object = map[string]any
	var schema struct{ Properties object }
	if err := json.Unmarshal(docs.ConfigSchema, &schema); err != nil {
		t.Fatal(err)
	}
	for _, s := range config.Settings {
		if s.NotFile {
			continue
		}
		description := strings.ReplaceAll(s.Help, "`", "")
		if s.Default != "" {
			description += "; default " + s.Default
		}
		want := object{"type": []any{"string", "integer"}, "description": description}
		switch {
		case s.Switch:
			want["type"] = "boolean"
		case s.Number:
			want["type"] = []any{"string", "number"}
		case s.List:
			want = object{"description": description, "oneOf": []any{
				object{"type": []any{"string", "integer"}},
				object{"type": "array", "items": object{"type": "string"}},
			}}
		}
		if !reflect.DeepEqual(schema.Properties[s.Name], any(want)) {
			text, _ := json.Marshal(want)
			t.Errorf("docs/config.schema.json has %v for %s; want %s", schema.Properties[s.Name], s.Name, text)
		}
	}
	list := schema.Properties["rules"].(object)
	limits := list["items"].(object)["properties"].(object)["limits"].(object)
	notation := schema.Properties["limits"].(object)["additionalProperties"].(object)["oneOf"].([]any)[0].(object)
	if list["maxItems"] != float64(rules.MaxRules) || limits["maxItems"] != float64(rules.MaxCharges) ||
		notation["maxLength"] != float64(law.MaxName) {
		t.Errorf("bounds: %v rules, %v limits of one, %v bytes of a limit", list["maxItems"], limits["maxItems"],
			notation["maxLength"])
	}
	_, err := config.Parse("c.yaml", []byte("no_such_field: 1\n"))
	_, fields, _ := strings.Cut(err.Error(), "known are ")
	for _, field := range strings.Split(fields, ", ") {
		if schema.Properties[field] == nil {
			t.Errorf("the schema has no %s", field)
		}
	}
	if n := strings.Count(fields, ", ") + 1; len(schema.Properties) != n { // n names have n-1 commas
		t.Errorf("the schema has %d properties, the file may have %d fields", len(schema.Properties), n)
	}
}

// writeFiles writes the files a.yaml, b.yaml and so on, and returns their paths.
func writeFiles(t *testing.T, texts ...string) (paths []string) {
	t.Helper()
	dir := t.TempDir()
	for i, text := range texts {
		path := filepath.Join(dir, string(rune('a'+i))+".yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}

func TestSeveralFilesAreOne(t *testing.T) {
	paths := writeFiles(t, "store: sqlite:x.db\nlimits:\n  login: gcra 1/s\n", "{}",
		"allow_notations: true\nlimits:\n  api: gcra 2/s\n")
	c, err := config.Read(paths...)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Limits) != 2 || c.AllowNotations == nil || !slices.Equal(c.Files, paths) ||
		c.File != strings.Join(paths, ", ") {
		t.Errorf("got %+v, want 2 limits of 3 files", c)
	}
	for name, text := range map[string]string{
		"limits.login":    "limits:\n  login: gcra 1/s\n",
		"store":           "store: sqlite:y.db\n",
		"allow_notations": "allow_notations: false\n",
	} {
		twoPaths := writeFiles(t, "store: sqlite:x.db\nallow_notations: true\nlimits:\n  login: gcra 1/s\n", text)
		_, err := config.Read(twoPaths...)
		if !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), "b.yaml: "+name+": is in ") {
			t.Errorf("%s in two files: got %v, want ErrInvalid", name, err)
		}
	}
}

func TestVariablesInAFile(t *testing.T) {
	t.Setenv("LOGIN_RATE", "7/m")
	t.Setenv("EMPTY", "")
	for text, want := range map[string]string{
		"token-bucket ${LOGIN_RATE}":              "token-bucket 7/1m burst 7",
		"token-bucket ${LOGIN_RATE:-9/m} burst 9": "token-bucket 7/1m burst 9",
		"token-bucket ${NOT_SET_HERE:-9/m}":       "token-bucket 9/1m burst 9",
		"token-bucket ${EMPTY:-8/m}":              "token-bucket 8/1m burst 8",
		"token-bucket ${NOT_SET_HERE}":            "c.yaml:2:18: limits.login.limit: the variable NOT_SET_HERE is not set; ${NOT_SET_HERE:-VALUE} has a value",
		"token-bucket ${LOGIN-RATE}":              "${ begins the name of a variable",
		"token-bucket $$5/m":                      `"$5" is not a decimal number`,
		"token-bucket $LOGIN_RATE":                `"$LOGIN_RATE" is not a decimal number`,
	} {
		c, err := config.Parse("c.yaml", []byte("limits:\n  login: {limit: '"+text+"'}\n"))
		switch {
		case err != nil && !strings.Contains(err.Error(), want):
			t.Errorf("%s: got %v, want %s", text, err, want)
		case err == nil && c.Limits[0].String() != want:
			t.Errorf("%s: got %v, want %s", text, c.Limits[0], want)
		}
	}
	if c, err := config.Parse("c.yaml", []byte("limits:\n  login: ${LOGIN_RATE}\n")); err != nil ||
		c.Limits[0].String() != "token-bucket 7/1m burst 7" {
		t.Errorf("a limit in one line: %+v, %v", c, err)
	}
	c, err := config.Parse("c.yaml", []byte("store: sqlite:${LOGIN_RATE}.db\n"))
	if err != nil {
		t.Fatal(err)
	}
	if setting, err := c.Get(config.Store, noFlags); err != nil || setting.Value != "sqlite:7/m.db" {
		t.Errorf("a setting: got %+v, %v, want sqlite:7/m.db", setting, err)
	}
}
