package check

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/headgate/headgate/internal/testing/history"
)

// boundByTrue checks the bound by true time, through all faults. A charge has passed within an interval if it was
// called and answered within it.
func (m *model) boundByTrue(c *cell) {
	var entries []*entry
	for _, e := range c.entries {
		if e.Verb != history.Check && e.outcome() == history.Admitted && !e.ret.Replayed && !e.mayBeReadmitted &&
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
	extras := m.extras(c, rules, entries)
	if !slices.ContainsFunc(rules, func(r *rule) bool { return r.shape != bucketShape && r.shape != intervalShape }) {
		m.boundOfRates(c, rules, entries, extras)
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
		case r.shape == logShape:
			m.boundOfWindow(c, rules, entries, extras, r.period-1, from, to)
		case r.shape != bucketShape && r.shape != intervalShape:
			m.boundOfWindow(c, rules, entries, extras, r.shortest(from, to), from, to)
		}
	}
}

// extras returns the additional amounts that the documentation allows for faults and resets: an interval that touches
// one of the spans gets its amount.
func (m *model) extras(c *cell, rules []*rule, entries []*entry) *spans {
	extras := &spans{}
	var burst, windowBurst num
	for _, r := range rules {
		burst = burst.plus(r.capacity)
		if r.shape == windowShape || r.shape == fromFirstShape || r.shape == slidingShape || r.shape == intervalShape {
			windowBurst = windowBurst.plus(r.capacity)
		}
	}
	for _, f := range m.faults {
		switch {
		case f.Kind == history.Clock && f.By > 0:
			// docs/stores.md: a jump of the clock forward adds at most one burst for each key. For windows it adds
			// two: it cuts the present window short, and the next begins later than it would have.
			extra := burst.plus(windowBurst)
			if r := rules[0]; len(rules) == 1 && r.shape == bucketShape && f.By < 1<<40 {
				extra = minNum(burst, r.rate.times(f.By))
			}
			extras.add(f.t, f.t, extra)
			addWaitingStarts(extras, entries, f.t, f.t)
		case f.Kind == history.Clock && f.By < 0:
			// A step backwards creates no tokens (docs/algorithms.md, "Exactness"), but windows that follow the clock
			// (docs/project/decisions/laws.md, "A cell follows its own time") end at another time: so three of them
			// touch an interval of one.
			extras.add(f.t, f.t, windowBurst)
		case f.Kind == history.Forget:
			// docs/stores.md, "What a failover forgets": all that was admitted in the meantime.
			var lost num
			for _, e := range entries {
				if e.to >= f.Since && e.from <= f.t {
					lost = lost.plus(e.cost)
				}
			}
			extras.add(f.firstEffect(), f.t, lost)
			addWaitingStarts(extras, entries, f.firstEffect(), f.t)
		}
	}
	m.addResets(extras, c, entries, burst.plus(windowBurst))
	extras.sort()
	return extras
}

// addResets adds what resets, and corrections after a loss, let pass in addition.
func (m *model) addResets(extras *spans, c *cell, entries []*entry, extra num) {
	for _, a := range c.resets {
		extras.add(a.from, a.doneBy(), extra)
		addWaitingStarts(extras, entries, a.from, a.doneBy())
	}
	for _, e := range entries {
		if e.mayPredateReset() {
			extras.add(e.from, e.to, e.cost)
		}
	}
	for _, f := range m.strayRefunds(c) {
		extras.add(f.from, f.doneBy(), f.entry.cost)
	}
}

// addWaitingStarts adds charges that may wait for their start while the store forgets them, or while its clock jumps
// beyond their start: they start all the same.
func addWaitingStarts(extras *spans, entries []*entry, from, to int64) {
	for _, e := range entries {
		if e.Wait > 0 && e.from <= to && e.to >= from {
			extras.add(from, e.to, e.cost)
		}
	}
}

// strayRefunds returns the corrections that may give back what a reset or a fail-over has given back already: see
// Settle of headgate.Reservation.
func (m *model) strayRefunds(c *cell) (list []*correction) {
	for _, f := range c.corrections {
		if f.Idem == "" && f.isRefund && f.outcome() != history.Nothing &&
			(m.mayBeLost(f.entry.from, f.doneBy()) || c.mayBeReset(f.entry.from, f.doneBy())) {
			list = append(list, f)
		}
	}
	return list
}

// storeMicros returns a true time, given in nanoseconds, in microseconds of a store's clock that gains by the drift.
func (m *model) storeMicros(t int64, roundUp bool) int64 {
	if m.drift > 0 {
		t += t / 1_000_000 * m.drift
		if roundUp {
			t += m.drift + 1
		}
	}
	if roundUp {
		t += 999
	}
	return t / 1000
}

// boundOfRates checks that no interval passes more than burst + rate x time, of all versions together.
func (m *model) boundOfRates(c *cell, rules []*rule, entries []*entry, extras *spans) {
	var rate, maxPassed num
	for _, r := range rules {
		perMicro := r.rate
		maxPassed = maxPassed.plus(r.capacity).plus(c.slack(r, true))
		if r.shape == intervalShape {
			perMicro = r.amount.dividedBy(r.period)
			maxPassed = maxPassed.plus(r.amount) // a period can end just after the first microsecond
		}
		rate = rate.plus(perMicro)
	}
	byCall := slices.Clone(entries)
	slices.SortStableFunc(byCall, func(a, b *entry) int { return cmp.Compare(a.from, b.from) })
	indexes := make(map[*entry]int, len(byCall))
	for i, e := range byCall {
		indexes[e] = i
	}
	t := make(tree, 2<<bits.Len(uint(len(byCall))))
	for _, e := range entries {
		_, ended := extras.countEndedBefore(e.from)
		_, begun := extras.countBegunBy(e.to)
		t.put(indexes[e], e.finalCost, rate.times(m.storeMicros(e.from, false)).plus(ended))
		allowed := maxPassed.plus(rate.times(m.storeMicros(e.to, true))).plus(begun)
		if best := t[1].best; best.exceeds(allowed) {
			m.report("bound", c, e.events, "by true time %s more than the bound of %s passes until %d ns",
				best.minus(allowed), maxPassed, e.to)
			return // further violations would follow from this one
		}
	}
}

// tree finds the start of the interval in which the excess over the bound is largest. It is a segment tree: its second
// half are the leaves, one for each entry in the order of the calls.
type tree []node

type node struct {
	sum  num // the sum of the costs below this node
	best num // the largest sum of a start value and the costs from there on
}

// put sets the leaf i to a cost and its start value: the bound that is used up before it.
func (t tree) put(i int, cost, start num) {
	i += len(t) / 2
	t[i] = node{cost, cost.plus(start)}
	for i /= 2; i > 0; i /= 2 {
		l, r := t[2*i], t[2*i+1]
		t[i] = node{l.sum.plus(r.sum), maxNum(r.best, l.best.plus(r.sum))}
	}
}

// boundOfWindow checks all closed intervals of a length in microseconds.
func (m *model) boundOfWindow(c *cell, rules []*rule, entries []*entry, extras *spans, micros, from, to int64) {
	var maxPassed num
	exclusive := true
	for _, r := range rules {
		maxPassed = maxPassed.plus(r.maxIn(micros, from, to)).plus(c.slack(r, true))
		exclusive = exclusive && r.shape == slidingShape
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
			state[e], sum = 1, sum.plus(e.finalCost)
		}
		for ; next < len(byCall) && byCall[next].from < e.to-length; next++ {
			if older := byCall[next]; state[older] == 1 {
				sum = sum.minus(older.finalCost)
			}
			state[byCall[next]] = 2
		}
		allowed := maxPassed.plus(extras.sumDuring(e.to-length, e.to))
		// docs/project/decisions/laws.md: the bound of a sliding window is one step of a cost below two windows.
		if sum.exceeds(allowed) || exclusive && micros > 0 && !sum.less(allowed) {
			m.report("bound", c, e.events, "by true time %s passes within %d us until %d ns, where %s may",
				sum, micros, e.to, allowed)
			return // further violations would follow from this one
		}
	}
}

// maxIn returns the maximum that passes in a closed interval of a length in microseconds.
func (r *rule) maxIn(micros, from, to int64) num {
	divUp := func(d, by int64) int64 { return (d + by - 1) / by }
	switch r.shape {
	case bucketShape:
		return r.capacity.plus(r.rate.times(micros))
	case intervalShape:
		return r.capacity.plus(r.amount.times(divUp(micros, r.period)))
	case logShape:
		return r.capacity.times(1 + micros/r.period)
	}
	return r.capacity.times(1 + divUp(micros, r.shortest(from, to)))
}
