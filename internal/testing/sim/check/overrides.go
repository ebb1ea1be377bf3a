package check

import (
	"slices"

	"github.com/headgate/headgate/internal/testing/history"
)

// term has the true times at which an override was set, and removed or replaced. The override may end before
// that by the store's clock.
type term struct{ setAt, removedAt int64 }

// addOverride records that an override is set at a true time. It replaces an earlier override of the key.
func (f *family) addOverride(l *history.Limit, at int64) {
	for _, other := range f.limits {
		if t := f.terms[other.Version]; other != l && other.Key == l.Key && t.removedAt == forever {
			f.removeOverride(other.Version, at)
		}
	}
	f.terms[l.Version] = term{at, forever}
}

// removeOverride records that an override is removed or replaced at a true time.
func (f *family) removeOverride(version int, at int64) {
	f.terms[version] = term{f.terms[version].setAt, at}
}

// overrides returns the overrides of the cell's key, in the order in which they were set.
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

// baseVersion returns the version that is no override; nil if there are several, or none.
func (f *family) baseVersion() (version *rule) {
	for _, r := range f.versions {
		if r.limit.Key != "" {
			continue
		}
		if version != nil {
			return nil
		}
		version = r
	}
	return version
}

// versionUnknown reports whether it is not known which version has decided about the entry, or would have. A call that
// waits is decided several times, and returns the last decision.
func (e *entry) versionUnknown() bool {
	if e.versionKnown && !e.retries() {
		return false
	}
	timed := func(l *history.Limit) bool { return l.From > 0 }
	return len(e.otherVersions()) > 0 || slices.ContainsFunc(e.cell.family.limits, timed)
}

// retries reports whether the call may wait, and then is decided several times.
func (e *entry) retries() bool { return e.Wait > 0 && e.Verb != history.Reserve }

// otherVersions returns the other versions that may have decided about the entry, if the limit has overrides.
func (e *entry) otherVersions() []*rule {
	f := e.cell.family
	if e.versionKnown && !e.retries() || len(f.terms) == 0 {
		return nil
	}
	list := append(e.cell.overrides(), f.versions[e.Charges[e.chargeIndex].Version])
	return slices.DeleteFunc(list, func(r *rule) bool { return r == e.rule || r.term.setAt > e.doneBy() })
}

// underSomeVersion reports whether a condition holds for the entry under some version that may have decided about it.
func (e *entry) underSomeVersion(holds func(*entry) bool) bool {
	if holds(e) {
		return true
	}
	for _, r := range e.otherVersions() {
		other := *e
		if other.rule, other.headroom = r, e.headroomBy(r); holds(&other) {
			return true
		}
	}
	return false
}

// headroomBy returns the headroom of the entry if another version decides about it: a percentage is of the capacity of
// that version.
func (e *entry) headroomBy(r *rule) (headroom num) {
	for _, c := range e.Charges {
		if e.cell.matches(c) {
			headroom = maxNum(headroom, r.headroom(c.Keep))
		}
	}
	return headroom
}

// overrides checks which versions have decided about limits that have overrides.
func (m *model) overrides() {
	for _, a := range m.calls {
		if !a.decidedAnew() || a.Verb == history.Extend && len(a.entries) > 1 {
			continue
		}
		for _, e := range a.entries {
			if e.versionKnown && len(e.cell.family.terms) > 0 {
				m.checkVersion(e)
			}
		}
	}
}

// checkVersion checks that the version which has decided about an entry was in force.
func (m *model) checkVersion(e *entry) {
	decider, at := e.rule, int64(0)
	if m.returnsDecisionTime(e.call) {
		at = e.ret.At
	}
	f, _ := e.figures()
	if want := e.cell.family.units(decider.capacity); f.Capacity > 0 && f.Capacity != want {
		m.report("figures", e.cell, e.events, "the capacity of version %d is %d, not %d", decider.limit.Version, want,
			f.Capacity)
	}
	if decider.limit.Key != "" {
		m.checkOverride(e, f, at)
	}
	for _, r := range e.cell.overrides() {
		if r != decider && m.inForce(r, e, at) {
			m.report("overrides", e.cell, e.events, "version %d has decided, although %d was in force since %d ns",
				decider.limit.Version, r.limit.Version, r.term.setAt)
		}
	}
}

// checkOverride checks a decision by an override, at a time of the store's clock; 0: not known.
func (m *model) checkOverride(e *entry, f history.Figures, at int64) {
	report := func(rule, format string, args ...any) {
		m.report(rule, e.cell, e.events, "version %d "+format, append([]any{e.rule.limit.Version}, args...)...)
	}
	switch l, t := e.rule.limit, e.rule.term; {
	case l.Key != e.cell.key:
		report("overrides", "has decided, which is of %q", l.Key)
	case t.setAt > e.to:
		report("overrides", "has decided before it was made")
	case l.MaxApplyTime > 0 && t.removedAt < forever && t.removedAt+l.MaxApplyTime*1000 < e.from:
		report("overrides", "has decided %d us after it was removed or replaced", (e.from-t.removedAt)/1000)
	case l.Until > 0 && at >= l.Until:
		report("ends", "has decided at %d, which ends at %d", at, l.Until)
	case l.Until > 0 && at > 0 && m.retriesPastEnd(e, f, at):
		report("ends", "has refused at %d for %d us, although another one decides from %d", at, f.RetryAfter, l.Until)
	}
}

// retriesPastEnd reports whether the retry-after of a refusal by an override goes beyond the end of the override.
func (m *model) retriesPastEnd(e *entry, f history.Figures, at int64) bool {
	end := e.rule.limit.Until
	if e.Front != "" {
		end += 999 // a server returns milliseconds, rounded up
	}
	return e.outcome() == history.Refused && e.via() == history.ViaStore && len(e.Charges) == 1 &&
		e.to < m.clockSetBackAt && (f.RetryAfter < 0 || at+f.RetryAfter > end)
}

// inForce reports whether an override was certainly in force for an entry that was decided at a time of the store's
// clock; 0: not known. A process notices a step of that clock when it reads the catalog again.
func (m *model) inForce(r *rule, e *entry, at int64) bool {
	l, maxApplyTime := r.limit, r.limit.MaxApplyTime*1000
	if maxApplyTime == 0 || r.term.setAt+maxApplyTime >= e.from || r.term.removedAt <= e.to ||
		l.Until > 0 && (at == 0 || at >= l.Until) {
		return false
	}
	return l.Until == 0 || !m.clockMoved(e.from-maxApplyTime, e.to)
}

// boundOfEach checks a cell that several versions decide about. While one version decides alone, its bound holds. While
// two versions that follow each other decide, as in processes that differ, the sum of their bounds holds. What was in
// use before only lowers what passes. docs/limits.md, docs/algorithms.md: "Changing a limit".
func (m *model) boundOfEach(c *cell, breaks *spans) {
	if len(c.rules) < 2 || slices.ContainsFunc(c.rules, (*rule).prefetching) {
		return // nodes take tokens at times that are not known
	}
	for i, r := range c.rules {
		maxUsed := r.capacity.plus(c.slack(r, true))
		for _, entries := range m.entriesBy(c, breaks, r) {
			slices.SortStableFunc(entries, byStart)
			m.boundOfStretch(c, newLevel(r, false, true), maxUsed, entries)
		}
		for k, other := range c.rules[i+1:] {
			if k > 0 && (r.limit.Key != "" || len(c.family.terms) == 0) {
				break // only the limit itself may follow any override
			}
			m.boundOfTwo(c, breaks, r, other)
		}
	}
}

// boundOfTwo checks the sum of the bounds of two versions, while these two decide.
func (m *model) boundOfTwo(c *cell, breaks *spans, rule1, rule2 *rule) {
	for _, entries := range m.entriesBy(c, breaks, rule1, rule2) {
		entries = slices.DeleteFunc(entries, func(e *entry) bool { return e.ret.StartAt > e.ret.At })
		decided := func(r *rule) bool {
			return slices.ContainsFunc(entries, func(e *entry) bool { return e.rule == r })
		}
		if decided(rule1) && decided(rule2) { // otherwise the bound of one version is enough
			m.boundOfRules(c, []*rule{rule1, rule2}, entries)
		}
	}
}

// entriesBy returns the entries that some versions decided, by the stretches in which no other version decided.
func (m *model) entriesBy(c *cell, breaks *spans, rules ...*rule) map[int][]*entry {
	interruptions, stretches := m.interruptions(c, rules, breaks), map[int][]*entry{}
	for _, e := range c.entries {
		if !slices.Contains(rules, e.rule) || e.versionUnknown() || !e.surelyCharged() ||
			!m.returnsDecisionTime(e.call) {
			continue
		}
		if n, ok := interruptions.stretchOf(e.from, e.to); ok {
			stretches[n] = append(stretches[n], e)
		}
	}
	return stretches
}

// interruptions returns the spans between which no version but these touches the cell.
func (m *model) interruptions(c *cell, rules []*rule, breaks *spans) *spans {
	s := breaks.clone()
	for _, e := range c.entries {
		touches := e.Verb != history.Check && e.outcome() != history.Nothing && e.via() != history.ViaRepeat
		if touches && (!slices.Contains(rules, e.rule) || e.versionUnknown()) {
			s.add(e.from, e.doneBy(), num{})
		}
	}
	for _, f := range c.corrections {
		s.add(f.from, f.doneBy(), num{})
	}
	for _, a := range c.blocks {
		s.add(a.from, a.doneBy(), num{})
	}
	s.sort()
	return s
}
