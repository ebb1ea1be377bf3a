package check

import (
	"math"

	"github.com/headgate/headgate/internal/testing/history"
)

// checkDecision checks one decision of the store. At least low is in use without the charges of the same time, and at
// most high with them.
func (t *tracker) checkDecision(e *entry, low, high num) {
	if t.m.readsClockEarly && e.crowded(t.spans) {
		t.m.isExcused[e.call] = true
		return
	}
	switch {
	case e.outcome() == history.Admitted:
		if e.ret.At < t.surelyBlockedUntil && !t.severalMoments && !t.blockLifted {
			t.m.report("blocks", t.c, e.events, "admitted at %d, while the key is blocked until %d",
				e.ret.At, t.surelyBlockedUntil)
		}
		if e.headroom.positive() && e.surelyCharged() && len(e.Charges) == 1 && !t.lowUnknown &&
			low.plus(e.cost).plus(e.headroom).exceeds(t.r.capacity) {
			t.m.report("headroom", t.c, e.events, "admitted at %d with %s in use: it was to leave %s",
				e.ret.At, low, e.Charges[0].Keep)
		}
	case t.isJustified(e, high):
		t.m.isExcused[e.call] = true
	}
	t.checkFigures(e, low, high)
}

// isJustified reports whether the level or a block justifies a refusal, and records the block that the refusal may set.
func (t *tracker) isJustified(e *entry, high num) bool {
	at, capacity := e.ret.At, t.r.capacity
	ceiling := capacity // the level up to which charges are admitted
	if e.Verb == history.Reserve && e.Wait > 0 && t.r.shape == bucketShape && len(e.Charges) == 1 &&
		!e.headroom.positive() {
		ceiling = capacity.plus(t.r.rate.times(e.Wait / t.r.step * t.r.step))
	}
	if !e.need().exceeds(capacity) && !high.plus(t.pending).plus(e.need()).exceeds(ceiling) {
		return t.maybeBlocked(e)
	}
	block := t.r.limit.Block
	if block == 0 || !e.blocks(capacity) || e.Verb == history.Check || e.Wait > 0 ||
		at < t.surelyBlockedUntil && !t.blockLifted {
		return true
	}
	if at >= t.maxBlockedUntil && e.to < t.blockUnknown && e.Verb == history.Take && len(e.Charges) == 1 {
		t.surelyBlockedUntil = at + block // only the level can have refused it
	}
	t.maxBlockedUntil = max(t.maxBlockedUntil, at+block)
	return true
}

// maybeBlocked reports whether the key may have been blocked when an entry was decided, also by another refusal at the
// same time.
func (t *tracker) maybeBlocked(e *entry) bool {
	return e.ret.At < t.maxBlockedUntil || e.to >= t.blockUnknown || t.severalMoments && t.r.limit.Block > 0
}

func (t *tracker) checkFigures(e *entry, low, high num) {
	f, ok := e.figures()
	if !ok || len(e.Charges) != 1 || e.costUnknown {
		return
	}
	c, capacity := t.c, t.r.capacity
	if t.lowUnknown {
		low = num{}
	}
	if e.surelyCharged() {
		low = low.plus(e.cost)
	}
	high = high.plus(t.pending)
	minRemaining, maxRemaining := c.family.units(capacity.minus(high)), c.family.units(capacity.minus(low))
	if t.maybeBlocked(e) && f.Remaining == 0 {
		minRemaining = 0
	}
	if f.Remaining >= 0 && (f.Remaining > maxRemaining || f.Remaining < minRemaining) {
		t.m.report("figures", c, e.events, "%d remaining, by the level %d to %d",
			f.Remaining, minRemaining, maxRemaining)
	}
	if units := c.family.units(capacity); f.Capacity > 0 && f.Capacity != units {
		t.m.report("figures", c, e.events, "the capacity is %d, not %d", units, f.Capacity)
	}
	if e.outcome() == history.Refused {
		t.checkRetryAfter(e, f, low)
	}
}

// checkRetryAfter checks that the retry-after of a refusal is "never" if, and only if, the charge exceeds the capacity,
// and is otherwise no shorter than the low level needs to drain.
func (t *tracker) checkRetryAfter(e *entry, f history.Figures, low num) {
	need := e.cost.plus(e.headroom)
	never := need.exceeds(t.r.capacity)
	switch end := t.r.end(); {
	case end > 0 && f.RetryAfter >= 0 && e.ret.At+f.RetryAfter >= end: // then another version decides
	case e.headroom.positive() && never != e.need().exceeds(t.r.capacity): // the headroom may be rounded
	case never != (f.RetryAfter < 0):
		t.m.report("figures", t.c, e.events, "a cost of %s, retry-after %d", e.Charges[0].Cost, f.RetryAfter)
	case never || t.severalMoments || e.Wait > 0 || e.Verb == history.Reserve:
	case t.r.shape == bucketShape:
		excess := low.plus(need).minus(t.r.capacity)
		if f.RetryAfter < math.MaxInt32*1000 && excess.exceeds(t.r.rate.times(f.RetryAfter)) { // else it may wrap
			t.m.report("figures", t.c, e.events, "after %d us it does not fit yet", f.RetryAfter)
		}
	case low.plus(need).exceeds(t.r.capacity) && t.r.shape == windowShape:
		if _, end := t.r.window(e.ret.At); e.ret.At+f.RetryAfter < end {
			t.m.report("figures", t.c, e.events, "after %d us the window is not over", f.RetryAfter)
		}
	}
}

// refusals reports the refusals that nothing excuses.
func (m *model) refusals() {
	for _, a := range m.calls {
		if hasDecision(a.Verb) && a.outcome() == history.Refused && a.via() != history.ViaRepeat && !m.isExcused[a] {
			m.report("refusal", a.entries[0].cell, a.events,
				"refused at %d, although the cost fits on all that can have been charged", a.ret.At)
		}
	}
}

// checkRemaining checks that no more is said to remain than can pass at once.
func (m *model) checkRemaining(a *call) {
	for i := range min(len(a.Charges), len(a.ret.Each)) {
		if f := a.ret.Each[i]; f.Capacity > 0 && f.Remaining > f.Capacity {
			m.report("figures", nil, a.events, "%s %q: %d of %d remain",
				a.Charges[i].Limit, a.Charges[i].Key, f.Remaining, f.Capacity)
		}
	}
}

// blocks reports whether a refusal of the entry can block the key. A charge that can never pass does not block it, nor
// does one with headroom.
func (e *entry) blocks(capacity num) bool {
	if e.Verb == history.Extend { // an extension needs less than its total
		return e.Charges[e.chargeIndex].Keep == ""
	}
	for i, c := range e.Charges {
		if i >= e.chargeIndex && c.Keep == "" && e.cell.matches(c) && !e.cell.family.costs[c.Cost].exceeds(capacity) {
			return true
		}
	}
	return false
}

// crowded reports whether the call of an entry overlapped with that of another sure charge to the cell. If the store
// reads its clock early (history.EarlyClock), their times do not say which came first.
func (e *entry) crowded(charges *spans) bool {
	overlaps := charges.sumDuring(e.from+1, e.to-1)
	if e.surelyCharged() {
		overlaps = overlaps.minus(numOf(1)) // the entry itself
	}
	return overlaps.positive()
}
