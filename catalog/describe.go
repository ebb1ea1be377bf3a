package catalog

import (
	"fmt"

	"github.com/headgate/headgate/store"
)

// Describe describes a change of a version in a line.
func Describe(c store.Change) string {
	i := &c.After
	var what, retired string
	switch i.Kind {
	case store.KindLimit:
		what, retired = i.Name, "   (retired: it decides until it is removed)"
	case store.KindPlan:
		what, retired = fmt.Sprintf("plan %s: %s", i.Name, i.Key), "   (retired: it is in force until it is removed)"
	case store.KindOverride, store.KindPrefixOverride:
		what = fmt.Sprintf("override %s of %s", i.Name, target(i))
	case store.KindAssignment, store.KindPrefixAssignment:
		what = "plan of " + target(i)
	case store.KindFile:
		return fmt.Sprintf("file %s, which defines %.12s", i.Note, i.Name)
	default:
		return nameOf(i)
	}
	was, is := Meaning(&c.Before), Meaning(i)
	switch {
	case i.Removed:
		return fmt.Sprintf("- %s = %s", what, was)
	case c.Before.Removed:
		return fmt.Sprintf("+ %s = %s", what, is)
	case i.Retired && !c.Before.Retired:
		return fmt.Sprintf("- %s = %s%s", what, was, retired)
	case i.Kind == store.KindLimit && i.Origin == fromFile && c.Before.Origin == "":
		was += "; set by hand"
	}
	return fmt.Sprintf("~ %s = %s   (was %s)", what, is, was)
}

// target returns the key, or the prefix of keys, that an item applies to.
func target(i *store.Item) string {
	if i.Kind == store.KindPrefixOverride || i.Kind == store.KindPrefixAssignment {
		return fmt.Sprintf("%q*", i.Key)
	}
	return fmt.Sprintf("%q", i.Key)
}

// Meaning returns the content of an item, for people; empty if the item was removed.
func Meaning(i *store.Item) string {
	if i.Removed {
		return ""
	}
	text := i.Text
	if d, err := definition(i); i.Kind == store.KindLimit && err == nil {
		text = d.String()
	}
	if i.Until != 0 {
		text += " until " + timeOf(i.Until).Format("2006-01-02T15:04:05.000Z")
	}
	if i.Note != "" {
		text += fmt.Sprintf("; %q", i.Note)
	}
	if i.Retired {
		text += "; retired"
	}
	return text
}

// Concerns reports whether a change is about a limit, by whichever name: the limit itself, an override of it, or a plan
// that has it.
func (c *Catalog) Concerns(change store.Change, limit string) bool {
	name := concerned(change)
	return name != "" && c.CellsOf(name) == c.CellsOf(limit)
}

// concerned returns the name of the limit that a change is about; empty: it is about no single one.
func concerned(c store.Change) string {
	switch i := &c.After; i.Kind {
	case store.KindLimit, store.KindOverride, store.KindPrefixOverride:
		return i.Name
	case store.KindPlan:
		return i.Key
	}
	return ""
}
