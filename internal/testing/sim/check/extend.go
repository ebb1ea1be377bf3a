package check

import (
	"slices"

	"github.com/headgate/headgate/internal/testing/history"
)

// extension has the fields of an entry for the verb extend. The cost of such an entry is the difference between its
// total and the amount that was charged under the id before.
type extension struct {
	total            num         // how much shall be charged under the id in all
	maxChargedBefore num         // the maximum that was charged under the id before, up to total
	requests         *idRequests // all requests under the id; also set for those that admit it
	outcomeKnown     bool        // the cell surely knew the id, and the decision is known
	costUnknown      bool        // the entry has charged its cost or less
	movedCost        num         // sliding-log: the cost of earlier charges, which counts from this extension on
	movedAt          int64       // the time from which movedCost counted until this extension; 0: not known
}

// idRequests are the requests to one cell under one id.
type idRequests struct {
	m          *model
	c          *cell
	admissions []*entry // admissions under the id, in the order of their calls
	extensions []*entry // extensions of the admissions
}

// extensions estimates the costs of extensions, and checks their answers. docs/algorithms.md, "Requests with an id".
func (m *model) extensions() {
	type request struct {
		id string
		c  *cell
	}
	byRequest := map[request]*idRequests{}
	for _, a := range m.calls {
		for _, e := range a.entries {
			if e.Idem == "" || e.Verb != history.Extend && !isTakeOrReserve(e.Verb) {
				continue
			}
			x := byRequest[request{e.Idem, e.cell}]
			if x == nil {
				x = &idRequests{m: m, c: e.cell}
				byRequest[request{e.Idem, e.cell}] = x
			}
			if e.requests = x; e.Verb == history.Extend {
				e.total, x.extensions = e.cost, append(x.extensions, e)
			} else {
				x.admissions = append(x.admissions, e)
			}
		}
	}
	for _, x := range byRequest {
		for _, e := range x.admissions {
			e.extensions = x.extensions
		}
		for _, e := range x.extensions {
			x.estimateCharge(e)
		}
	}
	for _, a := range m.calls {
		if a.Verb == history.Extend {
			m.checkExtend(a)
		}
	}
}

// charged returns the minimum that is charged under an id when a call begins, and the maximum when the call is done,
// without the charges of the call itself.
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

// total returns the minimum and the maximum that is charged under the id of an entry when a call settles the entry.
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
	if len(c.family.limits) > 1 || admission.Verb != history.Take || m.mayBeLost(admission.from, a.doneBy()) ||
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

// estimateCharge sets the cost of an extension, as far as the history tells.
func (x *idRequests) estimateCharge(e *entry) {
	e.costUnknown, e.maxChargedBefore, e.finalCost = true, e.total, num{}
	if len(x.admissions) == 0 {
		return // checkExtension reports it
	}
	idKnown := x.m.surelyKnown(x.admissions[0], e.call)
	idKnown = idKnown && !slices.ContainsFunc(x.admissions, func(f *entry) bool { return f.Verb != history.Take })
	low, high := x.m.charged(x.admissions, x.extensions, e.call)
	if len(e.entries) == 1 && e.outcome() == history.Admitted && !e.ret.Replayed {
		high = x.maxBefore(e, high)
	}
	e.maxChargedBefore = minNum(high, e.total)
	e.outcomeKnown = idKnown && e.outcome() != history.Unknown
	movesCharges := x.c.hasShape(logShape)
	switch {
	case e.outcomeKnown:
		e.cost, e.finalCost = maxNum(e.total.minus(low), num{}), e.total.minus(e.maxChargedBefore)
		if e.costUnknown = low != e.maxChargedBefore; movesCharges {
			e.movedCost, e.movedAt = low, x.chargedAt(e, low)
		}
	case len(x.c.family.limits) == 1:
		e.cost = maxNum(e.total.minus(x.admissions[0].cost), num{})
	}
	if e.costUnknown {
		e.setCostUnknown()
	}
}

// checkExtend checks the answer of a call of verb extend, and removes its entries that had nothing to charge.
func (m *model) checkExtend(a *call) {
	mayCharge, allCharge := false, true // some entry may charge something; each surely does, if it is admitted
	for _, e := range a.entries {
		mayCharge = mayCharge || !e.outcomeKnown || e.cost.positive()
		allCharge = allCharge && e.maxChargedBefore.less(e.total)
	}
	isDecided := a.outcome() == history.Admitted || a.outcome() == history.Refused
	for i, e := range a.entries {
		m.checkExtension(e, mayCharge)
		if isDecided && i < len(a.ret.Charged) && len(a.entries) == len(a.Charges) && len(e.cell.family.limits) == 1 {
			m.checkTotal(e, a.ret.Charged[i])
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

// setCostUnknown marks an extension whose cost or time is not known.
func (e *entry) setCostUnknown() {
	if e.costUnknown = true; e.cell.hasShape(logShape) { // the whole total may count from now on
		e.cost, e.movedCost, e.movedAt = e.total, num{}, 0
	}
}

// checkExtension checks an extension of one cell, by a call that may have charged something or surely has not.
func (m *model) checkExtension(e *entry, mayCharge bool) {
	x := e.requests
	report := func(format string, args ...any) {
		m.report("extended", e.cell, e.events, "the id %q was "+format, append([]any{e.Idem}, args...)...)
	}
	_, high := m.charged(x.admissions, x.extensions, e.call)
	switch {
	case e.outcome() == history.Refused && !mayCharge:
		report("refused an extension to %s, although as much was charged already", e.total)
	case e.outcome() != history.Admitted:
	case !slices.ContainsFunc(x.admissions, func(f *entry) bool {
		return f.from <= e.to && (f.outcome() == history.Admitted || f.outcome() == history.Unknown)
	}):
		report("extended, but not admitted before")
	case !mayCharge && !e.ret.Replayed:
		report("extended to %s again, and charged again", e.total)
	case e.ret.Replayed && len(e.cell.family.limits) == 1 && high.less(e.total):
		report("answered as extended to %s before: at most %s can have been charged", e.total, high)
	case e.outcomeKnown && slices.ContainsFunc(m.settlements[e.Idem], e.settledBy):
		report("extended after it was settled")
	}
}

// settledBy reports whether a call has settled the request before its extension was requested.
func (e *entry) settledBy(a *call) bool {
	return a.Verb == history.Settle && a.outcome() == history.Done && a.to <= e.from &&
		slices.ContainsFunc(a.Charges, e.cell.matches)
}

// checkTotal checks the total charge in the answer of an extension.
func (m *model) checkTotal(e *entry, text string) {
	if len(e.requests.admissions) == 0 {
		return
	}
	f := e.cell.family
	n := f.count(parseRat(text))
	low, high := m.charged(e.requests.admissions, e.requests.extensions, e.call)
	switch {
	case e.outcome() == history.Admitted:
		low, high = e.total, maxNum(high, e.total)
	case !e.outcomeKnown:
		low = num{}
	}
	if n.plus(f.roundingStep()).less(low) || n.exceeds(high.plus(f.roundingStep())) {
		m.report("extended", e.cell, e.events, "the id %q is said to be charged %s in all, not %s to %s",
			e.Idem, text, low, high)
	}
}

// maxBefore returns the maximum that was charged before an extension which has charged something: less than its total.
// high is the maximum without that condition.
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
		amount := f.total
		if f.Verb != history.Extend {
			amount = f.cost
		} else if len(f.entries) > 1 { // the time may be that of another cell
			continue
		}
		if f.to <= e.from && f.surelyCharged() && amount == total {
			at = f.ret.At
		}
	}
	return at
}

// withMovedCost returns an extension as a charge of its cost and its movedCost.
func (e *entry) withMovedCost() *entry {
	if !e.movedCost.positive() {
		return e
	}
	moved := *e
	moved.cost = e.cost.plus(e.movedCost)
	return &moved
}

// settleExtensions sets what a settlement leaves of the extensions of an entry. It refunds the latest extension first.
func (e *entry) settleExtensions(f *correction, actual num) {
	shape := e.rule.shape
	f.severalTimes = len(e.extensions) > 0 && (shape == logShape || shape == windowShape || shape == slidingShape)
	for _, x := range e.extensions {
		if x.from > f.doneBy() {
			continue
		}
		keptCost := maxNum(actual.minus(x.maxChargedBefore), num{})
		x.finalCost = minNum(x.finalCost, keptCost)
		x.maxRefund = maxNum(x.maxRefund, maxNum(x.cost.minus(keptCost), num{}))
	}
}
