package mysql

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"github.com/headgate/headgate/law"
)

// What the first pass of a request remembers for the second is text, in which each
// number takes numberWidth bytes, and each op as many as its numbers do. undoFields are
// those of the variable @undo: the cell as it was, the cell before it is charged, and
// whether that differs. memoFields are those of @memo: what was decided.
const numberWidth = 17

// memoryField is one of these numbers: its name, and its value in SQL.
type memoryField struct{ name, value string }

var (
	undoFields = []memoryField{
		{"was law", "[law]"},
		{"was level", "[level]"},
		{"was prev", "[prev]"},
		{"was at", "[at]"},
		{"was unit", "[unit]"},
		{"was empty", "[empty_at]"},
		{"was block", "[blocked_until]"},
		{"law", "@law"},
		{"level", "@level"},
		{"prev", "@prev"},
		{"at", "@at"},
		{"unit", "@unit"},
		{"empty", "@empty"},
		{"block", "@block"},
		{"moved", "@moved"},
		{"was step", "[step]"},
		{"step", "@step"},
	}

	memoFields = []memoryField{
		{"granted", "@g"},
		{"used", "@x"},
		{"base", "@t"}, // the time that the level is of
		{"retry", "@retry"},
		{"now", "@now"},
		{"clear", "@clear"},
		{"carry", "@carry"},
		{"pending", "@pending + {count} * {cost}"}, // in the cell, with this op
		{"own", "@own"},   // when it can start by itself
		{"last", "@last"}, // when it can start at the latest
		{"ends", "@ends"},
	}
)

// widths are how many bytes variables of the laws have for each op. In @pend that is
// what a request has put into a cell so far, in @names what is remembered of an ID.
var widths = map[string]int{
	"undo":  len(undoFields) * numberWidth,
	"memo":  len(memoFields) * numberWidth,
	"pend":  numberWidth,
	"names": 365, // enough for knownFields, whose numbers are not padded, and noExtension
}

// knownFields are the numbers that are remembered of an ID, as "known" in admission.tmpl
// reads them: four, those of an outcome, and those of an extension. They are followed by
// noExtension, so that these are 0 if there is none.
var knownFields = []string{
	"print", "cost", "settled", "same rule",
	"granted", "law", "level", "prev", "at", "unit", "empty", "block", "used", "told", "retry", "entry", "how",
	"when", "step",
	"more", "more level", "more at", "more prev",
}

// extensionWidth is how many numbers an extension has.
const extensionWidth = 4

// noExtension are the numbers of none, after others.
const noExtension = " 0 0 0 0"

// outcomeFields are those of an outcome that is remembered.
var outcomeFields = knownFields[len(knownFields)-extensionWidth-law.Width : len(knownFields)-extensionWidth]

// memoryFuncs are the functions by which the templates name what is remembered.
var memoryFuncs = template.FuncMap{
	"width":       width,
	"place":       place,
	"pad":         pad,
	"memories":    memories,
	"undo":        undo,
	"memo":        memo,
	"known":       knownField,
	"knowns":      knowns,
	"outcome":     outcomeField,
	"noextension": func() string { return noExtension },
}

// memoryFields are the lists of numbers by the names of their variables.
var memoryFields = map[string][]memoryField{"undo": undoFields, "memo": memoFields}

// width returns how many bytes a variable has for each op.
func width(variable string) (int, error) {
	n, ok := widths[variable]
	if !ok {
		return 0, fmt.Errorf("the width of @%s is not known", variable)
	}
	return n, nil
}

// place returns where in a variable the bytes of an op are: the position and the length
// that SUBSTRING and INSERT take. row is the number of the op in its request, from 1.
func place(variable, row string) (string, error) {
	n, err := width(variable)
	return fmt.Sprintf("%s * %d - %d, %d", row, n, n-1, n), err
}

// pad returns a value as text of numberWidth bytes.
func pad(value string) string { return fmt.Sprintf("LPAD(%s, %d, '0')", value, numberWidth) }

// memories returns the values that a variable remembers of an op.
func memories(variable string) (string, error) {
	var values []string
	for _, f := range memoryFields[variable] {
		values = append(values, pad(f.value))
	}
	if values == nil {
		return "", fmt.Errorf("the fields of @%s are not known", variable)
	}
	return strings.Join(values, ", "), nil
}

// memory returns where among the bytes of an op a number begins, from 0.
func memory(variable, name string) (int, error) {
	i := slices.IndexFunc(memoryFields[variable], func(f memoryField) bool { return f.name == name })
	if i < 0 {
		return 0, fmt.Errorf("@%s does not remember %q", variable, name)
	}
	return i * numberWidth, nil
}

// undo returns a number that @undo remembers of an op.
func undo(name string) (string, error) {
	at, err := memory("undo", name)
	n := widths["undo"]
	return fmt.Sprintf("CAST(SUBSTRING(@undo, {pos} * %d - %d, %d) AS SIGNED)", n, n-1-at, numberWidth), err
}

// memo returns a number that @memo remembers of an op, whose bytes are in @m.
func memo(name string) (string, error) {
	at, err := memory("memo", name)
	return fmt.Sprintf("CAST(SUBSTRING(@m, %d, %d) AS SIGNED)", 1+at, numberWidth), err
}

// knownField returns a number that is remembered of an ID, whose text is in @known.
func knownField(name string) (string, error) {
	n, err := nth(knownFields, name)
	return spaced("@known", n), err
}

// knowns returns the numbers of @known from one to another, as they stand there.
func knowns(first, last string) (string, error) {
	i, err := nth(knownFields, first)
	if err != nil {
		return "", err
	}
	j, err := nth(knownFields, last)
	text := "@known"
	if j < len(knownFields) {
		text = "SUBSTRING_INDEX(@known, ' ', " + strconv.Itoa(j) + ")"
	}
	return "SUBSTRING_INDEX(" + text + ", ' ', " + strconv.Itoa(i-j-1) + ")", err
}

// outcomeField returns a number of an outcome that is remembered as a text.
func outcomeField(text, name string) (string, error) {
	n, err := nth(outcomeFields, name)
	return spaced(text, n), err
}

// spaced returns the nth of the numbers of a text, with spaces between them.
func spaced(text string, n int) string {
	return fmt.Sprintf("CAST(SUBSTRING_INDEX(SUBSTRING_INDEX(%s, ' ', %d), ' ', -1) AS SIGNED)", text, n)
}

// nth returns where a name stands among others, from 1.
func nth(names []string, name string) (int, error) {
	if i := slices.Index(names, name); i >= 0 {
		return i + 1, nil
	}
	return 0, fmt.Errorf("%q is not remembered", name)
}

// Where numbers stand in an outcome that is remembered, from 1.
var (
	levelField, _ = nth(outcomeFields, "level")
	entryField, _ = nth(outcomeFields, "entry")
)

// extendedOutcome is the text of an outcome with the numbers of the extension, in the place
// of those of an earlier one. whole says that the limit forgets all at once.
func extendedOutcome(whole bool) string {
	first := "SUBSTRING_INDEX(outcome, ' ', " + strconv.Itoa(law.Width) + ")"
	if whole {
		first = raisedOutcome(first)
	}
	return "CONCAT_WS(' ', " + first + ", @hg_more, " + answered(fLevel) + ", " + answered(fAt) + ", " +
		answered(fPrev) + ")"
}

// raisedOutcome is the text of the first numbers of an outcome, where the level has grown by
// what the extension has charged that is replaced.
func raisedOutcome(first string) string {
	return "CONCAT_WS(' ', SUBSTRING_INDEX(outcome, ' ', " + strconv.Itoa(levelField-1) + "), LEAST(" +
		strconv.Itoa(law.Max) + ", " + spaced("outcome", levelField) + " + " +
		spaced("CONCAT(outcome, '"+noExtension+"')", law.Width+1) + "), SUBSTRING_INDEX(" + first + ", ' ', " +
		strconv.Itoa(levelField-law.Width) + "))"
}

// movedOutcome is the text of an outcome with the number of another entry.
func movedOutcome(entry string) string {
	before := "SUBSTRING_INDEX(outcome, ' ', " + strconv.Itoa(entryField) + ")"
	return "CONCAT(SUBSTRING_INDEX(outcome, ' ', " + strconv.Itoa(entryField-1) + "), ' ', " + entry +
		", SUBSTRING(outcome, LENGTH(" + before + ") + 1))"
}
