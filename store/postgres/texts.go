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
var files embed.FS

// The laws stand once, as blocks in sql/blocks, and the functions are templates that say
// where a block goes. A block is written for the names of headgate_internal.apply: b_level is the
// level that Base has, now the time of the decision, and so on. Where other functions
// have other names, the block has parameters:
//
//	x := {{template "drained" (as "level" "b_level" "at" "b_at" "now" "now")}};

// blocks are all blocks.
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
	entries, err := files.ReadDir("sql/blocks")
	if err != nil {
		panic(err) // they are embedded
	}
	for _, e := range entries {
		text, err := files.ReadFile("sql/blocks/" + e.Name())
		if err != nil {
			panic(err)
		}
		template.Must(t.New(e.Name()).Parse(indented(string(text))))
	}
	return t
})

// wholeLine is a block on a line of its own.
var wholeLine = regexp.MustCompile(`^( +)\{\{template ("[^"]+") ?(.*)\}\}$`)

// indented lets the lines of such a block begin where the first one does. It looks at lines with a block alone: the
// expression takes long for the others.
func indented(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.Contains(line, "{{template") {
			lines[i] = wholeLine.ReplaceAllString(line, `{{lines "$1" $2 $3}}`)
		}
	}
	return strings.Join(lines, "\n")
}

// assemble puts the blocks in, and numbers for names. It panics at what it does not know.
func assemble(name, text string) string {
	if strings.Contains(text, "{{") {
		var b strings.Builder
		t := template.Must(template.Must(blocks().Clone()).New(name).Parse(indented(text)))
		if err := t.Execute(&b, nil); err != nil {
			panic(err)
		}
		if text = b.String(); strings.Contains(text, "<no value>") {
			panic(fmt.Sprintf("%s: a block lacks a parameter", name))
		}
	}
	return placeholders.Expand(text)
}
