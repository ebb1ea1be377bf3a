package wire

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Names are the names of the numbers of some lists, in order, by the name of the list.
// Texts in SQL and Lua have these placeholders for a list op of the names verb, unit and
// cost:
//
//	{op.unit}            2, the place of unit, from 1
//	{op.width}           3, how many there are
//	{op.unit * d}        dd, a letter for each up to unit
//	{each op: p.*}       p.verb, p.unit, p.cost
//	{each op to unit: *} verb, unit
//	{op: verb => 1, cost => least(a, b)}
//	                     1, 0, least(a, b): all values in order, 0 for those not given
type Names map[string][]string

var (
	placeOf = regexp.MustCompile(`\{([a-z]+)\.([a-z0-9_]+)(?: \* ([a-z]))?\}`)
	eachOf  = regexp.MustCompile(`\{each ([a-z]+)(?: to ([a-z0-9_]+))?: ([^{}]*)\}`)
	valueOf = regexp.MustCompile(`\{([a-z]+):\s([^{}]*)\}`)
)

// Expand replaces the placeholders of a text. It panics if a name is unknown, since
// texts are part of the program.
func (n Names) Expand(text string) string {
	text = placeOf.ReplaceAllStringFunc(text, func(s string) string {
		m := placeOf.FindStringSubmatch(s)
		place := n.place(m[1], m[2])
		if m[3] != "" {
			return strings.Repeat(m[3], place)
		}
		return strconv.Itoa(place)
	})
	text = eachOf.ReplaceAllStringFunc(text, func(s string) string {
		m := eachOf.FindStringSubmatch(s)
		list := n.list(m[1])
		if m[2] != "" {
			list = list[:n.place(m[1], m[2])]
		}
		each := make([]string, len(list))
		for i, name := range list {
			each[i] = strings.ReplaceAll(m[3], "*", name)
		}
		return strings.Join(each, ", ")
	})
	return valueOf.ReplaceAllStringFunc(text, func(s string) string {
		m := valueOf.FindStringSubmatch(s)
		return n.values(m[1], m[2])
	})
}

func (n Names) list(list string) []string {
	names, ok := n[list]
	if !ok {
		panic(fmt.Sprintf("wire: a placeholder names the list %s, which is unknown", list))
	}
	return names
}

// place returns the place of a name in a list, from 1.
func (n Names) place(list, name string) int {
	names := n.list(list)
	if name == "width" {
		return len(names)
	}
	i := slices.Index(names, name)
	if i < 0 {
		panic(fmt.Sprintf("wire: a placeholder names %s.%s, which is unknown", list, name))
	}
	return i + 1
}

// values returns the values of a list in order.
func (n Names) values(list, given string) string {
	values := make([]string, len(n.list(list)))
	for _, entry := range arguments(given) {
		name, value, ok := strings.Cut(entry, " => ")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		i := n.place(list, name) - 1
		if !ok || value == "" || values[i] != "" {
			panic(fmt.Sprintf("wire: %s.%s has no value, or two: %s", list, name, entry))
		}
		values[i] = value
	}
	for i, v := range values {
		if v == "" {
			values[i] = "0"
		}
	}
	return strings.Join(values, ", ")
}

// arguments splits a text at the commas that are in no parentheses or brackets.
func arguments(text string) (list []string) {
	depth, from := 0, 0
	for i, c := range text {
		switch c {
		case '(', '[':
			depth++
		case ')', ']':
			depth--
		case ',':
			if depth == 0 {
				list = append(list, text[from:i])
				from = i + 1
			}
		}
	}
	return append(list, text[from:])
}
