package check

import (
	"cmp"
	"slices"
	"sort"

	"github.com/headgate/headgate/internal/history"
)

// boundByTrue checks the bound by true time, through all faults: what was asked and
// answered within an interval has passed within it.
func (m *model) boundByTrue(c *cell) {
	rules := c.rules()
	var entries []*entry
	for _, e := range c.entries {
		if e.Verb != history.Check && e.outcome() == history.Admitted && !e.ret.Replayed && !e.again &&
			e.ret.StartAt <= e.ret.At {
			entries = append(entries, e)
		}
	}
	m.boundOfRules(c, rules, entries)
}

// boundOfRules checks that entries are within the bounds of all rules together.
func (m *model) boundOfRules(c *cell, rules []*rule, entries []*entry) {
	if len(entries) == 0 {
		return
	}
	slices.SortStableFunc(entries, func(a, b *entry) int { return cmp.Compare(a.to, b.to) })
	x := m.extras(c, rules, entries)
	linear := true
	for _, r := range rules {
		linear = linear && (r.shape == rated || r.shape == refill)
	}
	if linear {
		m.boundOfRates(c, rules, entries, x)
		return
	}
	from, to := entries[0].at(), entries[0].at()
	for _, e := range entries {
		if e.at() > 0 {
			from, to = min(from, e.at()), max(to, e.at())
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

// extra is what may pass in addition if an interval touches a stretch of true time.
type extra struct {
	span
	n num
}

// extras are sums of those that have begun, and of those that are over.
type extras struct{ begun, over []extra }

func (x *extras) add(from, to int64, n num) {
	x.begun = append(x.begun, extra{span{from, to}, n})
}

func (x *extras) sum() {
	x.over = slices.Clone(x.begun)
	slices.SortStableFunc(x.begun, func(a, b extra) int { return cmp.Compare(a.from, b.from) })
	slices.SortStableFunc(x.over, func(a, b extra) int { return cmp.Compare(a.to, b.to) })
	for i := 1; i < len(x.begun); i++ {
		x.begun[i].n = x.begun[i].n.plus(x.begun[i-1].n)
		x.over[i].n = x.over[i].n.plus(x.over[i-1].n)
	}
}

// by returns the sum of those that begin not after t.
func (x *extras) by(t int64) num {
	i := sort.Search(len(x.begun), func(i int) bool { return x.begun[i].from > t })
	if i == 0 {
		return num{}
	}
	return x.begun[i-1].n
}

// before returns the sum of those that are over before t.
func (x *extras) before(t int64) num {
	i := sort.Search(len(x.over), func(i int) bool { return x.over[i].to >= t })
	if i == 0 {
		return num{}
	}
	return x.over[i-1].n
}

// extras returns what the documentation allows for faults and resets.
func (m *model) extras(c *cell, rules []*rule, entries []*entry) *extras {
	x := &extras{}
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
			x.add(f.t, f.t, burst.plus(back))
			if r := rules[0]; len(rules) == 1 && r.shape == rated && f.By < 1<<40 {
				x.begun[len(x.begun)-1].n = atMost(burst, r.rate.times(f.By))
			}
			m.startLater(x, entries, f.t, f.t)
		case f.Kind == history.Clock && f.By < 0:
			// A step backwards creates no tokens (docs/algorithms.md, "Exactness"), but windows
			// that follow the clock (docs/decisions/2026-11-21-laws.md, "A cell follows its own
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
			m.startLater(x, entries, f.begun(), f.t)
		}
	}
	m.extrasOfResets(x, c, entries, burst.plus(back))
	x.sum()
	return x
}

// extrasOfResets adds what may pass after a key was reset.
func (m *model) extrasOfResets(x *extras, c *cell, entries []*entry, most num) {
	for _, a := range c.others {
		if a.Verb == history.Reset && a.outcome() != history.Nothing {
			x.add(a.from, a.until(), most)
			m.startLater(x, entries, a.from, a.until())
		}
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
func (m *model) startLater(x *extras, entries []*entry, from, to int64) {
	for _, e := range entries {
		if e.Wait > 0 && e.from <= to && e.to >= from {
			x.add(from, e.to, e.cost)
		}
	}
}

// strays are the corrections that may give back after a reset or a fail-over what was charged
// before it, and what that has given back already. headgate.Reservation: "If its limit is changed, or
// its key reset, before it is settled without an id, it should not be."
func (m *model) strays(c *cell) (list []*fix) {
	for _, f := range c.fixes {
		if f.Idem != "" || !f.down || f.outcome() == history.Nothing {
			continue
		}
		if m.lossy(f.of.from, f.until()) || slices.ContainsFunc(c.others, func(a *ask) bool {
			return a.Verb == history.Reset && a.outcome() != history.Nothing && a.until() >= f.of.from &&
				a.from <= f.until()
		}) {
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
func (m *model) boundOfRates(c *cell, rules []*rule, entries []*entry, x *extras) {
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
	t := newTree(len(byCall))
	for _, e := range entries {
		start := rate.times(m.stretched(e.from, false)).plus(x.before(e.from))
		t.put(place[e], e.passed, start)
		allowed := most.plus(rate.times(m.stretched(e.to, true))).plus(x.by(e.to))
		if t.best().more(allowed) {
			m.violation("bound", []*ask{e.ask}, "%s: by true time %s more than the bound of %s passes until %d ns",
				c.name(), c.family.text(t.best().minus(allowed)), c.family.text(most), e.to)
			return // the others would follow from it
		}
	}
}

// tree finds the start of the interval in which most has passed, beyond what may.
type tree struct {
	size  int
	nodes []node
}

type node struct {
	sum  num // of what passed here
	best num // largest start, with what passed from there on
	full bool
}

func newTree(n int) *tree {
	size := 1
	for size < n {
		size *= 2
	}
	return &tree{size, make([]node, 2*size)}
}

func (t *tree) put(i int, n, start num) {
	i += t.size
	t.nodes[i] = node{n, n.plus(start), true}
	for i /= 2; i > 0; i /= 2 {
		l, r := &t.nodes[2*i], &t.nodes[2*i+1]
		best := r.best
		if whole := l.best.plus(r.sum); l.full && (!r.full || best.less(whole)) {
			best = whole
		}
		t.nodes[i] = node{l.sum.plus(r.sum), best, true}
	}
}

func (t *tree) best() num { return t.nodes[1].best }

// boundOfWindow checks all closed intervals of so many microseconds.
func (m *model) boundOfWindow(c *cell, rules []*rule, entries []*entry, x *extras, micros, from, to int64) {
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
		allowed := most.plus(x.by(e.to)).minus(x.before(e.to - length))
		// docs/decisions/2026-11-21-laws.md: the bound of a sliding window is one step of a cost
		// below two windows.
		if sum.more(allowed) || strict && micros > 0 && !sum.less(allowed) {
			m.violation("bound", []*ask{e.ask}, "%s: by true time %s passes within %d us until %d ns, where %s may",
				c.name(), c.family.text(sum), micros, e.to, c.family.text(allowed))
			return // the others would follow from it
		}
	}
}

// in is the most that passes in a closed interval of so many microseconds.
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
