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

// The texts of Replacement.Applied; suffix is ofPrefix, or empty for a single key.
func appliedOverride(suffix string) string   { return "override" + suffix }
func appliedPlan(plan, suffix string) string { return "plan " + plan + suffix }
func ofPrefix(prefix string) (suffix string) { return " of " + prefix + "*" }

// replacementOf reads a Replacement from a stored item.
func replacementOf(i *store.Item) Replacement {
	r := Replacement{Limit: i.Name, Until: timeOf(i.Until), Reason: i.Note}
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

// Replacements returns, in no order, what replaces the limits for a key: overrides of these limits,
// and plans, of the key itself and of its prefixes. Some may have ended already. With authors it
// also reads the newest hundred versions, to find who wrote each.
func (c *Catalog) Replacements(ctx context.Context, key string, authors bool, limits ...string) (
	list []Replacement, err error,
) {
	items, err := c.itemsOf(ctx, key, limits)
	if err != nil {
		return nil, err
	}
	if s := c.current.Load(); s != nil {
		for _, i := range s.items {
			isOf := func(limit string) bool { return s.aliases.cells(limit) == i.Name }
			if strings.HasPrefix(key, i.Key) && (i.Kind == store.KindPrefixAssignment ||
				i.Kind == store.KindPrefixOverride && slices.ContainsFunc(limits, isOf)) {
				items = append(items, i)
			}
		}
	}
	var newest []store.Version
	if authors && len(items) > 0 {
		if newest, err = c.Versions(ctx, 0, versionsPerPage); err != nil {
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

// author returns the author of the newest of these versions that wrote the item. The versions are
// ordered, the newest first. Empty: none of them wrote it.
func author(versions []store.Version, id store.Item) string {
	for _, v := range versions {
		if slices.ContainsFunc(v.Changes, func(c store.Change) bool { return c.After.ID() == id }) {
			return v.Author
		}
	}
	return ""
}
