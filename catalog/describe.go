package catalog

import (
	"fmt"

	"github.com/headgate/headgate/store"
)

// Describe is one line for people about a change of a version.
func Describe(c store.Change) string {
	i := &c.After
	switch i.Kind {
	case store.KindLimit:
		if line, ok := describeLimit(&c); ok {
			return line
		}
	case store.KindFile:
		return fmt.Sprintf("file %s, which defines %.12s", i.Note, i.Name)
	case store.KindPlan:
		return became(&c, fmt.Sprintf("plan %s: %s", i.Name, i.Key), "   (retired: it is in force until it is removed)")
	case store.KindOverride, store.KindPrefixOverride:
		return became(&c, fmt.Sprintf("override %s of %s", i.Name, target(i)), "")
	case store.KindAssignment, store.KindPrefixAssignment:
		return became(&c, "plan of "+target(i), "")
	}
	return fmt.Sprintf("%s %s %s", i.Kind, i.Name, i.Key)
}

// target is the key, or the prefix of keys, that an item applies to.
func target(i *store.Item) string {
	if i.Kind == store.KindPrefixOverride || i.Kind == store.KindPrefixAssignment {
		return fmt.Sprintf("%q*", i.Key)
	}
	return fmt.Sprintf("%q", i.Key)
}

// became is a line about something that has a text.
func became(c *store.Change, what, retired string) string {
	switch {
	case c.After.Removed:
		return fmt.Sprintf("- %s = %s", what, meaning(&c.Before))
	case c.Before.Removed:
		return fmt.Sprintf("+ %s = %s", what, meaning(&c.After))
	case c.After.Retired && !c.Before.Retired:
		return fmt.Sprintf("- %s = %s%s", what, meaning(&c.Before), retired)
	}
	return fmt.Sprintf("~ %s = %s   (was %s)", what, meaning(&c.After), meaning(&c.Before))
}

// Meaning is what an item says, for people; empty of one that is not there.
func Meaning(i *store.Item) string {
	if i.Removed {
		return ""
	}
	if d, err := definition(i); i.Kind == store.KindLimit && err == nil {
		return describe(&d)
	}
	return meaning(i)
}

// meaning is what an item says.
func meaning(i *store.Item) string {
	text := i.Text
	if i.Until != 0 {
		text += " until " + moment(i.Until).Format("2006-01-02T15:04:05.000Z")
	}
	if i.Note != "" {
		text += fmt.Sprintf("; %q", i.Note)
	}
	if i.Retired {
		text += "; retired"
	}
	return text
}

func describeLimit(c *store.Change) (string, bool) {
	var before, after Definition
	var err1, err2 error
	if !c.Before.Removed {
		before, err1 = definition(&c.Before)
	}
	if !c.After.Removed {
		after, err2 = definition(&c.After)
	}
	return Change{before, after}.String(), err1 == nil && err2 == nil
}

// Concerns reports whether a change is about a limit: about itself, its overrides, or plans that
// have it.
func Concerns(c store.Change, limit string) bool {
	switch i := &c.After; i.Kind {
	case store.KindLimit, store.KindOverride, store.KindPrefixOverride:
		return i.Name == limit
	case store.KindPlan:
		return i.Key == limit
	}
	return false
}
