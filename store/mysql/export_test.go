package mysql

import (
	"github.com/headgate/headgate/law"
)

// For the tests.
var (
	Classify     = func(err error) error { return classify("ask", err) }
	Undone       = func(err error) error { return classify("ask", &undone{err}) }
	CheckVersion = checkVersion
	CheckServer  = checkServer
	IsPlain      = func(ops []law.Op) bool { return newPlainPlan(ops) != nil }
)

// Statements returns those of the text for a batch.
func Statements(ops []law.Op) (list []string) {
	p := newPlainPlan(ops)
	if p == nil {
		p = newPlan(ops, make([]law.Outcome, len(ops)))
	}
	text := p.text(site{own: true})
	quoted, from := false, 0
	for i := range len(text) {
		switch {
		case text[i] == '\'':
			quoted = !quoted
		case text[i] == ';' && !quoted:
			list = append(list, text[from:i])
			from = i + 1
		}
	}
	return append(list, text[from:])
}
