package check

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"slices"

	"github.com/headgate/headgate/internal/testing/history"
)

const forever = math.MaxInt64

type ask struct {
	*history.Call
	ret      *history.Return // without one, an outcome that is not known
	node     string
	from, to int64    // true times of call and return; forever without a return
	events   []int    // in the history
	admitted *ask     // settle, cancel, renew, release: what it is about, if that is one call
	parts    []*entry // what it asks of each cell
	void     bool     // another call of the same idempotency key was charged in its place
	by       int64    // true time by which it was charged, if another call shows it; 0: none does
}

// front returns the process that repeats refusals for the caller's.
func (a *ask) front() string { return cmp.Or(a.Front, a.node) }

func (a *ask) outcome() string { return a.ret.Outcome }

func (a *ask) via() string { return cmp.Or(a.ret.Via, history.ViaStore) }

// until returns when it was done at the latest, if it was.
func (a *ask) until() int64 {
	if a.by == 0 && a.outcome() != history.Unknown {
		return a.to
	}
	return cmp.Or(a.by, a.ret.Until, forever)
}

// asks reports whether the verb can be admitted or refused.
func asks(verb string) bool {
	return verb == history.Extend || verb == history.Check || admits(verb) || verb == history.Acquire
}

// admits reports whether the verb admits a request under its id.
func admits(verb string) bool { return verb == history.Take || verb == history.Reserve }

// entry is the request of one call to one cell.
type entry struct {
	*ask
	cell         *cell
	rule         *rule
	place        int // of the first of its charges to the cell
	cost         num // of all of these
	keep         num // the most headroom that one of them leaves, by rule
	passed       num // of it, at least: what it was settled for, if that is less
	back         num // given back at most
	lossy        bool
	versionKnown bool // the answer says which version has decided
	again        bool // its key may have known the id, while another key of the request had forgotten it
	fixes        []*fix

	extension          // of verb extend
	more      []*entry // that extend it, or may
}

// fix is a correction of an entry.
type fix struct {
	*ask
	of          *entry
	amount      num  // by which it was corrected, as it is said
	down        bool // given back
	amountKnown bool // the answer says it
	spread      bool // given back of several charges, each at a time of its own
}

// cell is the state of a limit for a key, with the calls about it.
type cell struct {
	family  *family
	key     string
	rules   []*rule  // see decidedBy
	entries []*entry // take, reserve, acquire, check
	resets  []*ask   // that may have been done, in order of their calls
	blocks  []*ask   // block and unblock, in order of their calls
	fixes   []*fix
	leases  []*ask // renew and release
	states  []state
}

type state struct {
	*history.State
	event int
}

// model is a valid history.
type model struct {
	h        *history.History
	asks     map[int]*ask
	order    []*ask            // by their calls
	admit    map[string][]*ask // of an id: what admits it
	settles  map[string][]*ask // of an id: what settles or cancels it
	families map[string]*family
	cells    []*cell
	faults   []fault
	drift    int64 // millionths
	early    bool  // history.Early
	setBack  int64 // true time at which the store's clock first was; forever
	end      int64 // true time of the last event
	found    []Violation
	excused  map[*ask]bool // refusals that are justified, or cannot be judged
}

type fault struct {
	*history.Fault
	t int64
}

// begun returns the true time from which on the fault can have had its effect.
func (f *fault) begun() int64 {
	if f.Kind == history.Forget {
		return max(0, f.t-f.By*1000)
	}
	return f.t
}

// violation notes that these events break a rule, in one cell if it is not nil: then amounts among the
// args are in units.
func (m *model) violation(rule string, c *cell, events []int, format string, args ...any) {
	if c != nil {
		for i, arg := range args {
			if n, is := arg.(num); is {
				args[i] = c.family.text(n)
			}
		}
		format, args = "%s %q: "+format, append([]any{c.family.limits[0].Name, c.key}, args...)
	}
	events = slices.Compact(slices.Sorted(slices.Values(events)))
	m.found = append(m.found, Violation{rule, events, fmt.Sprintf(format, args...)})
}

// newModel reads the events.
func newModel(h *history.History) *model {
	m := &model{
		h: h, asks: map[int]*ask{}, admit: map[string][]*ask{}, settles: map[string][]*ask{},
		families: map[string]*family{}, excused: map[*ask]bool{}, setBack: forever,
	}
	for i := range h.Events {
		e := &h.Events[i]
		m.end = e.T
		if err := e.Valid(); err != nil {
			m.violation("format", nil, []int{i}, "%v", err)
			continue
		}
		switch {
		case e.Limit != nil:
			m.limit(e.Limit)
		case e.Removal != nil:
			m.families[e.Removal.Limit].removed(e.Removal.Version, m.end)
		case e.Call != nil:
			call := *e.Call
			none := &history.Return{Outcome: history.Unknown}
			a := &ask{Call: &call, ret: none, node: e.Node, from: e.T, to: forever, events: []int{i}}
			m.asks[a.ID] = a
			m.order = append(m.order, a)
		case e.Return != nil:
			a := m.asks[e.Return.ID]
			a.ret, a.to, a.events = e.Return, e.T, append(a.events, i)
		case e.Fault != nil:
			m.faults = append(m.faults, fault{e.Fault, e.T})
			if e.Fault.Kind == history.Clock && e.Fault.By < 0 {
				m.setBack = min(m.setBack, e.T)
			}
			if e.Fault.Kind == history.Drift {
				m.drift = max(m.drift, e.Fault.By)
			}
			m.early = m.early || e.Fault.Kind == history.Early
		}
	}
	m.fill()
	return m
}

func (m *model) limit(l *history.Limit) {
	f := m.families[l.Name]
	if f == nil {
		f = &family{named: map[string]*big.Rat{}, cells: map[string]*cell{}, terms: map[int]term{}}
		m.families[l.Name] = f
	}
	f.limits = append(f.limits, l)
	if l.Key != "" {
		f.override(l, m.end)
	}
}

func (m *model) fill() {
	for _, a := range m.order {
		if target := m.asks[a.Of]; target != nil && len(a.Charges) == 0 {
			a.Charges = target.Charges
		}
		for i, c := range a.Charges {
			f := m.families[c.Limit]
			f.name(c.Cost)
			f.name(c.Keep)
			if i < len(a.Actual) {
				f.name(a.Actual[i])
			}
		}
	}
	for _, f := range m.families {
		f.scale()
	}
	for _, a := range m.order {
		m.place(a)
		switch id := a.id(); {
		case id == "":
		case a.Verb == history.Settle || a.Verb == history.Cancel:
			m.settles[id] = append(m.settles[id], a)
		case a.Verb == history.Acquire || admits(a.Verb):
			m.admit[id] = append(m.admit[id], a)
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

func (c *cell) is(g history.Charge) bool { return g.Limit == c.family.limits[0].Name && g.Key == c.key }

func (m *model) place(a *ask) {
	a.admitted = m.asks[a.Of]
	for i, c := range a.Charges {
		f := m.families[c.Limit]
		cell := m.cell(f, c.Key)
		switch {
		case asks(a.Verb):
			r, known := f.decided(a, i)
			a.charge(i, cell, r, known)
		case a.Verb == history.Reset && a.outcome() != history.Nothing:
			cell.resets = append(cell.resets, a)
		case a.Verb == history.Block || a.Verb == history.Unblock:
			cell.blocks = append(cell.blocks, a)
		case a.Verb == history.Renew || a.Verb == history.Release:
			if !slices.Contains(cell.leases, a) {
				cell.leases = append(cell.leases, a)
			}
		}
	}
}

func (a *ask) charge(i int, c *cell, r *rule, known bool) {
	cost, keep := c.family.costs[a.Charges[i].Cost], r.keep(a.Charges[i].Keep)
	for _, e := range a.parts {
		if e.cell == c {
			e.cost, e.passed = e.cost.plus(cost), e.passed.plus(cost)
			e.keep = atLeast(e.keep, keep)
			if known && !e.versionKnown { // all are decided by one version
				e.rule, e.versionKnown = r, true
			}
			return
		}
	}
	e := &entry{ask: a, cell: c, rule: r, place: i, cost: cost, keep: keep, passed: cost, versionKnown: known}
	a.parts = append(a.parts, e)
	c.entries = append(c.entries, e)
}

// reset reports whether a reset of the cell may have been done within an interval of true time.
func (c *cell) reset(from, to int64) bool {
	return slices.ContainsFunc(c.resets, func(a *ask) bool { return a.until() >= from && a.from <= to })
}

// sure reports whether the entry was charged, certainly and at a known time.
func (e *entry) sure() bool {
	return e.Verb != history.Check && e.outcome() == history.Admitted && !e.ret.Replayed && !e.again && !e.hazy &&
		e.ret.At > 0
}

// maybe reports whether it can have been charged, at a time that is not known.
func (e *entry) maybe() bool {
	switch {
	case e.Verb == history.Check || e.void || e.sure():
		return false
	case e.outcome() == history.Admitted:
		return !e.ret.Replayed // its time is not known, or how much it was
	}
	return e.outcome() == history.Unknown
}

// need returns how much has to be free before a charge for it to pass, at most: headroom is rounded up to what the
// limit counts.
func (e *entry) need() num {
	if !e.keep.positive() {
		return e.cost
	}
	return e.cost.plus(e.keep).plus(e.cell.family.least())
}

// start returns when what was charged passes, by the store's clock.
func (e *entry) start() int64 { return max(e.ret.At, e.ret.StartAt) }

// figures returns what was said of the entry's charge, if its call has but that one.
func (e *entry) figures() (f history.Figures, ok bool) {
	if e.place >= len(e.ret.Each) {
		return f, false
	}
	return e.ret.Each[e.place], true
}
