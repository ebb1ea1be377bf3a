package config_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/config"
)

// TestTheSchemaIsPublished compares docs/config.schema.json with what the code says.
// UPDATE_SCHEMA=1 rewrites it.
func TestTheSchemaIsPublished(t *testing.T) {
	const path = "../../docs/config.schema.json"
	want, err := config.Schema()
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("UPDATE_SCHEMA") != "" {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != string(want) {
		t.Errorf("%s is not what config.Schema returns: %v", path, err)
	}
	var schema struct{ Properties map[string]any }
	if err := json.Unmarshal(want, &schema); err != nil {
		t.Fatal(err)
	}
	_, err = config.Parse("c.yaml", []byte("no_such_field: 1\n"))
	_, known, _ := strings.Cut(err.Error(), "known are ")
	for _, field := range strings.Split(known, ", ") {
		if schema.Properties[field] == nil {
			t.Errorf("the schema has no %s", field)
		}
	}
	if n := strings.Count(known, ", ") + 1; len(schema.Properties) != n {
		t.Errorf("the schema has %d properties, the file may have %d fields", len(schema.Properties), n)
	}
}

func files(t *testing.T, texts ...string) (paths []string) {
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
	paths := files(t, "store: sqlite:x.db\nlimits:\n  login: gcra 1/s\n", "{}",
		"allow_notations: true\nlimits:\n  api: gcra 2/s\n")
	c, err := config.Read(paths...)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Limits) != 2 || c.AllowNotations == nil || !slices.Equal(c.Files, paths) ||
		c.File != strings.Join(paths, ", ") {
		t.Errorf("%+v", c)
	}
	for name, text := range map[string]string{
		"limits.login":    "limits:\n  login: gcra 1/s\n",
		"store":           "store: sqlite:y.db\n",
		"allow_notations": "allow_notations: false\n",
	} {
		more := files(t, "store: sqlite:x.db\nallow_notations: true\nlimits:\n  login: gcra 1/s\n", text)
		_, err := config.Read(more...)
		if !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), "b.yaml: "+name+": is in ") {
			t.Errorf("%s in two files: %v", name, err)
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
			t.Errorf("%s: %v; want %s", text, err, want)
		case err == nil && c.Limits[0].String() != want:
			t.Errorf("%s: %v; want %s", text, c.Limits[0], want)
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
	if said, err := c.Get(config.Store, func(string) (string, bool) { return "", false }); err != nil || said.Value != "sqlite:7/m.db" {
		t.Errorf("a setting: %+v, %v", said, err)
	}
}
