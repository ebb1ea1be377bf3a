package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/testing/history"
)

// mayBeLost reports whether a fail-over can have lost decisions from an interval of true time.
func (m *model) mayBeLost(from, to int64) bool {
	return slices.ContainsFunc(m.faults, func(f fault) bool {
		return f.Kind == history.Forget && to >= f.Since && from <= f.t
	})
}

// clockMoved reports whether the store's clock was moved within an interval of true time.
func (m *model) clockMoved(from, to int64) bool {
	return slices.ContainsFunc(m.faults, func(f fault) bool {
		return f.Kind == history.Clock && f.t >= from && f.t <= to
	})
}

// corrections marks entries that may be lost or admitted again, and collects the corrections of entries.
func (m *model) corrections() {
	for _, a := range m.calls {
		for _, e := range a.entries {
			e.mayBeLost = m.mayBeLost(e.from, e.doneBy())
		}
	}
	for _, group := range m.admissions {
		markMayBeReadmitted(group)
	}
	for _, a := range m.calls {
		if a.Verb != history.Settle && a.Verb != history.Cancel || a.outcome() == history.Nothing {
			continue
		}
		targets := m.admissions[a.Idem] // any of them may be the call that was charged
		switch {
		case a.target != nil && a.target.Idem != "":
			targets = m.admissions[a.target.Idem]
		case a.target != nil:
			targets = []*call{a.target}
		}
		m.correctAll(a, targets)
	}
}

// correctAll adds the corrections of a settlement or cancellation. Any of the targets may be the call that it corrects.
func (m *model) correctAll(a *call, targets []*call) {
	hasAmount := map[*cell]bool{}
	surcharges := map[*cell]*correction{} // the first that charges more, of a charge that is not certain
	amounts := map[*cell]num{}            // of surcharges
	for _, target := range targets {
		for _, e := range target.entries {
			f, found := m.newCorrection(a, e)
			if !found {
				continue
			}
			c := e.cell
			if f.amountKnown && (hasAmount[c] || !e.surelyCharged()) && target != a.target {
				if !f.isRefund && surcharges[c] == nil {
					surcharges[c], amounts[c] = f, f.amount
				}
				f.amountKnown, f.amount = false, num{} // the amount is for another charge
			}
			hasAmount[c] = hasAmount[c] || f.amountKnown
			e.corrections, c.corrections = append(e.corrections, f), append(c.corrections, f)
		}
	}
	for c, f := range surcharges {
		if !hasAmount[c] { // then the amount is for this charge, or for another uncertain charge
			f.amount = amounts[c]
		}
	}
}

// markMayBeReadmitted marks requests that may have been admitted again under their id because one of their keys was
// reset: the other keys know the id, and charge nothing. docs/algorithms.md, "Requests with an id".
func markMayBeReadmitted(group []*call) {
	for i, a := range group {
		if i == 0 || a.outcome() != history.Admitted || a.ret.Replayed {
			continue
		}
		if slices.ContainsFunc(a.entries, func(e *entry) bool { return e.cell.mayBeReset(group[0].from, a.to) }) {
			for _, e := range a.entries {
				e.mayBeReadmitted = true
			}
		}
	}
}

// newCorrection returns the correction of an entry by a call, if the call was about the cell of the entry. It lowers
// the final costs of the entry and its extensions, and reports a refund beyond what was charged.
func (m *model) newCorrection(a *call, e *entry) (f *correction, found bool) {
	var actual num
	f = &correction{call: a, entry: e, amountKnown: a.outcome() == history.Done}
	for i, c := range a.Charges {
		if !e.cell.matches(c) {
			continue
		}
		found = true
		if a.Verb == history.Settle && i < len(a.Actual) {
			actual = actual.plus(e.cell.family.costs[a.Actual[i]])
		}
		if i >= len(a.ret.Corrected) {
			f.amountKnown = false
			continue
		}
		f.amount = f.amount.plus(e.cell.family.count(parseRat(a.ret.Corrected[i])))
	}
	if !found {
		return nil, false
	}
	low, high := m.total(e, a)
	f.isRefund = actual.less(high) && !actual.exceeds(low)
	if actual.less(high) && actual.exceeds(low) {
		f.amountKnown = false // it is not known in which direction it was corrected
	}
	if !f.amountKnown && !f.isRefund {
		f.amount = actual.minus(low) // at most
	}
	e.finalCost = minNum(e.finalCost, actual)
	e.settleExtensions(f, actual)
	if actual.less(high) {
		refund := maxNum(e.cost.minus(actual), num{})
		if f.amountKnown {
			if f.amount.exceeds(high.minus(actual).plus(e.cell.family.roundingStep())) {
				m.report("once", e.cell, slices.Concat(e.events, a.events),
					"%s given back of a cost of %s that became %s", f.amount, high, actual)
			}
			refund = minNum(refund, f.amount.plus(e.cell.family.roundingStep()))
			if !f.amount.positive() {
				refund = num{}
			}
		}
		e.maxRefund = minNum(e.cost, e.maxRefund.plus(refund))
	}
	return f, true
}

// once checks that each idempotency key is charged once, that its answers agree, and that
// each admission is corrected once. docs/algorithms.md, "Requests with an id".
func (m *model) once() {
	for _, a := range m.calls {
		for _, e := range a.entries {
			m.checkCorrectedOnce(e)
		}
		if group := m.admissions[a.Idem]; len(group) > 0 && group[0] == a {
			m.checkID(a.Idem, group)
		}
	}
}

// checkCorrectedOnce checks that a charge is corrected once: a second correction fails, or changes nothing.
func (m *model) checkCorrectedOnce(e *entry) {
	done, events := 0, slices.Clone(e.events)
	for _, f := range e.corrections {
		if f.amountKnown && f.amount.positive() && !f.ret.Replayed {
			done, events = done+1, append(events, f.events...)
		}
	}
	if done > 1 && !e.mayBeLost && (e.Idem == "" || !m.mayForget(e.call)) {
		m.report("once", e.cell, events, "one admission was corrected %d times", done)
	}
}

// mayForget reports whether the store may have forgotten that a call was admitted, and may decide it again: after a
// reset, a cancellation or a fail-over, or if the life of the id may be over.
func (m *model) mayForget(a *call) bool {
	if a.Life > 0 && (m.end-a.from >= a.Life*1000 || m.clockMoved(0, forever)) || m.mayBeLost(0, forever) {
		return true
	}
	for _, e := range a.entries {
		cancels := func(f *correction) bool { return f.Verb == history.Cancel }
		if len(e.cell.resets) > 0 || slices.ContainsFunc(e.corrections, cancels) {
			return true
		}
	}
	return false
}

func (a *call) chargesText() string {
	var list []string
	for _, e := range a.entries {
		f := e.cell.family
		list = append(list, fmt.Sprintf("%s of %s %q", f.text(e.cost), f.limits[0].Name, e.cell.key))
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// cancellations returns the calls that have certainly cancelled an id.
func (m *model) cancellations(idem string) []*call {
	return slices.DeleteFunc(slices.Clone(m.settlements[idem]), func(a *call) bool {
		return a.Verb != history.Cancel || a.outcome() != history.Done || m.mayBeLost(a.from, a.to)
	})
}

// checkID checks the answers of the calls that may admit a request under an id.
func (m *model) checkID(idem string, list []*call) {
	cancels := m.cancellations(idem)
	var charged, replayed []*call
	var events []int // of charged
	mayForget := false
	for _, a := range list {
		mayForget = mayForget || m.mayForget(a)
		switch {
		case a.outcome() != history.Admitted:
		case a.ret.Replayed:
			replayed = append(replayed, a)
		default:
			charged, events = append(charged, a), append(events, a.events...)
		}
	}
	for _, a := range replayed {
		mayBeOriginal := func(b *call) bool {
			cancelled := func(x *call) bool { return b.to <= x.from && x.to <= a.from }
			return b != a && b.from <= a.to && (b.outcome() == history.Unknown ||
				b.outcome() == history.Admitted && !slices.ContainsFunc(cancels, cancelled))
		}
		if !slices.ContainsFunc(list, mayBeOriginal) {
			m.report("once", nil, a.events, "the id %q was answered as before, but not admitted before", idem)
		}
	}
	answered := slices.Concat(charged, replayed)
	if mayForget || len(answered) == 0 {
		return
	}
	chooseCharged(list, charged, replayed)
	if len(charged) > 1 {
		m.report("once", nil, events, "the id %q was charged %d times", idem, len(charged))
	}
	firstAnswer := answered[0]
	for _, a := range answered[1:] {
		allEvents := slices.Concat(firstAnswer.events, a.events)
		switch {
		case a.chargesText() != firstAnswer.chargesText():
			m.report("once", nil, allEvents, "the id %q was admitted for %s and for %s",
				idem, firstAnswer.chargesText(), a.chargesText())
		case !a.ret.Replayed:
		case a.ret.StartAt != firstAnswer.ret.StartAt,
			sameVersions(a, firstAnswer) && !sameRemaining(a.ret.Each, firstAnswer.ret.Each):
			m.report("once", nil, allEvents, "the id %q was answered in two ways", idem)
		}
	}
}

// chooseCharged notes which call under an id was charged, if some were answered: the one whose answer says so, or else
// the first with an unknown outcome, before the first replay returned. The others with an unknown outcome are void.
func chooseCharged(list, charged, replayed []*call) {
	hasCharged := len(charged) > 0
	for _, a := range list {
		switch {
		case a.outcome() != history.Unknown:
		case hasCharged:
			a.isVoid = true
		default:
			a.chargedBy, hasCharged = replayed[0].to, true
		}
	}
}

// sameVersions reports whether two calls name the same versions of their limits: otherwise what remains may be of
// different capacities.
func sameVersions(a, b *call) bool {
	return slices.EqualFunc(a.entries, b.entries, func(x, y *entry) bool { return x.rule == y.rule })
}

// sameRemaining reports whether two answers agree on what remains; either may say nothing.
func sameRemaining(a, b []history.Figures) bool {
	return len(a) != len(b) || slices.EqualFunc(a, b, func(x, y history.Figures) bool {
		return x.Remaining < 0 || y.Remaining < 0 || x.Remaining == y.Remaining
	})
}
