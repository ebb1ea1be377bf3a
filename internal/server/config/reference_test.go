package config_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/headgate/headgate/docs"
	"github.com/headgate/headgate/internal/server/config"
)

// schema has the members of a JSON Schema that the page shows.
type schema struct {
	Description          string
	Type                 any
	Default              any
	Enum                 []string
	Properties           map[string]*schema
	AdditionalProperties any
	Items                *schema
	OneOf                []*schema
	Required             []string
}

// UnmarshalJSON reads the schemas true and false as empty ones.
func (s *schema) UnmarshalJSON(text []byte) error {
	type plain schema
	if text[0] != '{' {
		return nil
	}
	return json.Unmarshal(text, (*plain)(s))
}

// valueSchema returns the schema of the values of a mapping with arbitrary names, or nil.
func (s *schema) valueSchema(t *testing.T) *schema {
	t.Helper()
	if _, ok := s.AdditionalProperties.(map[string]any); !ok {
		return nil
	}
	text, _ := json.Marshal(s.AdditionalProperties)
	values := &schema{}
	if err := json.Unmarshal(text, values); err != nil {
		t.Fatal(err)
	}
	for _, option := range values.OneOf { // a limit in one line, or with members
		if option.Properties != nil {
			return option
		}
	}
	return values
}

// TestThePageOfTheConfiguration compares docs/configuration.md with the page that is made of the settings, the schema
// and testdata/every-field.yaml. UPDATE_REFERENCE=1 writes the page.
func TestThePageOfTheConfiguration(t *testing.T) {
	t.Parallel()
	const path = "../../../docs/configuration.md"
	example, err := os.ReadFile("testdata/every-field.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := config.Parse("headgate.yaml", example); err != nil {
		t.Error(err)
	}
	text := configurationPage(t, example)
	if os.Getenv("UPDATE_REFERENCE") != "" {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != text {
		t.Errorf("%s is not what the settings say (UPDATE_REFERENCE=1 writes it): %v", path, err)
	}
}

func configurationPage(t *testing.T, example []byte) string {
	t.Helper()
	var doc yaml.Node
	root := &schema{}
	if err := yaml.Unmarshal(example, &doc); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(docs.ConfigSchema, root); err != nil {
		t.Fatal(err)
	}
	annotated := map[*schema]bool{}
	annotate(t, doc.Content[0], root, annotated)
	var file bytes.Buffer
	enc := yaml.NewEncoder(&file)
	enc.SetIndent(2)
	if err := enc.Encode(&doc); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	out.WriteString("<!-- Generated: UPDATE_REFERENCE=1 go test ./internal/server/config -run Page writes this page. -->\n\n" +
		"# Configuration\n\nEvery field of the config file, with its type and default. All are optional, but for those " +
		"that say *required*. `headgate serve --config FILE` reads the file, `headgate validate FILE` checks it, and " +
		"editors check it by [its schema](config.schema.json). [Limits](limits.md#files) and [rules](rules.md) have " +
		"pages of their own.\n\n" +
		"The fields up to `log_admitted` are settings. Each is also a flag and a variable: `wait_store` is " +
		"`--wait-store` and `HEADGATE_WAIT_STORE`. A flag takes precedence over a variable, a variable over the file, " +
		"the file over the default. A flag or variable that is given and empty is an error: usually a variable was " +
		"not set, as in `--store \"$DATABASE_URL\"`. A list in a flag or a variable has commas. The other fields are " +
		"read from files alone. These are in no file:\n\n")
	for _, s := range config.Settings {
		if s.NotFile {
			fmt.Fprintf(&out, "- `--%s`, `%s`: %s\n", s.Flag(), s.Variable(), strings.ReplaceAll(s.Help, "`", ""))
		}
	}
	out.WriteString("\n```yaml\n# headgate.yaml\n")
	afterComment := true // true if the line before is a comment
	for line := range strings.Lines(file.String()) {
		if strings.HasPrefix(line, "#") && !afterComment {
			out.WriteString("\n")
		}
		afterComment = strings.HasPrefix(line, "#")
		out.WriteString(line)
	}
	out.WriteString("```\n\n```sh\nheadgate validate headgate.yaml\n```\n")
	return out.String()
}

// annotate puts comments before a mapping's fields where they occur first, and reports fields that the mapping lacks.
func annotate(t *testing.T, n *yaml.Node, s *schema, annotated map[*schema]bool) {
	t.Helper()
	switch {
	case n.Kind == yaml.SequenceNode && s.Items != nil:
		for _, item := range n.Content {
			annotate(t, item, s.Items, annotated)
		}
		return
	case n.Kind != yaml.MappingNode:
		return
	}
	names := map[string]bool{}
	values := s.valueSchema(t)
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		names[key.Value] = true
		field := s.Properties[key.Value]
		switch {
		case field != nil:
			if !annotated[s] {
				key.HeadComment = fieldComment(t, key.Value, field, slices.Contains(s.Required, key.Value))
			}
			annotate(t, value, field, annotated)
		case values != nil:
			annotate(t, value, values, annotated)
		default:
			t.Errorf("the schema has no %s", key.Value)
		}
	}
	for name := range s.Properties {
		if !names[name] && !annotated[s] {
			t.Errorf("testdata/every-field.yaml lacks %s", name)
		}
	}
	annotated[s] = true
}

// fieldComment returns the comment before a field: its description, its type, and its default or that it is required.
func fieldComment(t *testing.T, name string, s *schema, required bool) string {
	t.Helper()
	text, defaultText, _ := strings.Cut(s.Description, "; default ")
	if text == "" {
		t.Errorf("the schema says nothing of %s", name)
	}
	if s.Default != nil {
		defaultText = fmt.Sprint(s.Default)
	}
	kind := typeOf(t, name, s)
	switch {
	case required:
		kind += "; required"
	case defaultText != "":
		kind += "; default: " + defaultText
	}
	const width = 100
	var lines []string
	line := "#"
	for word := range strings.FieldsSeq(text) {
		if len(line)+len(word) >= width {
			lines, line = append(lines, line), "#"
		}
		line += " " + word
	}
	return strings.Join(append(lines, line, "# type: "+kind), "\n")
}

// kinds are the types of settings, by the word of their help that stands for the value.
var kinds = map[string]string{
	"URL": "URL", "address": "host:port", "path": "path", "file": "path", "kind": "word", "id": "text",
	"long": "duration such as 1.5s", "time": "period such as 7d", "name": "host name", "network": "address or CIDR",
	"format": "word", "level": "word", "share": "number", "number": "whole number",
	"size": "bytes, or with KiB, MiB, GiB",
}

func typeOf(t *testing.T, name string, s *schema) string {
	t.Helper()
	i := slices.IndexFunc(config.Settings, func(setting config.Setting) bool {
		return setting.Name == name && strings.HasPrefix(s.Description, strings.ReplaceAll(setting.Help, "`", ""))
	})
	if _, isUnion := s.Type.([]any); i >= 0 && (isUnion || s.OneOf != nil) {
		_, word, _ := strings.Cut(config.Settings[i].Help, "`")
		word, _, _ = strings.Cut(word, "`")
		kind := kinds[word]
		if kind == "" {
			t.Errorf("%s: it is not known what type a %q is", name, word)
		}
		if config.Settings[i].List {
			kind += ", or a list"
		}
		return kind
	}
	types, _ := s.Type.([]any)
	switch {
	case s.Enum != nil:
		return strings.Join(s.Enum, ", ")
	case s.OneOf != nil:
		return "text, or a list"
	case s.Type == "boolean":
		return "true or false"
	case s.Type == "object" || slices.Contains(types, any("object")):
		return "mapping"
	case slices.Contains(types, any("array")):
		return "list"
	case slices.Contains(types, any("number")):
		return "number or text"
	case s.Type == "integer":
		return "whole number"
	}
	return "text"
}
