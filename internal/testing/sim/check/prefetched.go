package check

import (
	"cmp"
	"slices"

	"github.com/headgate/headgate/internal/testing/history"
)

// prefetched checks a cell of which nodes take tokens ahead: what they hand out, the store
// has charged before. So no less is in use than was handed out and has not drained, but for
// what drained while nodes held it. docs/operating.md, "prefetch".
func (m *model) prefetched(c *cell, r *rule) {
	if !r.prefetching() || r.shape != rated || c.raised() {
		return
	}
	until := m.setBack // true time from which on charges may be lost, and times be in no order
	for _, f := range m.faults {
		if f.Kind == history.Forget {
			until = min(until, f.Since)
		}
	}
	for _, a := range c.resets {
		until = min(until, a.from)
	}
	list := c.momentsUntil(r, until)
	low := &bucket{rate: r.rate, debt: r.rate.times(r.life + r.life/1000 + 1)}
	var before num // what is surely in use of what was charged before this time
	for i, mo := range list {
		if i == 0 || mo.at > list[i-1].at {
			low.advance(mo.at)
			before = low.used()
		}
		if e := mo.entry; e != nil {
			charged := atLeast(e.cost.minus(e.back), num{})
			low.add(charged)
			left := r.most.minus(before.plus(charged))
			if f, ok := e.figures(); ok && e.via() == history.ViaStore && len(e.Charges) == 1 &&
				f.Remaining > c.family.units(left) {
				m.violation("figures", c, e.events, "%d remaining, at most %s are", f.Remaining, left)
			}
			continue
		}
		if c.family.count(number(mo.state.Used)).plus(c.family.least()).less(before) {
			m.violation("recorded", c, []int{mo.state.event},
				"the store says that %s is in use, at least %s was handed out and has not drained",
				mo.state.Used, before)
		}
	}
}

// heldBefore reports whether an entry may be a token that a node had taken before the key was
// reset. docs/operating.md, "prefetch": such a node may hand it out within a life.
func (e *entry) heldBefore() bool {
	life := (e.rule.life + e.rule.life/1000 + 1) * 1000
	return e.via() == history.ViaPrefetch && e.cell.reset(e.from-life, e.to)
}

// momentsUntil returns what the store, and what nodes that hold tokens, have said of a cell, in the
// order of the store's times, up to a true time.
func (c *cell) momentsUntil(r *rule, until int64) (list []moment) {
	for _, e := range c.entries {
		if e.sure() && e.to < until {
			list = append(list, moment{at: e.ret.At, entry: e})
		}
	}
	for i := range c.states {
		if until < forever {
			break
		}
		if s := &c.states[i]; s.Version == r.limit.Version {
			list = append(list, moment{at: s.At, state: s})
		}
	}
	slices.SortStableFunc(list, func(a, b moment) int { return cmp.Compare(a.at, b.at) })
	return list
}
