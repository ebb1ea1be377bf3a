package check

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"slices"

	"github.com/headgate/headgate/internal/testing/history"
)

const forever = math.MaxInt64 // as a time: never, or not known

// call is a call with its return.
type call struct {
	*history.Call
	ret       *history.Return // never nil: the outcome is unknown if the history has no return
	node      string
	from, to  int64    // true times of call and return; forever without a return
	events    []int    // indexes in the history
	target    *call    // settle, cancel, renew, release: the call to which Of refers
	entries   []*entry // one for each cell that the call charges
	isVoid    bool     // another call with the same idempotency key was charged instead
	chargedBy int64    // true time by which the call was charged, if another call shows that; else 0
}

// front returns the process that repeats refusals and hands out prefetched tokens for the process of the caller.
func (a *call) front() string { return cmp.Or(a.Front, a.node) }

func (a *call) outcome() string { return a.ret.Outcome }

func (a *call) via() string { return cmp.Or(a.ret.Via, history.ViaStore) }

// doneBy returns the true time by which the call was done, if it was; forever: not known.
func (a *call) doneBy() int64 {
	if a.chargedBy == 0 && a.outcome() != history.Unknown {
		return a.to
	}
	return cmp.Or(a.chargedBy, a.ret.Until, forever)
}

// hasDecision reports whether calls of the verb are admitted or refused.
func hasDecision(verb string) bool {
	return verb == history.Extend || verb == history.Check || isTakeOrReserve(verb) || verb == history.Acquire
}

func isTakeOrReserve(verb string) bool { return verb == history.Take || verb == history.Reserve }

// entry is the charges of one call to one cell.
type entry struct {
	*call
	cell            *cell
	rule            *rule
	chargeIndex     int  // of the first charge to the cell, in the charges of the call
	cost            num  // the sum of all charges to the cell
	headroom        num  // the largest headroom of all charges to the cell, under rule
	finalCost       num  // the part of the cost that surely stayed charged: corrections may have lowered it
	maxRefund       num  // the maximum that corrections have refunded
	mayBeLost       bool // a fail-over can have lost the charge
	versionKnown    bool // the answer says which version has decided
	mayBeReadmitted bool // the key may have known the id, although another key of the request had forgotten it
	corrections     []*correction

	extension           // for the verb extend
	extensions []*entry // the calls that extend, or may extend, the charges of this entry
}

// correction is a settlement or cancellation of an entry.
type correction struct {
	*call
	entry        *entry
	amount       num  // how much was given back or charged, as the answer says, or at most
	isRefund     bool // the amount was given back, not charged
	amountKnown  bool // the answer says the amount for this entry
	severalTimes bool // the refund is of several charges, which have different times
}

// cell is a cell of the store, with the calls about it.
type cell struct {
	family      *family
	key         string
	rules       []*rule  // the result of appliedRules
	entries     []*entry // of the calls that have a decision, in their order
	resets      []*call  // resets that may have been done, in the order of their calls
	blocks      []*call  // calls of block and unblock, in their order
	corrections []*correction
	leases      []*call // calls of renew and release
	states      []state
}

type state struct {
	*history.State
	event int
}

// model is a history, sorted by calls and cells.
type model struct {
	h               *history.History
	calls           []*call // in the order of their events
	callByID        map[int]*call
	admissions      map[string][]*call // by id: the calls that may admit a request under it
	settlements     map[string][]*call // by id: the calls that settle or cancel it
	families        map[string]*family
	cells           []*cell
	faults          []fault
	drift           int64 // of the store's clock, in millionths
	readsClockEarly bool  // the store reads its clock early: history.EarlyClock
	clockSetBackAt  int64 // true time at which the store's clock was first set back; forever: never
	end             int64 // true time of the last event
	violations      []Violation
	isExcused       map[*call]bool // refusals that are justified, or cannot be judged
}

type fault struct {
	*history.Fault
	t int64
}

// firstEffect returns the true time from which on the fault can have had an effect.
func (f *fault) firstEffect() int64 {
	if f.Kind == history.Forget {
		return max(0, f.t-f.By*1000)
	}
	return f.t
}

// report adds a violation of a rule by some events. If it is about one cell, c is that cell, and every num in args is
// printed in units; else c is nil.
func (m *model) report(rule string, c *cell, events []int, format string, args ...any) {
	if c != nil {
		for i, arg := range args {
			if n, is := arg.(num); is {
				args[i] = c.family.text(n)
			}
		}
		format, args = "%s %q: "+format, append([]any{c.family.limits[0].Name, c.key}, args...)
	}
	events = slices.Compact(slices.Sorted(slices.Values(events)))
	m.violations = append(m.violations, Violation{rule, events, fmt.Sprintf(format, args...)})
}

func newModel(h *history.History) *model {
	m := &model{
		h: h, callByID: map[int]*call{}, admissions: map[string][]*call{}, settlements: map[string][]*call{},
		families: map[string]*family{}, isExcused: map[*call]bool{}, clockSetBackAt: forever,
	}
	for i := range h.Events {
		e := &h.Events[i]
		m.end = e.T
		if err := e.Valid(); err != nil {
			m.report("format", nil, []int{i}, "%v", err)
			continue
		}
		switch {
		case e.Limit != nil:
			m.addLimit(e.Limit)
		case e.Removal != nil:
			m.families[e.Removal.Limit].removeOverride(e.Removal.Version, m.end)
		case e.Call != nil:
			callCopy := *e.Call
			noReturn := &history.Return{Outcome: history.Unknown}
			a := &call{Call: &callCopy, ret: noReturn, node: e.Node, from: e.T, to: forever, events: []int{i}}
			m.callByID[a.ID] = a
			m.calls = append(m.calls, a)
		case e.Return != nil:
			a := m.callByID[e.Return.ID]
			a.ret, a.to, a.events = e.Return, e.T, append(a.events, i)
		case e.Fault != nil:
			m.faults = append(m.faults, fault{e.Fault, e.T})
			if e.Fault.Kind == history.Clock && e.Fault.By < 0 {
				m.clockSetBackAt = min(m.clockSetBackAt, e.T)
			}
			if e.Fault.Kind == history.Drift {
				m.drift = max(m.drift, e.Fault.By)
			}
			m.readsClockEarly = m.readsClockEarly || e.Fault.Kind == history.EarlyClock
		}
	}
	m.addCells()
	return m
}

func (m *model) addLimit(l *history.Limit) {
	f := m.families[l.Name]
	if f == nil {
		f = &family{amounts: map[string]*big.Rat{}, cells: map[string]*cell{}, terms: map[int]term{}}
		m.families[l.Name] = f
	}
	f.limits = append(f.limits, l)
	if l.Key != "" {
		f.addOverride(l, m.end)
	}
}

// addCells scales all amounts, and sorts the calls and the final states by cells and ids.
func (m *model) addCells() {
	for _, a := range m.calls {
		if target := m.callByID[a.Of]; target != nil && len(a.Charges) == 0 {
			a.Charges = target.Charges
		}
		for i, c := range a.Charges {
			f := m.families[c.Limit]
			f.addAmount(c.Cost)
			f.addAmount(c.Keep)
			if i < len(a.Actual) {
				f.addAmount(a.Actual[i])
			}
		}
	}
	for _, f := range m.families {
		f.scale()
	}
	for _, a := range m.calls {
		m.addToCells(a)
		switch id := a.id(); {
		case id == "":
		case a.Verb == history.Settle || a.Verb == history.Cancel:
			m.settlements[id] = append(m.settlements[id], a)
		case a.Verb == history.Acquire || isTakeOrReserve(a.Verb):
			m.admissions[id] = append(m.admissions[id], a)
		}
	}
	for i := range m.h.Events {
		if s := m.h.Events[i].State; s != nil {
			c := m.cell(m.families[s.Limit], s.Key)
			c.states = append(c.states, state{s, i})
		}
	}
}

func (m *model) cell(f *family, key string) *cell {
	c := f.cells[key]
	if c == nil {
		c = &cell{family: f, key: key}
		f.cells[key] = c
		m.cells = append(m.cells, c)
	}
	return c
}

func (c *cell) matches(g history.Charge) bool {
	return g.Limit == c.family.limits[0].Name && g.Key == c.key
}

// addToCells adds a call to the cells that it is about, and sets its target and entries.
func (m *model) addToCells(a *call) {
	a.target = m.callByID[a.Of]
	for i, c := range a.Charges {
		f := m.families[c.Limit]
		cell := m.cell(f, c.Key)
		switch {
		case hasDecision(a.Verb):
			r, known := f.versionOf(a, i)
			a.charge(i, cell, r, known)
		case a.Verb == history.Reset && a.outcome() != history.Nothing:
			cell.resets = append(cell.resets, a)
		case a.Verb == history.Block || a.Verb == history.Unblock:
			cell.blocks = append(cell.blocks, a)
		case (a.Verb == history.Renew || a.Verb == history.Release) && !slices.Contains(cell.leases, a):
			cell.leases = append(cell.leases, a)
		}
	}
}

// charge adds one charge of the call to the entry for its cell.
func (a *call) charge(i int, c *cell, r *rule, known bool) {
	cost, headroom := c.family.costs[a.Charges[i].Cost], r.headroom(a.Charges[i].Keep)
	for _, e := range a.entries {
		if e.cell == c {
			e.cost, e.finalCost = e.cost.plus(cost), e.finalCost.plus(cost)
			e.headroom = maxNum(e.headroom, headroom)
			if known && !e.versionKnown { // one version decides about all charges to a cell
				e.rule, e.versionKnown = r, true
			}
			return
		}
	}
	e := &entry{call: a, cell: c, rule: r, chargeIndex: i, cost: cost, headroom: headroom, finalCost: cost}
	e.versionKnown = known
	a.entries = append(a.entries, e)
	c.entries = append(c.entries, e)
}

// mayBeReset reports whether a reset of the cell may have been done within an interval of true time.
func (c *cell) mayBeReset(from, to int64) bool {
	return slices.ContainsFunc(c.resets, func(a *call) bool { return a.doneBy() >= from && a.from <= to })
}

// surelyCharged reports whether the entry was certainly charged, with all of its cost and at a known time.
func (e *entry) surelyCharged() bool {
	return e.Verb != history.Check && e.outcome() == history.Admitted && !e.ret.Replayed && !e.mayBeReadmitted &&
		!e.costUnknown && e.ret.At > 0
}

// maybeCharged reports whether it is not known if, when or with what cost the entry was charged.
func (e *entry) maybeCharged() bool {
	switch {
	case e.Verb == history.Check || e.isVoid || e.surelyCharged():
		return false
	case e.outcome() == history.Admitted:
		return !e.ret.Replayed // the time or the cost is not known
	}
	return e.outcome() == history.Unknown
}

// need returns the amount with which the entry is surely admitted if it is free: the cost, and the headroom, which the
// store may round up by a step.
func (e *entry) need() num {
	if !e.headroom.positive() {
		return e.cost
	}
	return e.cost.plus(e.headroom).plus(e.cell.family.roundingStep())
}

// start returns the start of the request by the store's clock: the decision, or the start that was reserved.
func (e *entry) start() int64 { return max(e.ret.At, e.ret.StartAt) }

// figures returns the figures in the answer for the entry's first charge, if it has them.
func (e *entry) figures() (f history.Figures, ok bool) {
	if e.chargeIndex >= len(e.ret.Each) {
		return f, false
	}
	return e.ret.Each[e.chargeIndex], true
}
