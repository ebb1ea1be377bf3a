package check

import (
	"cmp"
	"slices"

	"github.com/headgate/headgate/internal/history"
)

// tickets checks that reservations start in the order in which they were decided, and not
// before they were: docs/algorithms.md, "What each verb does". That they start no faster
// than the limit allows is the rule bound. What was given back, forgotten or converted in between
// may let a later one start earlier, so those before it are not compared with those after.
func (m *model) tickets(c *cell, breaks *spans) {
	list := m.reservations(c)
	if len(list) < 2 || len(c.rules()) > 1 {
		return
	}
	cuts := breaks.clone()
	for _, f := range c.fixes {
		cuts.add(f.from, f.until(), num{})
	}
	cuts.sort()
	slices.SortStableFunc(list, func(a, b *entry) int { return cmp.Compare(a.ret.At, b.ret.At) })
	var last, same *entry // with the latest start of those decided before, and at the same time
	stretch := -1
	for i, e := range list {
		if i > 0 && e.ret.At > list[i-1].ret.At && same != nil {
			if last == nil || same.start() > last.start() {
				last = same
			}
			same = nil
		}
		n, ok := cuts.between(e.from, e.to)
		if !ok || n != stretch {
			last, same, stretch = nil, nil, n
		}
		if !ok {
			stretch = -1
			continue
		}
		if last != nil && e.start() < last.start() {
			m.violation("tickets", c, slices.Concat(last.events, e.events),
				"decided at %d it starts at %d, that of %d at %d", e.ret.At, e.start(), last.ret.At, last.start())
		}
		if same == nil || e.start() > same.start() {
			same = e
		}
	}
}

// reservations returns those of a cell, and checks that none starts before it was decided.
func (m *model) reservations(c *cell) (list []*entry) {
	for _, e := range c.entries {
		if e.Verb != history.Reserve || !e.sure() || !m.timed(e.ask) {
			continue
		}
		list = append(list, e)
		if e.ret.StartAt > 0 && e.ret.StartAt < e.ret.At && e.to < m.setBack {
			m.violation("tickets", c, e.events, "a start at %d, before its decision at %d", e.ret.StartAt, e.ret.At)
		}
	}
	return list
}
