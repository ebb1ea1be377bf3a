package rest_test

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/rest"
	"github.com/headgate/headgate/internal/server/whatif"
)

// TestTheReferenceIsWhatIsServed compares docs/http-reference.md with the page that is made of openapi.yaml, the roles
// of the routes and testdata/problems.yaml. UPDATE_REFERENCE=1 writes the page.
func TestTheReferenceIsWhatIsServed(t *testing.T) {
	t.Parallel()
	const path = "../../../docs/http-reference.md"
	ref := newReference(t)
	text := ref.page(t)
	if os.Getenv("UPDATE_REFERENCE") != "" {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != text {
		t.Errorf("%s is not what openapi.yaml says (UPDATE_REFERENCE=1 writes it): %v", path, err)
	}
}

// TestEveryTypeOfProblemIsInTheReference checks that testdata/problems.yaml has each type and example of the document.
func TestEveryTypeOfProblemIsInTheReference(t *testing.T) {
	t.Parallel()
	ref := newReference(t)
	problems := readProblems(t)
	for _, item := range ref.at("components", "schemas", "Problem", "properties", "type", "oneOf").items() {
		typ := item.get("const").text()
		if !slices.ContainsFunc(problems, func(p problem) bool { return p.Type == typ }) {
			t.Errorf("testdata/problems.yaml lacks %s", typ)
		}
	}
	examples := ref.at("components", "responses", "Problem", "content", "application/problem+json", "examples")
	for name, example := range examples.members() {
		value := example.get("value")
		if !slices.ContainsFunc(problems, func(p problem) bool {
			return p.Type == value.get("type").text() && p.Title == value.get("title").text() &&
				fmt.Sprint(p.Status) == value.get("status").text()
		}) {
			t.Errorf("testdata/problems.yaml lacks %s", name)
		}
	}
}

// problem is a row of the table of problems.
type problem struct {
	Status                          int
	Type, Title, Cause, Do, Charged string
}

func readProblems(t *testing.T) (problems []problem) {
	t.Helper()
	text, err := os.ReadFile("testdata/problems.yaml")
	if err == nil {
		err = yaml.Unmarshal(text, &problems)
	}
	if err != nil {
		t.Fatal(err)
	}
	return problems
}

// reference writes the page.
type reference struct {
	node
	roles    map[string]string // by method and path
	defined  map[string]bool   // schemas that the page has, or will have at its end
	inAnswer bool              // true while an answer is described, false while a request is
	out      strings.Builder
}

func newReference(t *testing.T) *reference {
	t.Helper()
	var doc yaml.Node
	if err := yaml.Unmarshal(api.OpenAPI, &doc); err != nil {
		t.Fatal(err)
	}
	ref := &reference{node: node{doc.Content[0]}, roles: map[string]string{}, defined: map[string]bool{"Problem": true}}
	for pattern, role := range rest.Roles() {
		ref.roles[pattern] = role.String()
	}
	for _, r := range whatif.New(nil).Routes() {
		ref.roles[r.Pattern] = r.Role.String()
	}
	return ref
}

func (r *reference) printf(format string, args ...any) { fmt.Fprintf(&r.out, format, args...) }

func (r *reference) page(t *testing.T) string {
	t.Helper()
	r.printf("<!-- Generated: UPDATE_REFERENCE=1 go test ./internal/server/rest -run Reference writes this page. -->\n\n" +
		"# HTTP reference\n\n" +
		"All paths of `headgate serve`. [Getting started](getting-started.md) shows their use. The source of this page is " +
		"[openapi.yaml](../internal/server/api/openapi.yaml), which `GET /openapi.yaml` and `headgate schema openapi` " +
		"answer with; tests compare both with what the server does.\n\n")
	r.printf("%s\n\n", r.at("info", "description").text())
	r.printf("A field without *required* or a default may be absent. [Roles](access.md#tokens) count where the server " +
		"has tokens; *anyone* needs none. A [problem](#problems) can be the answer of any path.\n\n" +
		"| path | role | |\n|---|---|---|\n")
	routes := r.routes()
	for _, op := range routes {
		summary := tableCell(op.get("summary").text())
		r.printf("| [`%s`](#%s) | %s | %s |\n", op.name, anchor(op.name), r.roles[op.name], summary)
	}
	for _, op := range routes {
		r.route(t, op)
	}
	r.problems(t)
	return r.out.String()
}

// route is an operation, with its method and path.
type route struct {
	node
	name string
}

func (r *reference) routes() (routes []route) {
	for path, methods := range r.get("paths").members() {
		for method, op := range methods.members() {
			routes = append(routes, route{op, strings.ToUpper(method) + " " + path})
		}
	}
	return routes
}

func (r *reference) route(t *testing.T, op route) {
	t.Helper()
	role := r.roles[op.name]
	if role == "" {
		t.Errorf("%s has no role", op.name)
	}
	r.printf("\n## %s\n\n%s. Role: %s.", op.name, op.get("summary").text(), role)
	if about := op.get("description").text(); about != "" {
		r.printf(" %s", about)
	}
	r.printf("\n")
	r.inAnswer = false
	if list := op.get("parameters").items(); len(list) > 0 {
		r.printf("\n| parameter | type | default | meaning |\n|---|---|---|---|\n")
		for _, p := range list {
			name := p.get("name").text()
			if place := p.get("in").text(); place != "query" {
				name += "` (" + place + ")`"
			}
			r.field(strings.TrimSuffix(name, "`"), p.get("schema"), p.get("description").text(), p.get("required").text() != "")
		}
	}
	var schemas []string
	for kind, content := range op.get("requestBody").get("content").members() {
		r.printf("\nBody, `%s`: %s", kind, r.typ(content.get("schema")))
		r.example(content.get("example"))
		schemas = append(schemas, r.names(content.get("schema"))...)
	}
	r.tables(schemas)
	schemas, r.inAnswer = nil, true
	for status, answer := range op.get("responses").members() {
		if status == "default" {
			continue
		}
		r.printf("\nStatus %s: %s", status, answer.get("description").text())
		for kind, content := range answer.get("content").members() {
			r.printf("; `%s`", kind)
			if name := r.typ(content.get("schema")); name != "" {
				r.printf(", %s", name)
			}
			r.example(content.get("example"))
			schemas = append(schemas, r.names(content.get("schema"))...)
		}
		if answer.get("content").Node == nil {
			r.printf(".\n")
		}
		for name, header := range answer.get("headers").members() {
			r.printf("\n- `%s: %s`", name, header.get("example").text())
			if about := header.get("description").text(); about != "" {
				r.printf(" (%s)", about)
			}
		}
		if answer.get("headers").Node != nil {
			r.printf("\n")
		}
	}
	r.tables(schemas)
}

// example ends a line, with the example if that is a short object.
func (r *reference) example(n node) {
	const maxLength = 320
	if text := n.json(); n.Node != nil && n.Kind == yaml.MappingNode && len(text) <= maxLength {
		r.printf(", such as\n`%s`\n", text)
		return
	}
	r.printf(".\n")
}

// tables describes schemas, and the schemas that they refer to, unless the page has them.
func (r *reference) tables(names []string) {
	for len(names) > 0 {
		name := names[0]
		names = names[1:]
		if r.defined[name] {
			continue
		}
		r.defined[name] = true
		s := r.at("components", "schemas", name)
		r.printf("\n### %s\n\n", name)
		base := s.get("$ref").name()
		if base != "" {
			r.printf("The fields of [%s](#%s), and:\n\n", base, anchor(base))
		}
		if about := s.get("description").text(); about != "" {
			r.printf("%s.\n\n", strings.ToUpper(about[:1])+about[1:])
		}
		if typ := r.typ(s); s.get("properties").Node == nil && typ != "" {
			r.printf("%s.\n", typ)
		} else {
			r.fields(s)
		}
		names = append(r.names(s), names...)
	}
}

// fields writes a table of the fields of an object, and of the objects in them.
func (r *reference) fields(s node) {
	if r.inAnswer {
		r.printf("| field | type | present | meaning |\n|---|---|---|---|\n")
	} else {
		r.printf("| field | type | default | meaning |\n|---|---|---|---|\n")
	}
	required := func(name string) bool {
		return slices.ContainsFunc(s.get("required").items(), func(n node) bool { return n.text() == name })
	}
	for name, f := range s.get("properties").members() {
		r.field(name, f, "", required(name))
		inner := cmp.Or(f.get("properties").Node, f.get("items").get("properties").Node)
		for member, memberSchema := range (node{inner}).members() {
			r.field(name+"."+member, memberSchema, "", true)
		}
	}
}

func (r *reference) field(name string, f node, about string, required bool) {
	presence := f.get("default").text()
	switch {
	case presence != "":
		presence = "`" + presence + "`"
	case required && r.inAnswer:
		presence = "always"
	case required:
		presence = "required"
	}
	meaning := []string{f.get("description").text(), about, r.about(f.get("$ref"))}
	meaning = slices.DeleteFunc(meaning, func(s string) bool { return s == "" })
	r.printf("| `%s` | %s | %s | %s |\n", name, tableCell(r.typ(f)), presence, tableCell(strings.Join(meaning, "; ")))
}
