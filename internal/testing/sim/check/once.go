package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/testing/history"
)

// lossy reports whether a fail-over can have lost what was decided within an interval of
// true time, or some of it.
func (m *model) lossy(from, to int64) bool {
	return slices.ContainsFunc(m.faults, func(f fault) bool {
		return f.Kind == history.Forget && to >= f.Since && from <= f.t
	})
}

func (m *model) moved(from, to int64) bool {
	return slices.ContainsFunc(m.faults, func(f fault) bool {
		return f.Kind == history.Clock && f.t >= from && f.t <= to
	})
}

func (m *model) corrections() {
	for _, a := range m.order {
		for _, e := range a.parts {
			e.lossy = m.lossy(e.from, e.until())
		}
	}
	for _, group := range m.admit {
		askedAgain(group)
	}
	for _, a := range m.order {
		if a.Verb != history.Settle && a.Verb != history.Cancel || a.outcome() == history.Nothing {
			continue
		}
		targets := m.admit[a.Idem] // of which any may be the one that was charged
		switch {
		case a.admitted != nil && a.admitted.Idem != "":
			targets = m.admit[a.admitted.Idem]
		case a.admitted != nil:
			targets = []*ask{a.admitted}
		}
		m.correctAll(a, targets)
	}
}

// correctAll notes what a settlement has done to charges of which any may be the one that it is about.
func (m *model) correctAll(a *ask, targets []*ask) {
	corrected := map[*cell]bool{}
	more := map[*cell]*fix{} // charged in addition, to a charge that is not certain
	amounts := map[*cell]num{}
	for _, target := range targets {
		for _, e := range target.parts {
			f, found := m.correction(a, e)
			if !found {
				continue
			}
			c := e.cell
			if f.amountKnown && (corrected[c] || !e.sure()) && target != a.admitted {
				if !f.down && more[c] == nil {
					more[c], amounts[c] = f, f.amount
				}
				f.amountKnown, f.amount = false, num{} // it is another's
			}
			corrected[c] = corrected[c] || f.amountKnown
			e.fixes, c.fixes = append(e.fixes, f), append(c.fixes, f)
		}
	}
	for c, f := range more {
		if !corrected[c] { // then it is this one's, or that of another one that is not certain
			f.amount = amounts[c]
		}
	}
}

// askedAgain finds requests that were admitted again under their id because the key of another
// charge was reset: keys that were not reset know the id, and charge nothing.
// docs/algorithms.md, "Requests with an id": other keys know nothing of a reset.
func askedAgain(group []*ask) {
	for i, a := range group {
		if i == 0 || a.outcome() != history.Admitted || a.ret.Replayed {
			continue
		}
		if slices.ContainsFunc(a.parts, func(e *entry) bool { return e.cell.reset(group[0].from, a.to) }) {
			for _, e := range a.parts {
				e.again = true
			}
		}
	}
}

func (m *model) correction(a *ask, e *entry) (f *fix, found bool) {
	var actual num
	f = &fix{ask: a, of: e, amountKnown: a.outcome() == history.Done}
	for i, c := range a.Charges {
		if !e.cell.is(c) {
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
		f.amount = f.amount.plus(e.cell.family.count(number(a.ret.Corrected[i])))
	}
	if !found {
		return nil, false
	}
	low, high := m.total(e, a)
	f.down = actual.less(high) && !actual.more(low)
	if actual.less(high) && actual.more(low) {
		f.amountKnown = false // in which direction it was corrected is not known
	}
	if !f.amountKnown && !f.down {
		f.amount = actual.minus(low) // at most
	}
	e.passed = atMost(e.passed, actual)
	e.partsKeep(f, actual)
	if actual.less(high) {
		back := atLeast(e.cost.minus(actual), num{})
		if f.amountKnown {
			if f.amount.more(high.minus(actual).plus(e.cell.family.least())) {
				m.violation("once", e.cell, slices.Concat(e.events, a.events),
					"%s given back of a cost of %s that became %s", f.amount, high, actual)
			}
			back = atMost(back, f.amount.plus(e.cell.family.least()))
			if !f.amount.positive() {
				back = num{}
			}
		}
		e.back = atMost(e.cost, e.back.plus(back))
	}
	return f, true
}

// once checks that each idempotency key is charged once, that its answers agree, and that
// each admission is corrected once. docs/algorithms.md, "Requests with an id".
func (m *model) once() {
	for _, a := range m.order {
		for _, e := range a.parts {
			m.settledOnce(e)
		}
		if group := m.admit[a.Idem]; len(group) > 0 && group[0] == a {
			m.group(a.Idem, group)
		}
	}
}

// settledOnce checks the corrections of one charge: the second is an error, or changes nothing.
func (m *model) settledOnce(e *entry) {
	done, events := 0, slices.Clone(e.events)
	for _, f := range e.fixes {
		if f.amountKnown && f.amount.positive() && !f.ret.Replayed {
			done, events = done+1, append(events, f.events...)
		}
	}
	if done > 1 && !e.lossy && (e.Idem == "" || !m.forgotten(e.ask)) {
		m.violation("once", e.cell, events, "one admission was corrected %d times", done)
	}
}

// forgotten reports whether the store may have forgotten that a call was admitted, so that
// it may decide again: after a reset, a cancellation or a fail-over, or when its life is over.
func (m *model) forgotten(a *ask) bool {
	if a.Life > 0 && (m.end-a.from >= a.Life*1000 || m.moved(0, forever)) || m.lossy(0, forever) {
		return true
	}
	for _, e := range a.parts {
		cancels := func(f *fix) bool { return f.Verb == history.Cancel }
		if len(e.cell.resets) > 0 || slices.ContainsFunc(e.fixes, cancels) {
			return true
		}
	}
	return false
}

func (a *ask) charges() string {
	var list []string
	for _, e := range a.parts {
		f := e.cell.family
		list = append(list, fmt.Sprintf("%s of %s %q", f.text(e.cost), f.limits[0].Name, e.cell.key))
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// cancels returns the calls that have certainly cancelled an id.
func (m *model) cancels(idem string) []*ask {
	return slices.DeleteFunc(slices.Clone(m.settles[idem]), func(a *ask) bool {
		return a.Verb != history.Cancel || a.outcome() != history.Done || m.lossy(a.from, a.to)
	})
}

func (m *model) group(idem string, list []*ask) {
	cancels := m.cancels(idem)
	var charged, replayed []*ask
	var events []int // of charged
	free := false
	for _, a := range list {
		free = free || m.forgotten(a)
		switch {
		case a.outcome() != history.Admitted:
		case a.ret.Replayed:
			replayed = append(replayed, a)
		default:
			charged, events = append(charged, a), append(events, a.events...)
		}
	}
	for _, a := range replayed {
		possible := func(b *ask) bool {
			cancelled := func(x *ask) bool { return b.to <= x.from && x.to <= a.from }
			return b != a && b.from <= a.to && (b.outcome() == history.Unknown ||
				b.outcome() == history.Admitted && !slices.ContainsFunc(cancels, cancelled))
		}
		if !slices.ContainsFunc(list, possible) {
			m.violation("once", nil, a.events, "the id %q was answered as before, but not admitted before", idem)
		}
	}
	all := slices.Concat(charged, replayed)
	if free || len(all) == 0 {
		return
	}
	settleUnknown(list, charged, replayed)
	if len(charged) > 1 {
		m.violation("once", nil, events, "the id %q was charged %d times", idem, len(charged))
	}
	first := all[0]
	for _, a := range all[1:] {
		both := slices.Concat(first.events, a.events)
		switch {
		case a.charges() != first.charges():
			m.violation("once", nil, both, "the id %q was admitted for %s and for %s",
				idem, first.charges(), a.charges())
		case !a.ret.Replayed:
		case a.ret.StartAt != first.ret.StartAt, sameVersions(a, first) && !alike(a.ret.Each, first.ret.Each):
			m.violation("once", nil, both, "the id %q was answered in two ways", idem)
		}
	}
}

// settleUnknown takes one charge for all calls of an id of which some were answered: where the
// answer does not say when, the first that may have been charged, by the first answer.
func settleUnknown(list, charged, replayed []*ask) {
	kept := len(charged) > 0
	for _, a := range list {
		switch {
		case a.outcome() != history.Unknown:
		case kept:
			a.void = true
		default:
			a.by, kept = replayed[0].to, true
		}
	}
}

// sameVersions reports whether two calls name the same versions of their limits: else what
// is left is given by another capacity.
func sameVersions(a, b *ask) bool {
	return slices.EqualFunc(a.parts, b.parts, func(x, y *entry) bool { return x.rule == y.rule })
}

// alike reports whether two answers say the same of what is left; either may say nothing.
func alike(a, b []history.Figures) bool {
	return len(a) != len(b) || slices.EqualFunc(a, b, func(x, y history.Figures) bool {
		return x.Remaining < 0 || y.Remaining < 0 || x.Remaining == y.Remaining
	})
}
