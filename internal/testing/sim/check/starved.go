package check

import (
	"math"
	"slices"

	"github.com/headgate/headgate/internal/testing/history"
)

// starved checks a cell that several versions of a limit decide about: it may not refuse
// when nothing was charged for longer than each of them takes to forget. docs/algorithms.md,
// "Changing a limit": if two processes disagree about a limit, no key is refused for ever.
func (m *model) starved(c *cell, rules []*rule) {
	var empty int64 // microseconds
	more, least := c.chargedLater(), rules[0].most
	for _, r := range rules {
		t, ok := r.empties(more)
		if !ok || r.limit.Block > 0 || empty > math.MaxInt64/4-t {
			return
		}
		empty += t + r.life
		least = atMost(least, r.most)
	}
	if slices.ContainsFunc(c.blocks, func(a *ask) bool { return a.Verb == history.Block }) {
		return
	}
	last := int64(0) // true time until which something can have been charged
	for i, e := range c.entries {
		if e.outcome() == history.Refused && e.via() == history.ViaStore && len(e.Charges) == 1 &&
			!e.need().more(least) &&
			last < forever && e.to < m.setBack && e.from-last > m.longer(empty*1000) &&
			!slices.ContainsFunc(c.entries[i+1:], func(o *entry) bool { return o.from <= e.to && o.mayCharge() }) {
			m.violation("starved", c, e.events, "refused, though nothing was charged for %d us", (e.from-last)/1000)
			return
		}
		if e.mayCharge() {
			if last = max(last, e.until()); e.Wait > 0 && last < forever { // for a start that comes later
				last = max(last, e.until()+e.Wait*1000)
			}
		}
	}
}

// mayCharge reports whether something may have been charged.
func (e *entry) mayCharge() bool {
	return e.Verb != history.Check && e.outcome() != history.Refused && e.outcome() != history.Nothing
}

// chargedLater returns what settlements have charged, which may be more than a level holds.
func (c *cell) chargedLater() (more num) {
	for _, f := range c.fixes {
		if !f.down && f.outcome() != history.Nothing {
			more = more.plus(f.amount).plus(c.family.least())
		}
	}
	return more
}

// empties returns in how many microseconds a level is empty that is full, and so much more;
// false if that is not known.
func (r *rule) empties(more num) (micros int64, ok bool) {
	switch r.shape {
	case rated:
		t := r.most.plus(more).big()
		t.Quo(t, r.rate.big())
		return t.Int64() + r.step, t.IsInt64()
	case refill:
		t := r.most.plus(more).big()
		t.Quo(t, r.amount.big())
		return (t.Int64() + 2) * r.period, t.IsInt64() && t.Int64() < math.MaxInt32
	case window, first, sliding, logged:
		return 2 * r.period, r.period > 0
	}
	return 0, false
}
