package check

import (
	"cmp"
	"slices"
	"sort"

	"github.com/headgate/headgate/internal/history"
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
	for _, r := range c.rules() {
		most = atLeast(most, r.most)
	}
	for _, e := range c.entries {
		if e.Verb == history.Check || e.outcome() != history.Admitted && e.outcome() != history.Unknown {
			continue
		}
		ttl := e.rule.limit.TTL * 1000
		l := &lease{entry: e, sureTo: e.from + m.shorter(ttl), possible: e.until()}
		switch {
		case e.Kept:
			l.possible = forever
		case l.possible < forever-2*ttl:
			l.possible += m.longer(ttl)
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

// renewals prolongs and ends leases.
func (m *model) renewals(c *cell, byID map[int]*lease) {
	for _, a := range c.leases {
		l := byID[a.Of]
		if l == nil || a.outcome() == history.Nothing {
			continue
		}
		ttl := l.rule.limit.TTL * 1000
		switch {
		case a.Verb == history.Release:
			l.sureTo = min(l.sureTo, a.from)
			if l.Kept && a.outcome() == history.Done {
				l.sureTo = a.from
			}
			if a.outcome() == history.Done || a.outcome() == history.Refused {
				m.over(l, a)
			}
		case a.outcome() == history.Refused: // it had ended
			l.sureTo = min(l.sureTo, a.from)
			m.over(l, a)
		case a.outcome() == history.Done:
			if a.from > l.possible && m.setBack == forever {
				m.violation("leases", []*ask{l.ask, a}, "%s: a lease was renewed %d ns after its end",
					c.name(), a.from-l.possible)
			}
			l.sureTo = max(l.sureTo, a.from+m.shorter(ttl))
			l.possible = max(l.possible, a.to+m.longer(ttl))
		default: // not known
			l.possible = forever
			if u := a.until(); u < forever-2*ttl {
				l.possible = u + m.longer(ttl)
			}
		}
	}
	m.disturbed(c, byID)
}

// over notes that the lease had ended when a call returned, unless a fail-over may have
// forgotten its end.
func (m *model) over(l *lease, a *ask) {
	if !m.lossy(a.from, a.to) {
		l.possible = min(l.possible, a.to)
	}
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
		for _, o := range c.others {
			if o.Verb == history.Reset && o.until() >= l.from && o.outcome() != history.Nothing {
				l.sureTo = min(l.sureTo, o.from)
			}
		}
		if len(c.rules()) > 1 { // a change of the limit counts leases as one entry
			l.sureTo, l.possible = min(l.sureTo, l.to), forever
		}
	}
}

// heldTooMany checks that at no true time more is surely held than the limit says.
func (m *model) heldTooMany(c *cell, list []*lease, most num) {
	type change struct {
		t int64
		l *lease
	}
	var begins, ends []change
	for _, l := range list {
		if l.outcome() == history.Admitted && !l.ret.Replayed && l.to < l.sureTo {
			begins, ends = append(begins, change{l.to, l}), append(ends, change{l.sureTo, l})
		}
	}
	byTime := func(a, b change) int { return cmp.Compare(a.t, b.t) }
	slices.SortStableFunc(begins, byTime)
	slices.SortStableFunc(ends, byTime)
	var sum num
	j := 0
	for _, b := range begins {
		for ; j < len(ends) && ends[j].t <= b.t; j++ {
			sum = sum.minus(ends[j].l.cost)
		}
		if sum = sum.plus(b.l.cost); sum.more(most) {
			m.violation("leases", []*ask{b.l.ask}, "%s: leases of %s are held at %d ns, where %s may be",
				c.name(), c.family.text(sum), b.t, c.family.text(most))
			return
		}
	}
}

// refusedLeases excuses refusals for which so much may have been held that it did not fit.
func (m *model) refusedLeases(c *cell, list []*lease) {
	begins, ends := slices.Clone(list), slices.Clone(list)
	slices.SortStableFunc(begins, func(a, b *lease) int { return cmp.Compare(a.from, b.from) })
	slices.SortStableFunc(ends, func(a, b *lease) int { return cmp.Compare(a.possible, b.possible) })
	sum := func(list []*lease) []num {
		sums := make([]num, len(list)+1)
		for i, l := range list {
			sums[i+1] = sums[i].plus(l.cost)
		}
		return sums
	}
	begun, ended := sum(begins), sum(ends)
	blocks := slices.ContainsFunc(c.others, func(o *ask) bool { return o.Verb == history.Block })
	for _, e := range c.entries {
		if e.outcome() != history.Refused {
			continue
		}
		i := sort.Search(len(begins), func(i int) bool { return begins[i].from > e.to })
		j := sort.Search(len(ends), func(j int) bool { return ends[j].possible >= e.from })
		if begun[i].minus(ended[j]).plus(e.need()).more(e.rule.most) || blocks || e.rule.limit.Block > 0 ||
			len(c.rules()) > 1 || e.Partial {
			m.excused[e.ask] = true
		}
	}
}
