package check

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/headgate/headgate/internal/testing/history"
)

// boundByTrue checks the bound by true time, through all faults: what was asked and
// answered within an interval has passed within it.
func (m *model) boundByTrue(c *cell) {
	var entries []*entry
	for _, e := range c.entries {
		if e.Verb != history.Check && e.outcome() == history.Admitted && !e.ret.Replayed && !e.again &&
			e.ret.StartAt <= e.ret.At {
			entries = append(entries, e)
		}
	}
	m.boundOfRules(c, c.rules, entries)
}

// boundOfRules checks that entries are within the bounds of all rules together.
func (m *model) boundOfRules(c *cell, rules []*rule, entries []*entry) {
	if len(entries) == 0 {
		return
	}
	slices.SortStableFunc(entries, func(a, b *entry) int { return cmp.Compare(a.to, b.to) })
	x := m.extras(c, rules, entries)
	if !slices.ContainsFunc(rules, func(r *rule) bool { return r.shape != rated && r.shape != refill }) {
		m.boundOfRates(c, rules, entries, x)
		return
	}
	from, to := entries[0].ret.At, entries[0].ret.At
	for _, e := range entries {
		if e.ret.At > 0 {
			from, to = min(from, e.ret.At), max(to, e.ret.At)
		}
	}
	for _, r := range rules {
		switch {
		case r.shape == logged:
			m.boundOfWindow(c, rules, entries, x, r.period-1, from, to)
		case r.shape != rated && r.shape != refill:
			m.boundOfWindow(c, rules, entries, x, r.shortest(from, to), from, to)
		}
	}
}

// extras returns what may pass in addition if an interval touches a stretch of true time: what the
// documentation allows for faults and resets.
func (m *model) extras(c *cell, rules []*rule, entries []*entry) *spans {
	x := &spans{}
	var burst, back num
	for _, r := range rules {
		burst = burst.plus(r.most)
		if r.shape == window || r.shape == first || r.shape == sliding || r.shape == refill {
			back = back.plus(r.most)
		}
	}
	for _, f := range m.faults {
		switch {
		case f.Kind == history.Clock && f.By > 0:
			// docs/stores.md: a jump of the clock forward adds at most one burst for each key. Of
			// windows, the present one is cut short and the next begins later than it would have:
			// so that jump adds one for each of both.
			most := burst.plus(back)
			if r := rules[0]; len(rules) == 1 && r.shape == rated && f.By < 1<<40 {
				most = atMost(burst, r.rate.times(f.By))
			}
			x.add(f.t, f.t, most)
			startLater(x, entries, f.t, f.t)
		case f.Kind == history.Clock && f.By < 0:
			// A step backwards creates no tokens (docs/algorithms.md, "Exactness"), but windows
			// that follow the clock (docs/project/decisions/laws.md, "A cell follows its own
			// time") end at another time: so three of them touch an interval of one.
			x.add(f.t, f.t, back)
		case f.Kind == history.Forget:
			// docs/stores.md, "What a failover forgets": all that was admitted in the meantime.
			var lost num
			for _, e := range entries {
				if e.to >= f.Since && e.from <= f.t {
					lost = lost.plus(e.cost)
				}
			}
			x.add(f.begun(), f.t, lost)
			startLater(x, entries, f.begun(), f.t)
		}
	}
	m.extrasOfResets(x, c, entries, burst.plus(back))
	x.sort()
	return x
}

func (m *model) extrasOfResets(x *spans, c *cell, entries []*entry, most num) {
	for _, a := range c.resets {
		x.add(a.from, a.until(), most)
		startLater(x, entries, a.from, a.until())
	}
	for _, e := range entries {
		if e.heldBefore() {
			x.add(e.from, e.to, e.cost)
		}
	}
	for _, f := range m.strays(c) {
		x.add(f.from, f.until(), f.of.cost)
	}
}

// startLater allows for charges that wait for their start while the store forgets them, or
// while its clock jumps beyond it: they start all the same.
func startLater(x *spans, entries []*entry, from, to int64) {
	for _, e := range entries {
		if e.Wait > 0 && e.from <= to && e.to >= from {
			x.add(from, e.to, e.cost)
		}
	}
}

// strays returns the corrections that may give back after a reset or a fail-over what was charged before it, and what
// that has given back already. headgate.Reservation: "If its limit is changed, or its key reset, before it is settled
// without an id, it should not be."
func (m *model) strays(c *cell) (list []*fix) {
	for _, f := range c.fixes {
		if f.Idem == "" && f.down && f.outcome() != history.Nothing &&
			(m.lossy(f.of.from, f.until()) || c.reset(f.of.from, f.until())) {
			list = append(list, f)
		}
	}
	return list
}

// stretched returns a true time in microseconds of a clock that gains by the drift.
func (m *model) stretched(t int64, up bool) int64 {
	if m.drift > 0 {
		t += t / 1_000_000 * m.drift
		if up {
			t += m.drift + 1
		}
	}
	if up {
		t += 999
	}
	return t / 1000
}

// boundOfRates checks all intervals: burst + rate x time, of all versions together.
func (m *model) boundOfRates(c *cell, rules []*rule, entries []*entry, x *spans) {
	var rate, most num
	for _, r := range rules {
		perMicro := r.rate
		most = most.plus(r.most).plus(c.slack(r, true))
		if r.shape == refill {
			perMicro = r.amount.over(r.period)
			most = most.plus(r.amount) // a period can end just after the first microsecond
		}
		rate = rate.plus(perMicro)
	}
	byCall := slices.Clone(entries)
	slices.SortStableFunc(byCall, func(a, b *entry) int { return cmp.Compare(a.from, b.from) })
	place := make(map[*entry]int, len(byCall))
	for i, e := range byCall {
		place[e] = i
	}
	t := make(tree, 2<<bits.Len(uint(len(byCall))))
	for _, e := range entries {
		_, over := x.over(e.from)
		_, begun := x.begun(e.to)
		t.put(place[e], e.passed, rate.times(m.stretched(e.from, false)).plus(over))
		allowed := most.plus(rate.times(m.stretched(e.to, true))).plus(begun)
		if best := t[1].best; best.more(allowed) {
			m.violation("bound", c, e.events, "by true time %s more than the bound of %s passes until %d ns",
				best.minus(allowed), most, e.to)
			return // the others would follow from it
		}
	}
}

// tree finds the start of the interval in which most has passed, beyond what may. The first half are the nodes
// above the leaves.
type tree []node

type node struct {
	sum  num // of what passed here
	best num // largest start, with what passed from there on
}

func (t tree) put(i int, n, start num) {
	i += len(t) / 2
	t[i] = node{n, n.plus(start)}
	for i /= 2; i > 0; i /= 2 {
		l, r := t[2*i], t[2*i+1]
		t[i] = node{l.sum.plus(r.sum), atLeast(r.best, l.best.plus(r.sum))}
	}
}

// boundOfWindow checks all closed intervals of a length in microseconds.
func (m *model) boundOfWindow(c *cell, rules []*rule, entries []*entry, x *spans, micros, from, to int64) {
	var most num
	strict := true
	for _, r := range rules {
		most = most.plus(r.in(micros, from, to)).plus(c.slack(r, true))
		strict = strict && r.shape == sliding
	}
	length := micros * 1000
	if m.drift > 0 {
		length -= length/1_000_000*m.drift + m.drift + 1
	}
	byCall := slices.Clone(entries)
	slices.SortStableFunc(byCall, func(a, b *entry) int { return cmp.Compare(a.from, b.from) })
	state := make(map[*entry]int8, len(byCall)) // 1: counted, 2: begun too early
	var sum num
	next := 0
	for _, e := range entries {
		if state[e] == 0 {
			state[e], sum = 1, sum.plus(e.passed)
		}
		for ; next < len(byCall) && byCall[next].from < e.to-length; next++ {
			if old := byCall[next]; state[old] == 1 {
				sum = sum.minus(old.passed)
			}
			state[byCall[next]] = 2
		}
		allowed := most.plus(x.during(e.to-length, e.to))
		// docs/project/decisions/laws.md: the bound of a sliding window is one step of a cost
		// below two windows.
		if sum.more(allowed) || strict && micros > 0 && !sum.less(allowed) {
			m.violation("bound", c, e.events, "by true time %s passes within %d us until %d ns, where %s may",
				sum, micros, e.to, allowed)
			return // the others would follow from it
		}
	}
}

// in returns the most that passes in a closed interval of a length in microseconds.
func (r *rule) in(micros, from, to int64) num {
	up := func(d, by int64) int64 { return (d + by - 1) / by }
	switch r.shape {
	case rated:
		return r.most.plus(r.rate.times(micros))
	case refill:
		return r.most.plus(r.amount.times(up(micros, r.period)))
	case logged:
		return r.most.times(1 + micros/r.period)
	}
	return r.most.times(1 + up(micros, r.shortest(from, to)))
}
