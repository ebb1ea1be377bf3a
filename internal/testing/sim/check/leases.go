package check

import (
	"cmp"
	"slices"

	"github.com/headgate/headgate/internal/testing/history"
)

// lease is a lease that was acquired, or may have been. It is surely held from the return of its call until sureUntil,
// and perhaps from the call until maybeUntil, in true time.
type lease struct {
	*entry
	sureUntil  int64
	maybeUntil int64
}

// leases checks a concurrency limit. docs/algorithms.md, "Concurrency": a lease that is not renewed ends a ttl after
// its decision, which lies between the call and the return.
func (m *model) leases(c *cell) {
	var list []*lease
	byID := map[int]*lease{}
	var maxHeld num
	for _, r := range c.rules {
		maxHeld = maxNum(maxHeld, r.capacity)
	}
	for _, e := range c.entries {
		if e.Verb == history.Check || e.outcome() != history.Admitted && e.outcome() != history.Unknown {
			continue
		}
		l := &lease{entry: e, sureUntil: e.from + m.minDuration(e.rule.limit.TTL*1000), maybeUntil: forever}
		if !e.AutoRenew {
			l.maybeUntil = m.maxHeldUntil(e.call, e.rule.limit.TTL*1000)
		}
		list, byID[e.ID] = append(list, l), l
	}
	m.renewals(c, byID)
	m.checkHeld(c, list, maxHeld)
	m.excuseRefusals(c, list)
}

// minDuration and maxDuration return the minimum and the maximum of true time, in nanoseconds, that a duration by a
// drifting clock of the store takes.
func (m *model) minDuration(d int64) int64 { return d - d/1_000_000*m.drift - m.drift }
func (m *model) maxDuration(d int64) int64 { return d + d/1_000_000*m.drift*2 + m.drift + 1000 }

// maxHeldUntil returns the latest true time at which a lease may be held that a call has acquired or renewed.
func (m *model) maxHeldUntil(a *call, ttl int64) int64 {
	if u := a.doneBy(); u < forever-2*ttl {
		return u + m.maxDuration(ttl)
	}
	return forever
}

// renewals applies renewals, releases and disturbances to the leases of a cell, and reports renewals after the end.
func (m *model) renewals(c *cell, byID map[int]*lease) {
	for _, a := range c.leases {
		l := byID[a.Of]
		if l == nil || a.outcome() == history.Nothing {
			continue
		}
		ttl := l.rule.limit.TTL * 1000
		switch outcome := a.outcome(); {
		case a.Verb == history.Release || outcome == history.Refused: // the lease ends, or had ended
			if l.sureUntil = min(l.sureUntil, a.from); l.AutoRenew && outcome == history.Done {
				l.sureUntil = a.from
			}
			if outcome != history.Unknown && !m.mayBeLost(a.from, a.to) { // else a fail-over may have forgotten it
				l.maybeUntil = min(l.maybeUntil, a.to)
			}
		case outcome == history.Done:
			if a.from > l.maybeUntil && m.clockSetBackAt == forever {
				m.report("leases", c, slices.Concat(l.events, a.events), "a lease was renewed %d ns after its end",
					a.from-l.maybeUntil)
			}
			l.sureUntil = max(l.sureUntil, a.from+m.minDuration(ttl))
			l.maybeUntil = max(l.maybeUntil, m.maxHeldUntil(a, ttl))
		default: // not known
			l.maybeUntil = m.maxHeldUntil(a, ttl)
		}
	}
	m.applyDisturbances(c, byID)
}

// applyDisturbances applies the faults, resets and changes that can end a lease early or prolong it.
func (m *model) applyDisturbances(c *cell, byID map[int]*lease) {
	for _, l := range byID {
		for _, f := range m.faults {
			switch {
			case f.t < l.from:
			case f.Kind == history.Clock && f.By > 0, f.Kind == history.Forget:
				l.sureUntil = min(l.sureUntil, f.firstEffect())
			case f.Kind == history.Clock:
				l.maybeUntil = forever
			}
		}
		for _, o := range c.resets {
			if o.doneBy() >= l.from {
				l.sureUntil = min(l.sureUntil, o.from)
			}
		}
		if len(c.rules) > 1 { // a change of the limit counts leases as one entry
			l.sureUntil, l.maybeUntil = min(l.sureUntil, l.to), forever
		}
	}
}

// checkHeld checks that never more is surely held than the limit allows.
func (m *model) checkHeld(c *cell, list []*lease, maxHeld num) {
	sureLeases := slices.DeleteFunc(slices.Clone(list), func(l *lease) bool {
		return l.outcome() != history.Admitted || l.ret.Replayed || l.to >= l.sureUntil
	})
	slices.SortStableFunc(sureLeases, func(a, b *lease) int { return cmp.Compare(a.to, b.to) })
	var holds spans
	for _, l := range sureLeases {
		holds.add(l.to, l.sureUntil-1, l.cost)
	}
	holds.sort()
	for _, l := range sureLeases {
		if sum := holds.sumDuring(l.to, l.to); sum.exceeds(maxHeld) {
			m.report("leases", c, l.events, "leases of %s are held at %d ns, where %s may be", sum, l.to, maxHeld)
			return
		}
	}
}

// excuseRefusals excuses refusals that may be due to the leases held then, to a block or to a change of the limit.
func (m *model) excuseRefusals(c *cell, list []*lease) {
	var holds spans
	for _, l := range list {
		holds.add(l.from, l.maybeUntil, l.cost)
	}
	holds.sort()
	blocks := slices.ContainsFunc(c.blocks, func(o *call) bool { return o.Verb == history.Block })
	for _, e := range c.entries {
		if e.outcome() == history.Refused && (holds.sumDuring(e.from, e.to).plus(e.need()).exceeds(e.rule.capacity) ||
			blocks || len(c.rules) > 1 || e.rule.limit.Block > 0) {
			m.isExcused[e.call] = true
		}
	}
}
