package postgres

import (
	"embed"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"text/template"
)

//go:embed sql/tables/*.sql sql/functions/*.sql sql/blocks/*.sql sql/yugabyte/*.sql
var sqlFiles embed.FS

// The laws are written once, as blocks in sql/blocks, and the functions are templates that include blocks. A block uses
// the names of headgate_internal.apply: b_level is the level of Base, now the time of the decision, and so on. For
// functions with other names, the block has parameters:
//
//	x := {{template "drained" (as "level" "b_level" "at" "b_at" "now" "now")}};

// blocks returns the parsed blocks of sql/blocks. as makes a block's parameters of names and values; lines includes a
// block, whose data is optional, with a margin before each line.
var blocks = sync.OnceValue(func() *template.Template {
	t := template.New("")
	t.Funcs(template.FuncMap{
		"as": func(pairs ...string) map[string]string {
			m := make(map[string]string)
			for i := 0; i < len(pairs); i += 2 {
				m[pairs[i]] = pairs[i+1]
			}
			return m
		},
		"lines": func(margin, name string, data ...any) (string, error) {
			var b strings.Builder
			err := t.ExecuteTemplate(&b, name, append(data, nil)[0])
			return margin + strings.ReplaceAll(b.String(), "\n", "\n"+margin), err
		},
	})
	entries, err := sqlFiles.ReadDir("sql/blocks")
	if err != nil {
		panic(err) // cannot happen: the files are embedded
	}
	for _, e := range entries {
		text, err := sqlFiles.ReadFile("sql/blocks/" + e.Name())
		if err != nil {
			panic(err)
		}
		template.Must(t.New(e.Name()).Parse(indentBlocks(string(text))))
	}
	return t
})

// blockLine matches a line with nothing but a block.
var blockLine = regexp.MustCompile(`^( +)\{\{template ("[^"]+") ?(.*)\}\}$`)

// indentBlocks makes a line that only includes a block indent all lines of the block as much as itself. It matches only
// lines with a template action, because the regular expression is slow for others.
func indentBlocks(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.Contains(line, "{{template") {
			lines[i] = blockLine.ReplaceAllString(line, `{{lines "$1" $2 $3}}`)
		}
	}
	return strings.Join(lines, "\n")
}

// assemble inserts the blocks into a text, and replaces placeholders by numbers. It panics at unknown names.
func assemble(name, text string) string {
	if strings.Contains(text, "{{") {
		var b strings.Builder
		t := template.Must(template.Must(blocks().Clone()).New(name).Parse(indentBlocks(text)))
		if err := t.Execute(&b, nil); err != nil {
			panic(err)
		}
		if text = b.String(); strings.Contains(text, "<no value>") {
			panic(fmt.Sprintf("%s: a block lacks a parameter", name))
		}
	}
	return placeholders.Expand(text)
}
