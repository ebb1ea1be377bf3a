package catalog

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/store"
)

// Replacement replaces limits for a key: an override, or a plan.
type Replacement struct {
	Limit   string    // the limit that an override replaces; empty: it is a plan
	Applied string    // the text of headgate.Decision.Applied
	Until   time.Time // by the store's clock, to the microsecond; zero: without an end
	Reason  string
	// Author wrote it. Empty: it is not among the newest hundred versions, or was not asked for.
	Author string
}

// The texts of Replacement.Applied.
func appliedOverride(of string) string     { return "override" + of }
func appliedPlan(plan, of string) string   { return "plan " + plan + of }
func ofPrefix(prefix string) (text string) { return " of " + prefix + "*" }

// replacementOf reads a Replacement from a stored item.
func replacementOf(i *store.Item) Replacement {
	r := Replacement{Limit: i.Name, Until: moment(i.Until), Reason: i.Note}
	switch i.Kind {
	case store.KindOverride:
		r.Applied = appliedOverride("")
	case store.KindPrefixOverride:
		r.Applied = appliedOverride(ofPrefix(i.Key))
	case store.KindPrefixAssignment:
		r.Applied = appliedPlan(i.Text, ofPrefix(i.Key))
	default:
		r.Applied = appliedPlan(i.Text, "")
	}
	return r
}

// Replacements returns what the catalog has for a key in the place of limits, in no order: the
// overrides of these limits and the plans, of the key itself and of prefixes of it. Those that have
// ended may be among them. Authors are looked up if they are requested, which reads a hundred
// versions.
func (c *Catalog) Replacements(ctx context.Context, key string, authors bool, limits ...string) (
	list []Replacement, err error,
) {
	items, err := c.itemsOf(ctx, key, limits)
	if err != nil {
		return nil, err
	}
	if s := c.now.Load(); s != nil {
		for _, i := range s.items {
			if i.Kind == store.KindPrefixAssignment && strings.HasPrefix(key, i.Key) ||
				i.Kind == store.KindPrefixOverride && strings.HasPrefix(key, i.Key) && slices.Contains(limits, i.Name) {
				items = append(items, i)
			}
		}
	}
	var newest []store.Version
	if authors && len(items) > 0 {
		if newest, err = c.Versions(ctx, 0, page); err != nil {
			return nil, err
		}
	}
	for i := range items {
		r := replacementOf(&items[i])
		r.Author = author(newest, items[i].ID())
		list = append(list, r)
	}
	return list, nil
}

// author returns who has written an item last, by versions, the newest first; empty: none of them
// has.
func author(versions []store.Version, id store.Item) string {
	for _, v := range versions {
		if slices.ContainsFunc(v.Changes, func(c store.Change) bool { return c.After.ID() == id }) {
			return v.Author
		}
	}
	return ""
}
