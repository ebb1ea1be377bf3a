package check

import (
	"cmp"
	"slices"

	"github.com/headgate/headgate/internal/testing/history"
)

// boundByStore checks the bound by the store's clock, between breaks.
func (m *model) boundByStore(c *cell, breaks *spans) {
	rules := c.rules
	stretches := map[int][]*entry{}
	uncertain := len(breaks.begins) > 0 || len(c.corrections) > 0
	for _, e := range c.entries {
		uncertain = uncertain || e.maybeCharged() || e.rule.prefetching()
		if e.mayPredateReset() {
			continue
		}
		isCheck := e.Verb == history.Check && e.outcome() == history.Admitted && e.ret.At > 0
		if n, ok := breaks.stretchOf(e.from, e.to); ok && (e.surelyCharged() || isCheck) &&
			m.returnsDecisionTime(e.call) {
			stretches[n] = append(stretches[n], e)
		}
	}
	for stretch, entries := range stretches {
		slices.SortStableFunc(entries, byStart)
		var strayRefunds num
		for _, f := range m.strayRefunds(c) {
			firstStretch, _ := breaks.countEndedBefore(f.from)
			lastStretch, _ := breaks.countEndedBefore(f.doneBy())
			if firstStretch <= stretch && stretch <= lastStretch {
				strayRefunds = strayRefunds.plus(f.entry.cost)
			}
		}
		if len(rules) > 1 {
			m.boundOfVersions(c, rules, entries, strayRefunds)
			continue
		}
		maxUsed := rules[0].capacity.plus(c.slack(rules[0], uncertain)).plus(strayRefunds)
		m.boundOfStretch(c, newLevel(rules[0], false, uncertain), maxUsed, entries)
	}
}

// mayPredateReset reports whether an entry may have got a token that its node had prefetched before the key was reset.
// docs/operating.md, "prefetch": the node may hand it out within the life of the tokens.
func (e *entry) mayPredateReset() bool {
	life := (e.rule.life + e.rule.life/1000 + 1) * 1000
	return e.via() == history.ViaPrefetch && e.cell.mayBeReset(e.from-life, e.to)
}

// boundOfStretch checks that the level stays within maxUsed. The entries are in the order of the store's times.
func (m *model) boundOfStretch(c *cell, l level, maxUsed num, entries []*entry) {
	for _, e := range entries {
		l.advance(e.start())
		switch used := l.used().plus(e.finalCost); {
		case !used.exceeds(maxUsed):
		case e.Verb == history.Check:
			m.report("refusal", c, e.events, "a check of %s was admitted, while %s of %s is used",
				e.cost, l.used(), maxUsed)
			continue
		default:
			rule := "bound"
			if e.start() > e.ret.At {
				rule = "tickets"
			}
			m.report(rule, c, e.events, "by the store's clock %s is used of %s at %d", used, maxUsed, e.start())
			l.clear() // one report for each excess
		}
		if e.Verb != history.Check {
			l.add(e.finalCost)
		}
	}
}

// byStart orders entries by the store's times. Checks at the same time come first: they need not see its charges.
func byStart(a, b *entry) int {
	charges := func(e *entry) int {
		if e.Verb == history.Check {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(a.start(), b.start()), cmp.Compare(charges(a), charges(b)))
}

// slack returns the amount by which a level may exceed the capacity.
func (c *cell) slack(r *rule, uncertain bool) num {
	switch {
	case r.shape == bucketShape:
		// docs/operating.md, "prefetch": the bound grows by what is refilled in its life.
		// docs/algorithms.md, "Exactness": a level that drains in steps does at most one late.
		return r.rate.times(r.life + r.step - 1)
	case r.shape == intervalShape && uncertain:
		// What is refilled in the life of a prefetch. newLevel has subtracted a period that ends at once.
		return r.amount.times(r.life).dividedBy(r.period)
	}
	return num{}
}

// boundOfVersions checks a cell whose limit was changed. A charge stays in use until one of the versions forgets it,
// and no version admits beyond its own capacity. So no more is ever in use than the largest capacity, and between
// charges the level falls by no more than all versions forget together.
// docs/algorithms.md, "Changing a limit"; docs/project/decisions/laws.md, "A changed limit is converted when the cell
// is next charged or refused", "A conversion never puts `empty_at` off".
func (m *model) boundOfVersions(c *cell, rules []*rule, entries []*entry, strayRefunds num) {
	l := &bucket{}
	var maxUsed num
	old := &log{}
	for _, r := range rules {
		if r.shape == fromFirstShape || r.shape == intervalShape || r.prefetching() {
			return // when these forget is not known: boundByTrue checks them
		}
		maxUsed = maxNum(maxUsed, r.capacity.plus(c.slack(r, true)))
		if r.shape == bucketShape {
			l.rate = l.rate.plus(r.rate)
			continue
		}
		// A version forgets at most what it could have admitted itself.
		l.rate = l.rate.plus(r.amount.dividedBy(max(1, r.forgetTime()))).plus(numOf(1))
		if r.shape == logShape && (old.period == 0 || r.period < old.period) {
			old.period = r.period
		}
	}
	maxUsed = maxUsed.plus(strayRefunds)
	ends := make([]int64, len(rules)) // of the present window of each rule
	for _, e := range entries {
		l.advance(e.start())
		if old.period > 0 {
			oldSum := old.sum
			old.advance(e.start())
			l.refund(oldSum.minus(old.sum), 0)
		}
		for i, r := range rules {
			if (r.shape == windowShape || r.shape == slidingShape) && e.start() >= ends[i] {
				_, ends[i] = r.window(e.start())
				l.clear()
			}
		}
		// A start that was promised under one version stays. Another version may drain faster, and let others start
		// before it.
		if e.Verb == history.Check || e.start() > e.ret.At {
			continue
		}
		if used := l.used().plus(e.finalCost); used.exceeds(maxUsed) {
			m.report("bound", c, e.events, "after a change %s is used of %s at %d", used, maxUsed, e.start())
			l.clear()
		}
		l.add(e.finalCost)
		old.add(e.finalCost)
	}
}

// forgetTime returns the microseconds in which a rule forgets its amount; of a calendar, half of the shortest window.
func (r *rule) forgetTime() int64 {
	if r.period > 0 {
		return r.period
	}
	return map[string]int64{"hour": 1, "day": 22, "week": 7*24 - 2, "month": 28*24 - 2}[r.limit.Calendar] * 1800e6
}
