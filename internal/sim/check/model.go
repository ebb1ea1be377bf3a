package check

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/history"
)

// forever is a true time after all others.
const forever = math.MaxInt64

// ask is a call with its return.
type ask struct {
	*history.Call
	ret      *history.Return // nil: none
	node     string
	from, to int64    // true times of call and return; forever without a return
	events   []int    // in the history
	admitted *ask     // settle, cancel, renew, release: what it is about, if that is one call
	parts    []*entry // what it asks of each cell
	void     bool     // another call of the same idempotency key was charged in its place
	by       int64    // true time by which it was charged, if another call tells; 0: none does
}

// front is the process that repeats refusals for the one that asks.
func (a *ask) front() string { return cmp.Or(a.Front, a.node) }

// outcome is that of the return, Unknown without one.
func (a *ask) outcome() string {
	if a.ret == nil {
		return history.Unknown
	}
	return a.ret.Outcome
}

// at is the time decided for, 0 if it is not told.
func (a *ask) at() int64 {
	if a.ret == nil {
		return 0
	}
	return a.ret.At
}

func (a *ask) via() string {
	if a.ret == nil || a.ret.Via == "" {
		return history.ViaStore
	}
	return a.ret.Via
}

// until is when it was done at the latest, if it was.
func (a *ask) until() int64 {
	switch {
	case a.by > 0:
		return a.by
	case a.ret == nil:
		return forever
	case a.ret.Outcome != history.Unknown:
		return a.to
	case a.ret.Until > 0:
		return a.ret.Until
	}
	return forever
}

// asks reports whether the verb is one that is admitted or refused.
func asks(verb string) bool {
	return verb == history.Extend || verb == history.Check || admits(verb) || verb == history.Acquire
}

// admits reports whether the verb is one that admits a request under its id.
func admits(verb string) bool { return verb == history.Take || verb == history.Reserve }

// entry is what one call asks of one cell.
type entry struct {
	*ask
	cell   *cell
	rule   *rule
	place  int // of the first of its charges to the cell
	cost   num // of all of these
	keep   num // the most headroom that one of them leaves, by rule
	passed num // of it, at least: what it was settled for, if that is less
	back   num // given back at most
	lossy  bool
	told   bool // the answer says which version has decided
	again  bool // its key may have known the id, while another key of the request had forgotten it
	fixes  []*fix

	extension          // of verb extend
	more      []*entry // that extend it, or may
}

// fix is a correction of an entry.
type fix struct {
	*ask
	of     *entry
	amount num  // by which it was corrected, as it is said
	down   bool // given back
	told   bool // amount was said
	spread bool // given back of several charges, each at a time of its own
}

// cell is the state of one limit for one key, and what was asked of it.
type cell struct {
	family  *family
	key     string
	entries []*entry // take, reserve, acquire, check
	others  []*ask   // reset, block, unblock, in order of their calls
	fixes   []*fix
	leases  []*ask // renew and release
	states  []state
}

type state struct {
	*history.State
	event int
}

func (c *cell) name() string {
	return fmt.Sprintf("%s %q", c.family.limits[0].Name, c.key)
}

// model is a history that makes sense.
type model struct {
	h        *history.History
	asks     map[int]*ask
	order    []*ask // by their calls
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
	t     int64
	event int
}

// begun is the true time from which on the fault can have had its effect.
func (f *fault) begun() int64 {
	if f.Kind == history.Forget {
		return max(0, f.t-f.By*1000)
	}
	return f.t
}

// broken says that the history does not keep to its format.
func (m *model) broken(event int, format string, args ...any) {
	m.found = append(m.found, Violation{"format", []int{event}, fmt.Sprintf(format, args...)})
}

// violation notes that a rule is broken by these calls.
func (m *model) violation(rule string, asks []*ask, format string, args ...any) {
	var events []int
	for _, a := range asks {
		events = append(events, a.events...)
	}
	slices.Sort(events)
	m.found = append(m.found, Violation{rule, slices.Compact(events), fmt.Sprintf(format, args...)})
}

// newModel reads the events.
func newModel(h *history.History) *model {
	m := &model{h: h, asks: map[int]*ask{}, families: map[string]*family{}, excused: map[*ask]bool{}, setBack: forever}
	for i := range h.Events {
		e := &h.Events[i]
		if err := e.Valid(); err != nil {
			m.broken(i, "%v", err)
			continue
		}
		if e.T < m.end {
			m.broken(i, "true time goes back from %d to %d", m.end, e.T)
		}
		m.end = max(m.end, e.T)
		switch e.Kind {
		case history.KindLimit:
			m.limit(i, e.Limit)
		case history.KindRemoval:
			m.removal(i, e.Removal)
		case history.KindCall:
			call := *e.Call
			a := &ask{Call: &call, node: e.Node, from: e.T, to: forever, events: []int{i}}
			if m.asks[a.ID] != nil {
				m.broken(i, "the call %d is there already", a.ID)
				continue
			}
			m.asks[a.ID] = a
			m.order = append(m.order, a)
		case history.KindReturn:
			a := m.asks[e.Return.ID]
			if a == nil || a.ret != nil {
				m.broken(i, "no call %d waits for this return", e.Return.ID)
				continue
			}
			a.ret, a.to, a.events = e.Return, e.T, append(a.events, i)
		case history.KindFault:
			m.faults = append(m.faults, fault{e.Fault, e.T, i})
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

func (m *model) limit(event int, l *history.Limit) {
	f := m.families[l.Name]
	if f == nil {
		f = &family{cells: map[string]*cell{}, terms: map[int]term{}}
		m.families[l.Name] = f
	}
	for _, known := range f.limits {
		if known.Version == l.Version {
			m.broken(event, "version %d of %s is there already", l.Version, l.Name)
			return
		}
	}
	f.limits = append(f.limits, l)
	if l.Key != "" {
		f.override(l, m.end)
	}
}

// fill makes the cells.
func (m *model) fill() {
	for name, texts := range m.costs() {
		f := m.families[name]
		if f == nil {
			continue
		}
		if err := f.scale(texts); err != nil {
			m.broken(0, "limit %s: %v", name, err)
			f.versions = nil
		}
	}
	for _, a := range m.order {
		m.place(a)
	}
	for i := range m.h.Events {
		if s := m.h.Events[i].State; s != nil && m.families[s.Limit] != nil {
			c := m.cell(m.families[s.Limit], s.Key)
			c.states = append(c.states, state{s, i})
		}
	}
}

// costs returns all costs that are named, of each limit.
func (m *model) costs() map[string]map[string]*big.Rat {
	costs := map[string]map[string]*big.Rat{}
	for name := range m.families {
		costs[name] = map[string]*big.Rat{}
	}
	add := func(limit string, texts []string, i int) {
		if costs[limit] == nil || i >= len(texts) || texts[i] == "" {
			return
		}
		if _, known := costs[limit][texts[i]]; !known {
			costs[limit][texts[i]], _ = history.Number(texts[i]) // it is valid
		}
	}
	for _, a := range m.order {
		if target := m.asks[a.Of]; target != nil && len(a.Charges) == 0 {
			a.Charges = target.Charges
		}
		for i, c := range a.Charges {
			add(c.Limit, []string{c.Cost}, 0)
			if !strings.HasSuffix(c.Keep, "%") {
				add(c.Limit, []string{c.Keep}, 0)
			}
			add(c.Limit, a.Actual, i)
			if a.ret == nil {
				continue
			}
			add(c.Limit, a.ret.Granted, i)
		}
	}
	return costs
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

// place puts a call where it belongs.
func (m *model) place(a *ask) {
	if a.Of != 0 {
		if a.admitted = m.asks[a.Of]; a.admitted == nil {
			m.broken(a.events[0], "the call %d is of a call %d that is not there", a.ID, a.Of)
			return
		}
	}
	for i, c := range a.Charges {
		f := m.families[c.Limit]
		if f == nil || f.versions == nil || f.versions[c.Version] == nil {
			m.broken(a.events[0], "the call %d names version %d of a limit %q that is not there",
				a.ID, c.Version, c.Limit)
			return
		}
		cell := m.cell(f, c.Key)
		switch {
		case asks(a.Verb):
			r, told := f.decided(a, i)
			a.charge(i, cell, r, told)
		case a.Verb == history.Reset || a.Verb == history.Block || a.Verb == history.Unblock:
			cell.others = append(cell.others, a)
		case a.Verb == history.Renew || a.Verb == history.Release:
			if !slices.Contains(cell.leases, a) {
				cell.leases = append(cell.leases, a)
			}
		}
	}
}

// charge adds a charge of the call to what it asks of the cell.
func (a *ask) charge(i int, c *cell, r *rule, told bool) {
	cost := c.family.costs[a.Charges[i].Cost]
	if a.Partial && a.ret != nil && i < len(a.ret.Granted) {
		cost = c.family.costs[a.ret.Granted[i]]
	}
	for _, e := range a.parts {
		if e.cell == c {
			e.cost, e.passed = e.cost.plus(cost), e.passed.plus(cost)
			e.keep = atLeast(e.keep, r.keep(c.family, a.Charges[i].Keep))
			if told && !e.told { // all are decided by one version
				e.rule, e.told = r, true
			}
			return
		}
	}
	e := &entry{ask: a, cell: c, rule: r, place: i, cost: cost, passed: cost, told: told}
	e.keep = r.keep(c.family, a.Charges[i].Keep)
	a.parts = append(a.parts, e)
	c.entries = append(c.entries, e)
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
		return !e.ret.Replayed // its time is not told, or how much it was
	}
	return e.outcome() == history.Unknown
}

// start is when what was charged passes, by the store's clock.
func (e *entry) start() int64 { return max(e.ret.At, e.ret.StartAt) }

// figures are what was said of the entry's charge, if its call has but that one.
func (e *entry) figures() (f history.Figures, ok bool) {
	if e.ret == nil || e.place >= len(e.ret.Each) {
		return f, false
	}
	return e.ret.Each[e.place], true
}
