package check

import (
	"slices"

	"github.com/headgate/headgate/internal/testing/history"
)

// extension is what an entry of verb extend has in addition. Its cost is what it charges: the
// difference between the total and what was charged under the id before.
type extension struct {
	total  num // what is charged in all
	fore   num // of it, what was charged before, at most
	of     *extended
	known  bool  // the cell surely knew the id, and what it decided is known
	hazy   bool  // how much it charged is not known: at most the cost
	moved  num   // sliding-log: what was charged before counts from now on
	prevAt int64 // and until now counted from then on; 0: not known
}

// extended are the requests of one id to one cell.
type extended struct {
	m     *model
	c     *cell
	first []*entry // that admit it, in order of their calls
	more  []*entry // that extend it
}

// extensions finds out what calls of verb extend have charged.
// docs/algorithms.md, "Requests with an id".
func (m *model) extensions() {
	type request struct {
		id string
		c  *cell
	}
	all := map[request]*extended{}
	for _, a := range m.order {
		for _, e := range a.parts {
			if e.Idem == "" || e.Verb != history.Extend && !admits(e.Verb) {
				continue
			}
			x := all[request{e.Idem, e.cell}]
			if x == nil {
				x = &extended{m: m, c: e.cell}
				all[request{e.Idem, e.cell}] = x
			}
			if e.of = x; e.Verb == history.Extend {
				e.total, x.more = e.cost, append(x.more, e)
			} else {
				x.first = append(x.first, e)
			}
		}
	}
	for _, x := range all {
		for _, e := range x.first {
			e.more = x.more
		}
		for _, e := range x.more {
			x.price(e)
		}
	}
	for _, a := range m.order {
		if a.Verb == history.Extend {
			m.extend(a)
		}
	}
}

// charged returns what is charged under the id for sure when a call begins, and at most
// when it is done, without what the call itself charges. It begins with the cost of the entries
// that may have admitted it.
func (m *model) charged(first, more []*entry, a *ask) (low, high num) {
	for i, e := range first {
		if high = atLeast(high, e.cost); i == 0 || e.cost.less(low) {
			low = e.cost
		}
	}
	for _, e := range more {
		switch {
		case e.ask == a || e.from > a.until():
		case e.outcome() == history.Admitted && e.to <= a.from:
			low, high = atLeast(low, e.total), atLeast(high, e.total)
		case e.outcome() == history.Admitted || e.outcome() == history.Unknown:
			high = atLeast(high, e.total)
		}
	}
	return low, high
}

// total returns what a settlement of an entry is about: the least and the most that
// is charged under its id.
func (m *model) total(e *entry, settles *ask) (low, high num) {
	if len(e.more) == 0 {
		return e.cost, e.cost
	}
	if low, high = m.charged([]*entry{e}, e.more, settles); !m.steady(e.of.first[0], settles) {
		low = e.cost
	}
	return low, high
}

// steady reports whether the cell surely knows the id from an entry that admits it until a
// call, if nothing was charged for it before.
func (m *model) steady(first *entry, a *ask) bool {
	c := first.cell
	if len(c.family.limits) > 1 || first.Verb != history.Take || m.lossy(first.from, a.until()) ||
		m.moved(first.from, a.to) || c.reset(first.from, a.to) ||
		first.Life > 0 && a.to-first.from > first.Life*900 { // less than its life, since clocks drift
		return false
	}
	return !slices.ContainsFunc(m.settles[first.Idem], func(o *ask) bool {
		return o.Verb == history.Cancel && o.outcome() != history.Nothing && o.from <= a.to
	})
}

func (a *ask) id() string {
	if a.Idem == "" && a.admitted != nil {
		return a.admitted.Idem
	}
	return a.Idem
}

func (x *extended) price(e *entry) {
	e.hazy, e.fore, e.passed = true, e.total, num{}
	if len(x.first) == 0 {
		return // it is reported
	}
	steady := x.m.steady(x.first[0], e.ask)
	steady = steady && !slices.ContainsFunc(x.first, func(f *entry) bool { return f.Verb != history.Take })
	low, high := x.m.charged(x.first, x.more, e.ask)
	if len(e.parts) == 1 && e.outcome() == history.Admitted && !e.ret.Replayed {
		high = x.below(e, high)
	}
	e.fore = atMost(high, e.total)
	e.known = steady && e.outcome() != history.Unknown
	moves := x.c.has(logged)
	switch {
	case e.known:
		e.cost, e.passed = atLeast(e.total.minus(low), num{}), e.total.minus(e.fore)
		if e.hazy = low != e.fore; moves {
			e.moved, e.prevAt = low, x.since(e, low)
		}
	case len(x.c.family.limits) == 1:
		e.cost = atLeast(e.total.minus(x.first[0].cost), num{})
	}
	if e.hazy {
		e.blur()
	}
}

// extend checks what a call of verb extend was answered, and takes out the cells on which it had
// nothing to charge.
func (m *model) extend(a *ask) {
	some, each := false, true // may charge something; surely charges something, if it was admitted
	for _, e := range a.parts {
		some = some || !e.known || e.cost.positive()
		each = each && e.fore.less(e.total)
	}
	said := a.outcome() == history.Admitted || a.outcome() == history.Refused
	for i, e := range a.parts {
		m.extendedOnce(e, some)
		if said && i < len(a.ret.Charged) && len(a.parts) == len(a.Charges) && len(e.cell.family.limits) == 1 {
			m.chargedInAll(e, a.ret.Charged[i])
		}
		if each || len(a.parts) == 1 {
			continue
		}
		// The time that is returned may be that of a cell on which nothing was charged.
		if e.known && !e.cost.positive() {
			e.cell.entries = slices.DeleteFunc(e.cell.entries, func(o *entry) bool { return o == e })
			continue
		}
		e.blur()
	}
}

// blur makes an extension one of which it is not known how much it has charged, or when.
func (e *entry) blur() {
	if e.hazy = true; e.cell.has(logged) { // all of it may count from now on
		e.cost, e.moved, e.prevAt = e.total, num{}, 0
	}
}

// extendedOnce checks an extension of one cell; some says that the call may have charged something.
func (m *model) extendedOnce(e *entry, some bool) {
	x := e.of
	bad := func(format string, args ...any) {
		m.violation("extended", e.cell, e.events, "the id %q was "+format, append([]any{e.Idem}, args...)...)
	}
	_, high := m.charged(x.first, x.more, e.ask)
	switch {
	case e.outcome() == history.Refused && !some:
		bad("refused an extension to %s, although as much was charged already", e.total)
	case e.outcome() != history.Admitted:
	case !slices.ContainsFunc(x.first, func(f *entry) bool {
		return f.from <= e.to && (f.outcome() == history.Admitted || f.outcome() == history.Unknown)
	}):
		bad("extended, but not admitted before")
	case !some && !e.ret.Replayed:
		bad("extended to %s again, and charged again", e.total)
	case e.ret.Replayed && len(e.cell.family.limits) == 1 && high.less(e.total):
		bad("answered as extended to %s before: at most %s can have been charged", e.total, high)
	case e.known && slices.ContainsFunc(m.settles[e.Idem], e.settledBy):
		bad("extended after it was settled")
	}
}

// settledBy reports whether a call has settled what an extension is about before it was requested.
func (e *entry) settledBy(a *ask) bool {
	return a.Verb == history.Settle && a.outcome() == history.Done && a.to <= e.from &&
		slices.ContainsFunc(a.Charges, e.cell.is)
}

func (m *model) chargedInAll(e *entry, text string) {
	if len(e.of.first) == 0 {
		return
	}
	f := e.cell.family
	n := f.count(number(text))
	low, high := m.charged(e.of.first, e.of.more, e.ask)
	switch {
	case e.outcome() == history.Admitted:
		low, high = e.total, atLeast(high, e.total)
	case !e.known:
		low = num{}
	}
	if n.plus(f.least()).less(low) || n.more(high.plus(f.least())) {
		m.violation("extended", e.cell, e.events, "the id %q is said to be charged %s in all, not %s to %s",
			e.Idem, text, low, high)
	}
}

// below returns what was charged at most before an extension that has charged something: less
// than its total.
func (x *extended) below(e *entry, high num) num {
	if high.less(e.total) {
		return high
	}
	_, high = x.m.charged(x.first, slices.DeleteFunc(slices.Clone(x.more), func(o *entry) bool {
		return !o.total.less(e.total)
	}), e.ask)
	return high
}

// since returns the time at which what is charged in all has become so much; 0: it is not known.
func (x *extended) since(e *entry, total num) int64 {
	var at int64
	for _, f := range slices.Concat(x.first, x.more) {
		is := f.total
		if f.Verb != history.Extend {
			is = f.cost
		} else if len(f.parts) > 1 { // the time may be that of another cell
			continue
		}
		if f.to <= e.from && f.sure() && is == total {
			at = f.ret.At
		}
	}
	return at
}

// whole returns an extension as a charge of all that counts from it on.
func (e *entry) whole() *entry {
	if !e.moved.positive() {
		return e
	}
	all := *e
	all.cost = e.cost.plus(e.moved)
	return &all
}

// partsKeep notes what a settlement leaves of the extensions of an entry: the last is given back
// first.
func (e *entry) partsKeep(f *fix, actual num) {
	shape := e.rule.shape
	f.spread = len(e.more) > 0 && (shape == logged || shape == window || shape == sliding)
	for _, x := range e.more {
		if x.from > f.until() {
			continue
		}
		keep := atLeast(actual.minus(x.fore), num{})
		x.passed = atMost(x.passed, keep)
		x.back = atLeast(x.back, atLeast(x.cost.minus(keep), num{}))
	}
}
