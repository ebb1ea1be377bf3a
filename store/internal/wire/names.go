package wire

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Names maps the name of each list of numbers to the names of its numbers, in order. Texts in SQL and Lua have
// placeholders for them. With a list op of the names verb, unit and cost, Expand replaces:
//
//	{op.unit}            2, the place of unit, from 1
//	{op.width}           3, the length of the list
//	{op.unit * d}        dd, a letter for each name up to unit
//	{each op: p.*}       p.verb, p.unit, p.cost
//	{each op to unit: *} verb, unit
//	{op: verb => 1, cost => least(a, b)}
//	                     1, 0, least(a, b): all values in order, 0 for those not given
type Names map[string][]string

var (
	placePattern = regexp.MustCompile(`\{([a-z]+)\.([a-z0-9_]+)(?: \* ([a-z]))?\}`)
	eachPattern  = regexp.MustCompile(`\{each ([a-z]+)(?: to ([a-z0-9_]+))?: ([^{}]*)\}`)
	valuePattern = regexp.MustCompile(`\{([a-z]+):\s([^{}]*)\}`)
)

// Expand replaces the placeholders of a text. It panics if one is wrong, since texts are part of the program.
func (n Names) Expand(text string) string {
	text = placePattern.ReplaceAllStringFunc(text, func(s string) string {
		m := placePattern.FindStringSubmatch(s)
		place := n.place(m[1], m[2])
		if m[3] != "" {
			return strings.Repeat(m[3], place)
		}
		return strconv.Itoa(place)
	})
	text = eachPattern.ReplaceAllStringFunc(text, func(s string) string {
		m := eachPattern.FindStringSubmatch(s)
		list := n.namesOf(m[1])
		if m[2] != "" {
			list = list[:n.place(m[1], m[2])]
		}
		parts := make([]string, len(list))
		for i, name := range list {
			parts[i] = strings.ReplaceAll(m[3], "*", name)
		}
		return strings.Join(parts, ", ")
	})
	return valuePattern.ReplaceAllStringFunc(text, func(s string) string {
		m := valuePattern.FindStringSubmatch(s)
		return n.values(m[1], m[2])
	})
}

// namesOf returns the names of a list. It panics if the list is unknown.
func (n Names) namesOf(list string) []string {
	names, ok := n[list]
	if !ok {
		panic(fmt.Sprintf("wire: a placeholder names the list %s, which is unknown", list))
	}
	return names
}

// place returns the place of a name in a list, from 1; of width, the length of the list. It panics if there is none.
func (n Names) place(list, name string) int {
	names := n.namesOf(list)
	if name == "width" {
		return len(names)
	}
	i := slices.Index(names, name)
	if i < 0 {
		panic(fmt.Sprintf("wire: a placeholder names %s.%s, which is unknown", list, name))
	}
	return i + 1
}

// values returns the values of a list in order, 0 for a name without a value. assignments assigns values to some names.
func (n Names) values(list, assignments string) string {
	values := make([]string, len(n.namesOf(list)))
	for _, entry := range arguments(assignments) {
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

// arguments splits a text at the commas outside of parentheses and brackets.
func arguments(text string) (list []string) {
	depth, start := 0, 0
	for i, c := range text {
		switch c {
		case '(', '[':
			depth++
		case ')', ']':
			depth--
		case ',':
			if depth == 0 {
				list = append(list, text[start:i])
				start = i + 1
			}
		}
	}
	return append(list, text[start:])
}
