package postgres_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	functionPattern = regexp.MustCompile(`(?s)create or replace function headgate\.(\w+)\((.*?)\)\s+(returns (?:setof \w+|table \(.*?\)|[\w.]+)\s+)?language([^$]*)`)
	decisionPattern = regexp.MustCompile(`(?s)create type headgate\.decision as \((.*?)\);`)
	commentPattern  = regexp.MustCompile(`(?m)^comment on (function|table|view|column) headgate\.([\w.]+)(?:\(.*?\))? is '(.*)';$`)
)

// TestSQLReferenceMatchesTheSchema compares docs/sql-reference.md with functions, views and tables of the SQL texts.
// UPDATE_REFERENCE=1 writes the page.
func TestSQLReferenceMatchesTheSchema(t *testing.T) {
	t.Parallel()
	const path = "../../docs/sql-reference.md"
	text := sqlReference(t)
	if os.Getenv("UPDATE_REFERENCE") != "" {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != text {
		t.Errorf("%s differs from the SQL texts (UPDATE_REFERENCE=1 writes it): %v", path, err)
	}
}

// function is a function for people: its arguments, its result and the role that may call it.
type function struct{ arguments, result, role string }

// sqlReference returns the text of the page. It fails the test unless functions and comments on functions match.
func sqlReference(t *testing.T) string {
	t.Helper()
	var sources strings.Builder
	for _, folder := range []string{"tables", "functions"} {
		paths, err := filepath.Glob("sql/" + folder + "/*.sql")
		if err != nil || len(paths) == 0 {
			t.Fatalf("sql/%s: %q, %v", folder, paths, err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			sources.Write(text)
		}
	}
	functions := map[string]function{}
	for _, m := range functionPattern.FindAllStringSubmatch(sources.String(), -1) {
		functions[m[1]] = parseDeclaration(m)
	}
	decision := decisionPattern.FindStringSubmatch(sources.String())
	if len(functions) < 25 || decision == nil {
		t.Fatalf("found %d functions: are the patterns right?", len(functions))
	}
	var functionSection, tableSection strings.Builder
	columns := map[string]string{}
	comments := commentPattern.FindAllStringSubmatch(sources.String(), -1)
	for _, m := range comments {
		if table, column, ok := strings.Cut(m[2], "."); ok {
			columns[table] += fmt.Sprintf("\n  - `%s`: %s", column, strings.ReplaceAll(m[3], "''", "'"))
		}
	}
	for _, m := range comments {
		comment := strings.ReplaceAll(m[3], "''", "'")
		f, ok := functions[m[2]]
		switch {
		case m[1] == "function" && !ok:
			t.Errorf("headgate.%s has a comment, and no declaration", m[2])
		case m[1] == "function":
			fmt.Fprintf(&functionSection, "### %s\n\n`%s(%s)`", m[2], m[2], f.arguments)
			if f.result != "" {
				fmt.Fprintf(&functionSection, " answers `%s`", f.result)
			}
			fmt.Fprintf(&functionSection, ".\nRole: %s. %s\n\n", f.role, comment)
			delete(functions, m[2])
		case m[1] != "column":
			fmt.Fprintf(&tableSection, "- **`%s`** (%s): %s%s\n", m[2], m[1], comment, columns[m[2]])
		}
	}
	for name := range functions {
		t.Errorf("headgate.%s has no comment", name)
	}
	return "<!-- Generated: UPDATE_REFERENCE=1 go test ./store/postgres -run Reference writes this page. -->\n\n" +
		"# SQL reference: PostgreSQL\n\n" +
		"The functions of schema `headgate`, then its views and tables. [From SQL](sql.md) shows their use, and what is " +
		"different [on MariaDB and MySQL](sql.md#mariadb-and-mysql). An argument with a default may be left out. `rule` is a " +
		"name in `headgate.limits`, or a limit in one line. Of a null `retry_after` the cost can never pass. " +
		"`decision` is `" + joinFields(decision[1]) + "`. [Roles](sql.md#rights): `service` may do all that `app` may.\n\n" +
		"## Functions\n\n" + functionSection.String() +
		"## Views and tables\n\nViews are for people; of the tables, `limits`, `catalog`, `zones` and `buckets` may be changed " +
		"by hand. Columns whose names say all are left out.\n\n" + tableSection.String()
}

// parseDeclaration parses a match of functionPattern. Arguments that are marked out are a part of the result.
func parseDeclaration(m []string) function {
	f := function{role: "service"}
	if strings.Contains(m[4], "security definer") {
		f.role = "app"
	}
	var inArguments, outArguments []string
	for argument := range strings.SplitSeq(joinFields(m[2]), ", ") {
		if name, ok := strings.CutPrefix(argument, "out "); ok {
			outArguments = append(outArguments, name)
			continue
		}
		inArguments = append(inArguments, argument)
	}
	f.arguments, f.result = strings.Join(inArguments, ", "), strings.Join(outArguments, ", ")
	if returns := strings.TrimPrefix(joinFields(m[3]), "returns "); returns != "" {
		f.result = strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(returns, "headgate."), "table ("), ")")
	}
	return f
}

// joinFields returns a text with single spaces.
func joinFields(text string) string { return strings.Join(strings.Fields(text), " ") }
