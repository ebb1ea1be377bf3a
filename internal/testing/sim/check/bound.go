package check

import (
	"cmp"
	"slices"

	"github.com/headgate/headgate/internal/testing/history"
)

func (m *model) boundByStore(c *cell, breaks *spans) {
	rules := c.rules
	stretches := map[int][]*entry{}
	blurred := len(breaks.from) > 0 || len(c.fixes) > 0
	for _, e := range c.entries {
		blurred = blurred || e.maybe() || e.rule.prefetching()
		if e.heldBefore() {
			continue
		}
		asked := e.Verb == history.Check && e.outcome() == history.Admitted && e.ret.At > 0
		if n, ok := breaks.between(e.from, e.to); ok && (e.sure() || asked) && m.timed(e.ask) {
			stretches[n] = append(stretches[n], e)
		}
	}
	for stretch, entries := range stretches {
		slices.SortStableFunc(entries, byStart)
		var stray num
		for _, f := range m.strays(c) {
			first, _ := breaks.over(f.from)
			last, _ := breaks.over(f.until())
			if first <= stretch && stretch <= last {
				stray = stray.plus(f.of.cost)
			}
		}
		if len(rules) > 1 {
			m.boundOfVersions(c, rules, entries, stray)
			continue
		}
		most := rules[0].most.plus(c.slack(rules[0], blurred)).plus(stray)
		m.boundOfStretch(c, newLevel(rules[0], false, blurred), most, entries)
	}
}

// heldBefore reports whether an entry may be a token that a node had taken before the key was
// reset. docs/operating.md, "prefetch": such a node may hand it out within a life.
func (e *entry) heldBefore() bool {
	life := (e.rule.life + e.rule.life/1000 + 1) * 1000
	return e.via() == history.ViaPrefetch && e.cell.reset(e.from-life, e.to)
}

// boundOfStretch checks entries in the order of the store's times, which follow each other.
func (m *model) boundOfStretch(c *cell, l level, most num, entries []*entry) {
	for _, e := range entries {
		l.advance(e.start())
		switch used := l.used().plus(e.passed); {
		case !used.more(most):
		case e.Verb == history.Check:
			m.violation("refusal", c, e.events, "a check of %s was admitted, while %s of %s is used",
				e.cost, l.used(), most)
			continue
		default:
			rule := "bound"
			if e.start() > e.ret.At {
				rule = "tickets"
			}
			m.violation(rule, c, e.events, "by the store's clock %s is used of %s at %d", used, most, e.start())
			l.clear() // one report for each excess
		}
		if e.Verb != history.Check {
			l.add(e.passed)
		}
	}
}

// byStart orders entries by the store's times, and at the same time checks first, which need not know of it.
func byStart(a, b *entry) int {
	charges := func(e *entry) int {
		if e.Verb == history.Check {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(a.start(), b.start()), cmp.Compare(charges(a), charges(b)))
}

// slack returns what a level may exceed what passes at once by.
func (c *cell) slack(r *rule, blurred bool) num {
	switch {
	case r.shape == rated:
		// docs/operating.md, "prefetch": the bound grows by what is refilled in its life.
		// docs/algorithms.md, "Exactness": a level that drains in steps does at most one late.
		return r.rate.times(r.life + r.step - 1)
	case r.shape == refill && blurred:
		// Bounds: a period can end just after the first microsecond. newLevel subtracts that.
		return r.amount.times(r.life).over(r.period)
	}
	return num{}
}

// boundOfVersions checks a cell whose limit was changed. What is in use stays until one of
// the definitions forgets it, and none admits beyond its own capacity: so no more is ever
// in use than the largest, and between charges it falls by what all of them forget.
// docs/algorithms.md, "Changing a limit"; docs/project/decisions/laws.md, "A changed
// limit is converted when the cell is next charged or refused", "A conversion never puts empty_at off".
func (m *model) boundOfVersions(c *cell, rules []*rule, entries []*entry, stray num) {
	l := &bucket{}
	var most num
	old := &log{}
	for _, r := range rules {
		if r.shape == first || r.shape == refill || r.prefetching() {
			return // when they forget is not known: by true time alone
		}
		most = atLeast(most, r.most.plus(c.slack(r, true)))
		if r.shape == rated {
			l.rate = l.rate.plus(r.rate)
			continue
		}
		// What it could have admitted itself is the most that it forgets.
		l.rate = l.rate.plus(r.amount.over(max(1, r.perTime()))).plus(whole(1))
		if r.shape == logged && (old.period == 0 || r.period < old.period) {
			old.period = r.period
		}
	}
	most = most.plus(stray)
	ends := make([]int64, len(rules)) // of their windows
	for _, e := range entries {
		l.advance(e.start())
		if old.period > 0 {
			before := old.sum
			old.advance(e.start())
			l.take(before.minus(old.sum), 0)
		}
		for i, r := range rules {
			if (r.shape == window || r.shape == sliding) && e.start() >= ends[i] {
				_, ends[i] = r.window(e.start())
				l.clear()
			}
		}
		// A start that was promised under one definition stays, and another may drain faster
		// and let others start before it.
		if e.Verb == history.Check || e.start() > e.ret.At {
			continue
		}
		if used := l.used().plus(e.passed); used.more(most) {
			m.violation("bound", c, e.events, "after a change %s is used of %s at %d", used, most, e.start())
			l.clear()
		}
		l.add(e.passed)
		old.add(e.passed)
	}
}

// perTime returns the time in which a rule forgets its amount, in microseconds.
func (r *rule) perTime() int64 {
	if r.period > 0 {
		return r.period
	}
	return map[string]int64{"hour": 1, "day": 22, "week": 7*24 - 2, "month": 28*24 - 2}[r.limit.Calendar] * 1800e6
}
