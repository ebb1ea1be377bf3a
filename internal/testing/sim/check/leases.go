package check

import (
	"cmp"
	"slices"

	"github.com/headgate/headgate/internal/testing/history"
)

// lease is a lease that was acquired, or may have been, with bounds on when it is held.
type lease struct {
	*entry
	sureTo   int64 // it is held from its return to here, surely
	possible int64 // and from its call to here, at most
}

// leases checks a concurrency limit. docs/algorithms.md, "Concurrency": a lease that is not
// renewed ends after its ttl, in the store counted from the decision, which is not before
// the call and not after the return.
func (m *model) leases(c *cell) {
	var list []*lease
	byID := map[int]*lease{}
	var most num
	for _, r := range c.rules {
		most = atLeast(most, r.most)
	}
	for _, e := range c.entries {
		if e.Verb == history.Check || e.outcome() != history.Admitted && e.outcome() != history.Unknown {
			continue
		}
		l := &lease{entry: e, sureTo: e.from + m.shorter(e.rule.limit.TTL*1000), possible: forever}
		if !e.Kept {
			l.possible = m.lasts(e.ask, e.rule.limit.TTL*1000)
		}
		list, byID[e.ID] = append(list, l), l
	}
	m.renewals(c, byID)
	m.heldTooMany(c, list, most)
	m.refusedLeases(c, list)
}

// shorter and longer are a duration in nanoseconds, by a store's clock that drifts.
func (m *model) shorter(d int64) int64 { return d - d/1_000_000*m.drift - m.drift }
func (m *model) longer(d int64) int64  { return d + d/1_000_000*m.drift*2 + m.drift + 1000 }

// lasts returns the true time until which a lease is held at most that was acquired or renewed by a call.
func (m *model) lasts(a *ask, ttl int64) int64 {
	if u := a.until(); u < forever-2*ttl {
		return u + m.longer(ttl)
	}
	return forever
}

func (m *model) renewals(c *cell, byID map[int]*lease) {
	for _, a := range c.leases {
		l := byID[a.Of]
		if l == nil || a.outcome() == history.Nothing {
			continue
		}
		ttl := l.rule.limit.TTL * 1000
		switch out := a.outcome(); {
		case a.Verb == history.Release || out == history.Refused: // it ends, or had ended
			if l.sureTo = min(l.sureTo, a.from); l.Kept && out == history.Done {
				l.sureTo = a.from
			}
			if out != history.Unknown && !m.lossy(a.from, a.to) { // else a fail-over may have forgotten its end
				l.possible = min(l.possible, a.to)
			}
		case out == history.Done:
			if a.from > l.possible && m.setBack == forever {
				m.violation("leases", c, slices.Concat(l.events, a.events), "a lease was renewed %d ns after its end",
					a.from-l.possible)
			}
			l.sureTo = max(l.sureTo, a.from+m.shorter(ttl))
			l.possible = max(l.possible, m.lasts(a, ttl))
		default: // not known
			l.possible = m.lasts(a, ttl)
		}
	}
	m.disturbed(c, byID)
}

// disturbed applies what can end a lease before its time, or prolong it.
func (m *model) disturbed(c *cell, byID map[int]*lease) {
	for _, l := range byID {
		for _, f := range m.faults {
			switch {
			case f.t < l.from:
			case f.Kind == history.Clock && f.By > 0, f.Kind == history.Forget:
				l.sureTo = min(l.sureTo, f.begun())
			case f.Kind == history.Clock:
				l.possible = forever
			}
		}
		for _, o := range c.resets {
			if o.until() >= l.from {
				l.sureTo = min(l.sureTo, o.from)
			}
		}
		if len(c.rules) > 1 { // a change of the limit counts leases as one entry
			l.sureTo, l.possible = min(l.sureTo, l.to), forever
		}
	}
}

// heldTooMany checks that at no true time more is surely held than the limit says.
func (m *model) heldTooMany(c *cell, list []*lease, most num) {
	sure := slices.DeleteFunc(slices.Clone(list), func(l *lease) bool {
		return l.outcome() != history.Admitted || l.ret.Replayed || l.to >= l.sureTo
	})
	slices.SortStableFunc(sure, func(a, b *lease) int { return cmp.Compare(a.to, b.to) })
	var holds spans
	for _, l := range sure {
		holds.add(l.to, l.sureTo-1, l.cost)
	}
	holds.sort()
	for _, l := range sure {
		if sum := holds.during(l.to, l.to); sum.more(most) {
			m.violation("leases", c, l.events, "leases of %s are held at %d ns, where %s may be", sum, l.to, most)
			return
		}
	}
}

// refusedLeases excuses refusals for which so much may have been held that it did not fit.
func (m *model) refusedLeases(c *cell, list []*lease) {
	var holds spans
	for _, l := range list {
		holds.add(l.from, l.possible, l.cost)
	}
	holds.sort()
	blocks := slices.ContainsFunc(c.blocks, func(o *ask) bool { return o.Verb == history.Block })
	for _, e := range c.entries {
		if e.outcome() == history.Refused && (holds.during(e.from, e.to).plus(e.need()).more(e.rule.most) ||
			blocks || len(c.rules) > 1 || e.rule.limit.Block > 0) {
			m.excused[e.ask] = true
		}
	}
}
