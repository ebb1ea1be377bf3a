package check

import (
	"slices"

	"github.com/headgate/headgate/internal/testing/history"
)

// extension is what only an entry of verb extend has. The cost of such an entry is the difference between its total
// and what was charged under the id before.
type extension struct {
	total        num // what is charged under the id in all
	before       num // what was charged under the id before, at most
	requests     *idRequests
	outcomeKnown bool  // the cell surely knew the id, and its decision is known
	costUnknown  bool  // the entry has charged its cost or less
	recounted    num   // sliding-log: what was charged before, and counts from this extension on
	recountedAt  int64 // from when recounted has counted until this extension; 0: not known
}

// idRequests are the requests to one cell under one id.
type idRequests struct {
	m          *model
	c          *cell
	admissions []*entry // those that admit the id, in order of their calls
	extensions []*entry // those that extend it
}

// extensions finds out what calls of verb extend have charged. docs/algorithms.md, "Requests with an id".
func (m *model) extensions() {
	type request struct {
		id string
		c  *cell
	}
	all := map[request]*idRequests{}
	for _, a := range m.calls {
		for _, e := range a.entries {
			if e.Idem == "" || e.Verb != history.Extend && !admits(e.Verb) {
				continue
			}
			x := all[request{e.Idem, e.cell}]
			if x == nil {
				x = &idRequests{m: m, c: e.cell}
				all[request{e.Idem, e.cell}] = x
			}
			if e.requests = x; e.Verb == history.Extend {
				e.total, x.extensions = e.cost, append(x.extensions, e)
			} else {
				x.admissions = append(x.admissions, e)
			}
		}
	}
	for _, x := range all {
		for _, e := range x.admissions {
			e.extensions = x.extensions
		}
		for _, e := range x.extensions {
			x.price(e)
		}
	}
	for _, a := range m.calls {
		if a.Verb == history.Extend {
			m.extend(a)
		}
	}
}

// charged returns how much is surely charged under an id when a call begins, and how much at most when the call is
// done, without what the call itself charges.
func (m *model) charged(admissions, extensions []*entry, a *call) (low, high num) {
	for i, e := range admissions {
		if high = maxNum(high, e.cost); i == 0 || e.cost.less(low) {
			low = e.cost
		}
	}
	for _, e := range extensions {
		switch {
		case e.call == a || e.from > a.doneBy():
		case e.outcome() == history.Admitted && e.to <= a.from:
			low, high = maxNum(low, e.total), maxNum(high, e.total)
		case e.outcome() == history.Admitted || e.outcome() == history.Unknown:
			high = maxNum(high, e.total)
		}
	}
	return low, high
}

// total returns the least and the most that is charged under the id of an entry when a call settles it.
func (m *model) total(e *entry, settlement *call) (low, high num) {
	if len(e.extensions) == 0 {
		return e.cost, e.cost
	}
	low, high = m.charged([]*entry{e}, e.extensions, settlement)
	if !m.surelyKnown(e.requests.admissions[0], settlement) {
		low = e.cost
	}
	return low, high
}

// surelyKnown reports whether the cell surely remembers the id from its admission until a call.
func (m *model) surelyKnown(admission *entry, a *call) bool {
	c := admission.cell
	if len(c.family.limits) > 1 || admission.Verb != history.Take || m.lossy(admission.from, a.doneBy()) ||
		m.clockMoved(admission.from, a.to) || c.mayBeReset(admission.from, a.to) ||
		admission.Life > 0 && a.to-admission.from > admission.Life*900 { // less than its life, since clocks drift
		return false
	}
	return !slices.ContainsFunc(m.settlements[admission.Idem], func(o *call) bool {
		return o.Verb == history.Cancel && o.outcome() != history.Nothing && o.from <= a.to
	})
}

// id returns the idempotency key of the call, or of the call that it settles or cancels.
func (a *call) id() string {
	if a.Idem == "" && a.target != nil {
		return a.target.Idem
	}
	return a.Idem
}

// price finds out what an extension has charged, as far as the history tells.
func (x *idRequests) price(e *entry) {
	e.costUnknown, e.before, e.passed = true, e.total, num{}
	if len(x.admissions) == 0 {
		return // extendedOnce reports it
	}
	idKnown := x.m.surelyKnown(x.admissions[0], e.call)
	idKnown = idKnown && !slices.ContainsFunc(x.admissions, func(f *entry) bool { return f.Verb != history.Take })
	low, high := x.m.charged(x.admissions, x.extensions, e.call)
	if len(e.entries) == 1 && e.outcome() == history.Admitted && !e.ret.Replayed {
		high = x.maxBefore(e, high)
	}
	e.before = minNum(high, e.total)
	e.outcomeKnown = idKnown && e.outcome() != history.Unknown
	moves := x.c.hasShape(logged)
	switch {
	case e.outcomeKnown:
		e.cost, e.passed = maxNum(e.total.minus(low), num{}), e.total.minus(e.before)
		if e.costUnknown = low != e.before; moves {
			e.recounted, e.recountedAt = low, x.chargedAt(e, low)
		}
	case len(x.c.family.limits) == 1:
		e.cost = maxNum(e.total.minus(x.admissions[0].cost), num{})
	}
	if e.costUnknown {
		e.setCostUnknown()
	}
}

// extend checks the answer of a call of verb extend, and removes its entries that had nothing to charge.
func (m *model) extend(a *call) {
	mayCharge, allCharge := false, true // some entry may charge something; each surely does, if it is admitted
	for _, e := range a.entries {
		mayCharge = mayCharge || !e.outcomeKnown || e.cost.positive()
		allCharge = allCharge && e.before.less(e.total)
	}
	decided := a.outcome() == history.Admitted || a.outcome() == history.Refused
	for i, e := range a.entries {
		m.extendedOnce(e, mayCharge)
		if decided && i < len(a.ret.Charged) && len(a.entries) == len(a.Charges) && len(e.cell.family.limits) == 1 {
			m.chargedInAll(e, a.ret.Charged[i])
		}
		if allCharge || len(a.entries) == 1 {
			continue
		}
		// The time that is returned may be that of a cell on which nothing was charged.
		if e.outcomeKnown && !e.cost.positive() {
			e.cell.entries = slices.DeleteFunc(e.cell.entries, func(o *entry) bool { return o == e })
			continue
		}
		e.setCostUnknown()
	}
}

// setCostUnknown notes that it is not known how much an extension has charged, or when.
func (e *entry) setCostUnknown() {
	if e.costUnknown = true; e.cell.hasShape(logged) { // all of it may count from now on
		e.cost, e.recounted, e.recountedAt = e.total, num{}, 0
	}
}

// extendedOnce checks an extension of one cell, by a call that may have charged something or surely has not.
func (m *model) extendedOnce(e *entry, mayCharge bool) {
	x := e.requests
	bad := func(format string, args ...any) {
		m.report("extended", e.cell, e.events, "the id %q was "+format, append([]any{e.Idem}, args...)...)
	}
	_, high := m.charged(x.admissions, x.extensions, e.call)
	switch {
	case e.outcome() == history.Refused && !mayCharge:
		bad("refused an extension to %s, although as much was charged already", e.total)
	case e.outcome() != history.Admitted:
	case !slices.ContainsFunc(x.admissions, func(f *entry) bool {
		return f.from <= e.to && (f.outcome() == history.Admitted || f.outcome() == history.Unknown)
	}):
		bad("extended, but not admitted before")
	case !mayCharge && !e.ret.Replayed:
		bad("extended to %s again, and charged again", e.total)
	case e.ret.Replayed && len(e.cell.family.limits) == 1 && high.less(e.total):
		bad("answered as extended to %s before: at most %s can have been charged", e.total, high)
	case e.outcomeKnown && slices.ContainsFunc(m.settlements[e.Idem], e.settledBy):
		bad("extended after it was settled")
	}
}

// settledBy reports whether a call has settled the request before its extension was requested.
func (e *entry) settledBy(a *call) bool {
	return a.Verb == history.Settle && a.outcome() == history.Done && a.to <= e.from &&
		slices.ContainsFunc(a.Charges, e.cell.matches)
}

// chargedInAll checks how much the answer of an extension says is charged in all.
func (m *model) chargedInAll(e *entry, text string) {
	if len(e.requests.admissions) == 0 {
		return
	}
	f := e.cell.family
	n := f.count(number(text))
	low, high := m.charged(e.requests.admissions, e.requests.extensions, e.call)
	switch {
	case e.outcome() == history.Admitted:
		low, high = e.total, maxNum(high, e.total)
	case !e.outcomeKnown:
		low = num{}
	}
	if n.plus(f.roundingStep()).less(low) || n.more(high.plus(f.roundingStep())) {
		m.report("extended", e.cell, e.events, "the id %q is said to be charged %s in all, not %s to %s",
			e.Idem, text, low, high)
	}
}

// maxBefore returns the most that was charged before an extension which has charged something: less than its total.
// high is the most that was charged before any extension.
func (x *idRequests) maxBefore(e *entry, high num) num {
	if high.less(e.total) {
		return high
	}
	_, high = x.m.charged(x.admissions, slices.DeleteFunc(slices.Clone(x.extensions), func(o *entry) bool {
		return !o.total.less(e.total)
	}), e.call)
	return high
}

// chargedAt returns the time at which the amount charged under the id became total; 0: it is not known.
func (x *idRequests) chargedAt(e *entry, total num) int64 {
	var at int64
	for _, f := range slices.Concat(x.admissions, x.extensions) {
		charged := f.total
		if f.Verb != history.Extend {
			charged = f.cost
		} else if len(f.entries) > 1 { // the time may be that of another cell
			continue
		}
		if f.to <= e.from && f.surelyCharged() && charged == total {
			at = f.ret.At
		}
	}
	return at
}

// withRecounted returns an extension as a charge of all that counts from it on.
func (e *entry) withRecounted() *entry {
	if !e.recounted.positive() {
		return e
	}
	all := *e
	all.cost = e.cost.plus(e.recounted)
	return &all
}

// settleExtensions notes what a settlement leaves of the extensions of an entry. The last one is given back first.
func (e *entry) settleExtensions(f *correction, actual num) {
	shape := e.rule.shape
	f.spread = len(e.extensions) > 0 && (shape == logged || shape == window || shape == sliding)
	for _, x := range e.extensions {
		if x.from > f.doneBy() {
			continue
		}
		kept := maxNum(actual.minus(x.before), num{})
		x.passed = minNum(x.passed, kept)
		x.givenBack = maxNum(x.givenBack, maxNum(x.cost.minus(kept), num{}))
	}
}
