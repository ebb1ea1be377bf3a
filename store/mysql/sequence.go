package mysql

import (
	"regexp"
	"slices"
	"strings"
)

// The numbers of a charge, by the names that the templates know them under.
const (
	pUnit = iota
	pStep
	pDrain
	pHeal
	pCost
	pCount
	pCeiling
	pNow
	params
)

var paramNames = [params]string{
	pUnit: "unit", pStep: "step", pDrain: "drain", pHeal: "heal", pCost: "cost", pCount: "count", pCeiling: "ceiling",
	pNow: "now",
}

// sequence is a text, cut at what differs from statement to statement.
type sequence []piece

// piece is text, and what is to be put after it.
type piece struct {
	text   string
	column string // of headgate_cells; or
	param  int    // of the charge; -1: none
}

// render writes the sequence with the columns and parameters in their places.
func (s sequence) render(b *strings.Builder, column func(name string) string, param func(p int) string) {
	for i := range s {
		b.WriteString(s[i].text)
		switch {
		case s[i].column != "":
			b.WriteString(column(s[i].column))
		case s[i].param >= 0:
			b.WriteString(param(s[i].param))
		}
	}
}

var placeholder = regexp.MustCompile(`\[(\w+)\]|\{(\w+)\}`)

// cut cuts a text at its placeholders. Variables get a prefix that keeps them
// apart from the caller's own.
func cut(text string) (s sequence) {
	text = oneSpace(strings.ReplaceAll(text, "@", "@hg_"))
	from := 0
	for _, m := range placeholder.FindAllStringSubmatchIndex(text, -1) {
		p := piece{text: text[from:m[0]], param: -1}
		if m[2] >= 0 {
			p.column = text[m[2]:m[3]]
		} else if p.param = slices.Index(paramNames[:], text[m[4]:m[5]]); p.param < 0 {
			panic("sums.tmpl: unknown parameter " + text[m[4]:m[5]])
		}
		s = append(s, p)
		from = m[1]
	}
	return append(s, piece{text: text[from:], param: -1})
}

var whiteSpace = regexp.MustCompile(`\s+`)

// oneSpace returns a text with one space wherever there is white space.
func oneSpace(text string) string { return whiteSpace.ReplaceAllString(text, " ") }
