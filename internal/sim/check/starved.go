package check

import (
	"math"

	"github.com/headgate/headgate/internal/history"
)

// starved checks a cell that several versions of a limit decide about: it may not refuse
// when nothing was charged for longer than each of them takes to forget. docs/algorithms.md,
// "Changing a limit": if two processes disagree about a limit, no key is refused for ever.
func (m *model) starved(c *cell, rules []*rule) {
	var empty int64 // microseconds
	least := rules[0].most
	for _, r := range rules {
		t, ok := r.empties()
		if !ok || r.limit.Block > 0 || empty > math.MaxInt64/4-t {
			return
		}
		empty += t + r.life
		least = atMost(least, r.most)
	}
	for _, a := range c.others {
		if a.Verb == history.Block {
			return
		}
	}
	last := int64(0) // true time until which something can have been charged
	for _, e := range c.entries {
		if e.outcome() == history.Refused && e.via() == history.ViaStore && len(e.Charges) == 1 &&
			!e.cost.more(least) &&
			last < forever && e.to < m.setBack && e.from-last > m.longer(empty*1000) {
			m.violation("starved", []*ask{e.ask}, "%s: refused, though nothing was charged for %d us",
				c.name(), (e.from-last)/1000)
			return
		}
		if e.Verb != history.Check && e.outcome() != history.Refused && e.outcome() != history.Nothing {
			if last = max(last, e.until()); e.Wait > 0 && last < forever { // for a start that comes later
				last = max(last, e.until()+e.Wait*1000)
			}
		}
	}
}

// empties returns in how many microseconds a full level is empty, false if that is not known.
func (r *rule) empties() (micros int64, ok bool) {
	switch r.shape {
	case rated:
		t := r.most.big()
		t.Quo(t, r.rate.big())
		return t.Int64() + r.step, t.IsInt64()
	case refill:
		t := r.most.big()
		t.Quo(t, r.amount.big())
		return (t.Int64() + 2) * r.period, t.IsInt64() && t.Int64() < math.MaxInt32
	case window, first, sliding, logged:
		return 2 * r.period, r.period > 0
	}
	return 0, false
}
