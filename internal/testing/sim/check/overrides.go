package check

import (
	"slices"

	"github.com/headgate/headgate/internal/testing/history"
)

// term is for how long an override is there, in true time: from when it is made until it is removed or
// replaced. It may end before, by the store's clock.
type term struct{ made, gone int64 }

// override notes that an override is made at a true time, in the place of the one that the key had.
func (f *family) override(l *history.Limit, at int64) {
	for _, other := range f.limits {
		if t := f.terms[other.Version]; other != l && other.Key == l.Key && t.gone == forever {
			f.removed(other.Version, at)
		}
	}
	f.terms[l.Version] = term{at, forever}
}

func (f *family) removed(version int, at int64) { f.terms[version] = term{f.terms[version].made, at} }

// overrides returns those of the cell's key, in the order in which they were made.
func (c *cell) overrides() (list []*rule) {
	if len(c.family.terms) == 0 {
		return nil
	}
	for _, l := range c.family.limits {
		if r := c.family.versions[l.Version]; r != nil && l.Key == c.key && l.Key != "" {
			list = append(list, r)
		}
	}
	return list
}

// only returns the one version that is no override; nil if there are several.
func (f *family) only() (only *rule) {
	for _, r := range f.versions {
		if r.limit.Key != "" {
			continue
		}
		if only != nil {
			return nil
		}
		only = r
	}
	return only
}

// open reports whether it is not known which version has decided, or would have. A call that waits asks
// again and again, and returns the last decision.
func (e *entry) open() bool {
	if e.versionKnown && !e.asksAgain() {
		return false
	}
	timed := func(l *history.Limit) bool { return l.From > 0 }
	return len(e.others()) > 0 || slices.ContainsFunc(e.cell.family.limits, timed)
}

func (e *entry) asksAgain() bool { return e.Wait > 0 && e.Verb != history.Reserve }

// others returns the other versions that may have decided about the entry too, where there are overrides.
func (e *entry) others() []*rule {
	f := e.cell.family
	if e.versionKnown && !e.asksAgain() || len(f.terms) == 0 {
		return nil
	}
	list := append(e.cell.overrides(), f.versions[e.Charges[e.place].Version])
	return slices.DeleteFunc(list, func(r *rule) bool { return r == e.rule || r.term.made > e.until() })
}

// by reports whether is is true of the entry, by some version that may have decided about it.
func (e *entry) by(is func(*entry) bool) bool {
	if is(e) {
		return true
	}
	for _, r := range e.others() {
		other := *e
		if other.rule, other.keep = r, e.keepBy(r); is(&other) {
			return true
		}
	}
	return false
}

// keepBy returns the headroom that the entry leaves if another version decides about it: a share of another
// capacity.
func (e *entry) keepBy(r *rule) (keep num) {
	for _, c := range e.Charges {
		if e.cell.is(c) {
			keep = atLeast(keep, r.keep(c.Keep))
		}
	}
	return keep
}

// overrides checks which version has decided about a key that has another definition of its limit.
func (m *model) overrides() {
	for _, a := range m.order {
		if !a.answered() || a.Verb == history.Extend && len(a.parts) > 1 {
			continue
		}
		for _, e := range a.parts {
			if e.versionKnown && len(e.cell.family.terms) > 0 {
				m.decidedBy(e)
			}
		}
	}
}

func (m *model) decidedBy(e *entry) {
	by, at := e.rule, int64(0)
	if m.timed(e.ask) {
		at = e.ret.At
	}
	f, _ := e.figures()
	if want := e.cell.family.units(by.most); f.Capacity > 0 && f.Capacity != want {
		m.violation("figures", e.cell, e.events, "the capacity of version %d is %d, not %d", by.limit.Version, want,
			f.Capacity)
	}
	if by.limit.Key != "" {
		m.byOverride(e, f, at)
	}
	for _, r := range e.cell.overrides() {
		if r != by && m.holds(r, e, at) {
			m.violation("overrides", e.cell, e.events, "version %d has decided, although %d was in force since %d ns",
				by.limit.Version, r.limit.Version, r.term.made)
		}
	}
}

// byOverride checks a decision by an override, at a time of the store's clock; 0: not known.
func (m *model) byOverride(e *entry, f history.Figures, at int64) {
	bad := func(rule, format string, args ...any) {
		m.violation(rule, e.cell, e.events, "version %d "+format, append([]any{e.rule.limit.Version}, args...)...)
	}
	switch l, t := e.rule.limit, e.rule.term; {
	case l.Key != e.cell.key:
		bad("overrides", "has decided, which is of %q", l.Key)
	case t.made > e.to:
		bad("overrides", "has decided before it was made")
	case l.Felt > 0 && t.gone < forever && t.gone+l.Felt*1000 < e.from:
		bad("overrides", "has decided %d us after it was removed or replaced", (e.from-t.gone)/1000)
	case l.Until > 0 && at >= l.Until:
		bad("ends", "has decided at %d, which ends at %d", at, l.Until)
	case l.Until > 0 && at > 0 && m.outlasts(e, f, at):
		bad("ends", "has refused at %d for %d us, although another one decides from %d", at, f.RetryAfter, l.Until)
	}
}

// outlasts reports whether a refusal by an override says to come again after the override's end.
func (m *model) outlasts(e *entry, f history.Figures, at int64) bool {
	end := e.rule.limit.Until
	if e.Front != "" {
		end += 999 // a server returns milliseconds, rounded up
	}
	return e.outcome() == history.Refused && e.via() == history.ViaStore && len(e.Charges) == 1 && e.to < m.setBack &&
		(f.RetryAfter < 0 || at+f.RetryAfter > end)
}

// holds reports whether an override was certainly in force for an entry that was decided at a time of the
// store's clock; 0: not known. A process knows of a step of that clock when it has read the
// catalog again.
func (m *model) holds(r *rule, e *entry, at int64) bool {
	l, felt := r.limit, r.limit.Felt*1000
	if felt == 0 || r.term.made+felt >= e.from || r.term.gone <= e.to || l.Until > 0 && (at == 0 || at >= l.Until) {
		return false
	}
	return l.Until == 0 || !m.moved(e.from-felt, e.to)
}

// boundOfEach checks a cell that several versions decide about: the bound of each while it alone has
// decided, and of two that follow each other the sum, while these two have, as processes that differ do.
// Whatever was in use before only lowers what passes. docs/limits.md, docs/algorithms.md: "Changing a limit".
func (m *model) boundOfEach(c *cell, breaks *spans) {
	if len(c.rules) < 2 || slices.ContainsFunc(c.rules, (*rule).prefetching) {
		return // nodes take tokens at times that are not known
	}
	for i, r := range c.rules {
		most := r.most.plus(c.slack(r, true))
		for _, entries := range m.runs(c, breaks, r) {
			slices.SortStableFunc(entries, byStart)
			m.boundOfStretch(c, newLevel(r, false, true), most, entries)
		}
		for k, other := range c.rules[i+1:] {
			if k > 0 && (r.limit.Key != "" || len(c.family.terms) == 0) {
				break // only the limit itself may follow any override
			}
			m.boundOfTwo(c, breaks, r, other)
		}
	}
}

func (m *model) boundOfTwo(c *cell, breaks *spans, one, other *rule) {
	for _, entries := range m.runs(c, breaks, one, other) {
		entries = slices.DeleteFunc(entries, func(e *entry) bool { return e.ret.StartAt > e.ret.At })
		by := func(r *rule) bool {
			return slices.ContainsFunc(entries, func(e *entry) bool { return e.rule == r })
		}
		if by(one) && by(other) { // else the bound of one is enough
			m.boundOfRules(c, []*rule{one, other}, entries)
		}
	}
}

// runs returns the charges by some versions, in stretches in which no other version has decided.
func (m *model) runs(c *cell, breaks *spans, rules ...*rule) map[int][]*entry {
	alone, runs := m.alone(c, rules, breaks), map[int][]*entry{}
	for _, e := range c.entries {
		if !slices.Contains(rules, e.rule) || e.open() || !e.sure() || !m.timed(e.ask) {
			continue
		}
		if n, ok := alone.between(e.from, e.to); ok {
			runs[n] = append(runs[n], e)
		}
	}
	return runs
}

// alone returns the stretches between which none but some versions touch the cell.
func (m *model) alone(c *cell, rules []*rule, breaks *spans) *spans {
	s := breaks.clone()
	for _, e := range c.entries {
		touched := e.Verb != history.Check && e.outcome() != history.Nothing && e.via() != history.ViaRepeat
		if touched && (!slices.Contains(rules, e.rule) || e.open()) {
			s.add(e.from, e.until(), num{})
		}
	}
	for _, f := range c.fixes {
		s.add(f.from, f.until(), num{})
	}
	for _, a := range c.blocks {
		s.add(a.from, a.until(), num{})
	}
	s.sort()
	return s
}
