// Package check judges a history of Headgate: whether what was admitted, refused and said is what the documentation
// promises. It knows nothing of the program that it judges: it imports the standard library and the format of histories
// only, and computes with integers in a unit in which all costs and rates are whole numbers.
//
// # Rules
//
//   - format: times and amounts in answers and final states are possible ones.
//   - bound: no more passes than the limit's bound, by the store's clock and by true time.
//   - refusal: the store refuses only what does not fit on top of all that can have been charged, or what a block keeps
//     away; and a check admits only what fits.
//   - headroom: an admission leaves its headroom free.
//   - blocks: nothing is admitted while a key is blocked.
//   - repeat: a refusal is repeated without the store only for what the node was refused, or had taken the last of, and
//     not for too long.
//   - once: an idempotency key is charged once and answered alike; an admission is settled once.
//   - extended: an admission is extended once to a total, not after it was settled, and the answer says the total.
//   - settled: no more is in use at the end than was admitted and not given back.
//   - recorded: no less is in use at the end than was admitted, not given back, and has not drained.
//   - tickets: reservations of a cell start in the order of their decisions, not before them, and within the bound.
//   - leases: no more is held at any time than the limit says, and no lease is renewed after its end.
//   - ends: a version that is in force from a time decides from then on, and no other does, for calls that know it.
//   - overrides: an override of a key decides for that key alone, before its end, and while it is there; and no other
//     version does, from when each process knows of it.
//   - figures: remaining, retry-after and capacity fit the level.
//
// A rule never reports what a correct run can show. Where the history leaves open what happened, a rule assumes what
// excuses the run: a call with an unknown outcome counts as charged when refusals are judged, and as not charged when
// bounds are.
//
// # Allowances
//
// The rules allow what the documentation allows, and the code cites it at each place: the life of a prefetch
// (docs/operating.md), a forward jump of the clock and what a fail-over forgets (docs/stores.md), and several versions
// of a limit (docs/algorithms.md).
package check

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/headgate/headgate/internal/testing/history"
)

type Violation struct {
	Rule   string
	Events []int // places in the history, ascending
	Text   string
}

func (v Violation) String() string {
	return fmt.Sprintf("%s: %s (events %v)", v.Rule, v.Text, v.Events)
}

// Check returns the violations in a history, in the order of its events. It does not change the history.
func Check(h *history.History) []Violation {
	m := newModel(h)
	m.extensions()
	m.corrections()
	m.once()
	for _, c := range m.cells {
		m.checkCell(c)
	}
	for _, a := range m.calls {
		m.checkRemaining(a)
	}
	m.refusals()
	m.repeats()
	m.ends()
	m.overrides()
	slices.SortStableFunc(m.violations, func(a, b Violation) int { return cmp.Compare(a.Events[0], b.Events[0]) })
	return m.violations
}

// checkCell sets c.rules, and checks the rules that look at one cell at a time.
func (m *model) checkCell(c *cell) {
	c.rules = c.appliedRules()
	if c.hasShape(leaseShape) {
		m.leases(c)
		return
	}
	breaks := m.breaks(c)
	m.boundByStore(c, breaks)
	m.boundOfEach(c, breaks)
	m.boundByTrue(c)
	m.tickets(c, breaks)
	m.levels(c)
}

func (c *cell) hasShape(s shape) bool {
	for _, r := range c.family.versions {
		if r.shape == s {
			return true
		}
	}
	return false
}

// appliedRules returns the versions that have decided about the cell as far as answers say, else those that the calls
// name, in the order of their first calls; and the overrides of its key, since not all answers say which has decided.
func (c *cell) appliedRules() (list []*rule) {
	add := func(r *rule) {
		if !slices.Contains(list, r) {
			list = append(list, r)
		}
	}
	for _, e := range c.entries {
		add(e.rule)
	}
	if len(list) > 0 {
		for _, r := range c.overrides() {
			add(r)
		}
	}
	return list
}

// breaks returns the spans in which levels may have been lost or the store's clock set back: between them, the bounds
// by the store's clock hold.
func (m *model) breaks(c *cell) *spans {
	s := &spans{}
	for _, f := range m.faults {
		switch {
		case f.Kind == history.Clock && f.By < 0:
			s.add(f.t, f.t, num{})
		case f.Kind == history.Forget:
			s.add(f.firstEffect(), f.t, num{})
		}
	}
	for _, a := range c.resets {
		s.add(a.from, a.doneBy(), num{})
	}
	s.sort()
	return s
}

// returnsDecisionTime reports whether each charge of a call was decided at the time that the call returned. After the
// clock was set back, each cell has a time of its own, and a call returns the time of one cell.
func (m *model) returnsDecisionTime(a *call) bool {
	return len(a.entries) == 1 || a.to < m.clockSetBackAt
}
