package check

import (
	"cmp"
	"slices"

	"github.com/headgate/headgate/internal/testing/history"
)

// tickets checks that reservations start in the order of their decisions, and not before their decisions: see
// docs/algorithms.md, "What each verb does". boundOfStretch checks that they start no faster than the limit allows. A
// refund or a loss may let a later reservation start earlier, so reservations before it are not compared with those
// after it. So may a conversion: it skips changed limits.
func (m *model) tickets(c *cell, breaks *spans) {
	list := m.reservations(c)
	if len(list) < 2 || len(c.rules) > 1 {
		return
	}
	interruptions := breaks.clone()
	for _, f := range c.corrections {
		interruptions.add(f.from, f.doneBy(), num{})
	}
	interruptions.sort()
	// Of reservations that were decided at the same time, the first to start counts as decided first.
	slices.SortStableFunc(list, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.ret.At, b.ret.At), cmp.Compare(a.start(), b.start()))
	})
	var latest *entry // the latest to start so far
	stretch := -1
	for _, e := range list {
		n, ok := interruptions.stretchOf(e.from, e.to)
		if !ok {
			n = -1
		}
		switch {
		case !ok || n != stretch:
			latest = e
		case e.start() < latest.start():
			m.report("tickets", c, slices.Concat(latest.events, e.events),
				"decided at %d it starts at %d, that of %d at %d", e.ret.At, e.start(), latest.ret.At, latest.start())
		default:
			latest = e
		}
		stretch = n
	}
}

// reservations returns the reservations of a cell, and checks that none starts before its decision.
func (m *model) reservations(c *cell) (list []*entry) {
	for _, e := range c.entries {
		if e.Verb != history.Reserve || !e.surelyCharged() || !m.returnsDecisionTime(e.call) {
			continue
		}
		list = append(list, e)
		if e.ret.StartAt > 0 && e.ret.StartAt < e.ret.At && e.to < m.clockSetBackAt {
			m.report("tickets", c, e.events, "a start at %d, before its decision at %d", e.ret.StartAt, e.ret.At)
		}
	}
	return list
}
