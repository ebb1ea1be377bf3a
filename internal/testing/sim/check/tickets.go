package check

import (
	"cmp"
	"slices"

	"github.com/headgate/headgate/internal/testing/history"
)

// tickets checks that reservations start in the order of their decisions, and not before their decisions: see
// docs/algorithms.md, "What each verb does". The bound rule checks that they start no faster than the limit allows. A
// refund, a loss or a conversion may let a later reservation start earlier, so reservations before it are not compared
// with those after it.
func (m *model) tickets(c *cell, breaks *spans) {
	list := m.reservations(c)
	if len(list) < 2 || len(c.rules) > 1 {
		return
	}
	cuts := breaks.clone()
	for _, f := range c.corrections {
		cuts.add(f.from, f.doneBy(), num{})
	}
	cuts.sort()
	// Of reservations that were decided at the same time, the first to start counts as decided first.
	slices.SortStableFunc(list, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.ret.At, b.ret.At), cmp.Compare(a.start(), b.start()))
	})
	var last *entry // the latest to start so far
	stretch := -1
	for _, e := range list {
		n, ok := cuts.between(e.from, e.to)
		if !ok {
			n = -1
		}
		if ok && n == stretch && e.start() < last.start() {
			m.report("tickets", c, slices.Concat(last.events, e.events),
				"decided at %d it starts at %d, that of %d at %d", e.ret.At, e.start(), last.ret.At, last.start())
		} else {
			last = e
		}
		stretch = n
	}
}

// reservations returns the reservations of a cell, and checks that none starts before its decision.
func (m *model) reservations(c *cell) (list []*entry) {
	for _, e := range c.entries {
		if e.Verb != history.Reserve || !e.surelyCharged() || !m.timed(e.call) {
			continue
		}
		list = append(list, e)
		if e.ret.StartAt > 0 && e.ret.StartAt < e.ret.At && e.to < m.setBack {
			m.report("tickets", c, e.events, "a start at %d, before its decision at %d", e.ret.StartAt, e.ret.At)
		}
	}
	return list
}
