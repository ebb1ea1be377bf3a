package check

import (
	"math"

	"github.com/headgate/headgate/internal/testing/history"
)

// checkDecision checks one decision of the store. At least before is in use without what was decided at the same time,
// and at most after with it.
func (t *tracker) checkDecision(e *entry, before, after num) {
	if t.m.early && e.crowded(t.spans) {
		t.m.excused[e.call] = true
		return
	}
	switch {
	case e.outcome() == history.Admitted:
		if e.ret.At < t.blockSure && !t.tied && !t.blockLifted {
			t.m.report("blocks", t.c, e.events, "admitted at %d, while the key is blocked until %d",
				e.ret.At, t.blockSure)
		}
		if e.headroom.positive() && e.surelyCharged() && len(e.Charges) == 1 && !t.lowUnknown &&
			before.plus(e.cost).plus(e.headroom).more(t.r.capacity) {
			t.m.report("headroom", t.c, e.events, "admitted at %d with %s in use: it was to leave %s",
				e.ret.At, before, e.Charges[0].Keep)
		}
	case t.justified(e, after):
		t.m.excused[e.call] = true
	}
	t.checkFigures(e, before, after)
}

// justified reports whether the level or a block justifies a refusal, and notes the block that the refusal may set.
func (t *tracker) justified(e *entry, after num) bool {
	at, capacity := e.ret.At, t.r.capacity
	ceiling := capacity // with a wait, charges are admitted up to it
	if e.Verb == history.Reserve && e.Wait > 0 && t.r.shape == rated && len(e.Charges) == 1 && !e.headroom.positive() {
		ceiling = capacity.plus(t.r.rate.times(e.Wait / t.r.step * t.r.step))
	}
	if !e.need().more(capacity) && !after.plus(t.pending).plus(e.need()).more(ceiling) {
		return t.maybeBlocked(e)
	}
	block := t.r.limit.Block
	if block == 0 || !e.blocks(capacity) || e.Verb == history.Check || e.Wait > 0 ||
		at < t.blockSure && !t.blockLifted {
		return true
	}
	if at >= t.blockMax && e.to < t.blockUnknown && e.Verb == history.Take && len(e.Charges) == 1 {
		t.blockSure = at + block // only the level can have refused it
	}
	t.blockMax = max(t.blockMax, at+block)
	return true
}

// maybeBlocked reports whether the key may have been blocked when an entry was decided, also by another refusal at the
// same time.
func (t *tracker) maybeBlocked(e *entry) bool {
	return e.ret.At < t.blockMax || e.to >= t.blockUnknown || t.tied && t.r.limit.Block > 0
}

// checkFigures checks the figures in the answer about an entry.
func (t *tracker) checkFigures(e *entry, before, after num) {
	f, ok := e.figures()
	if !ok || len(e.Charges) != 1 || e.costUnknown {
		return
	}
	c, capacity := t.c, t.r.capacity
	low := before
	if t.lowUnknown {
		low = num{}
	}
	if e.surelyCharged() {
		low = low.plus(e.cost)
	}
	high := after.plus(t.pending)
	least, largest := c.family.units(capacity.minus(high)), c.family.units(capacity.minus(low))
	if t.maybeBlocked(e) && f.Remaining == 0 {
		least = 0
	}
	if f.Remaining >= 0 && (f.Remaining > largest || f.Remaining < least) {
		t.m.report("figures", c, e.events, "%d remaining, by the level %d to %d", f.Remaining, least, largest)
	}
	if units := c.family.units(capacity); f.Capacity > 0 && f.Capacity != units {
		t.m.report("figures", c, e.events, "the capacity is %d, not %d", units, f.Capacity)
	}
	if e.outcome() == history.Refused {
		t.checkRetryAfter(e, f, low)
	}
}

// checkRetryAfter checks that the retry-after of a refusal is no shorter than the low level needs to drain.
func (t *tracker) checkRetryAfter(e *entry, f history.Figures, low num) {
	need := e.cost.plus(e.headroom)
	never := need.more(t.r.capacity)
	switch end := t.r.end(); {
	case end > 0 && f.RetryAfter >= 0 && e.ret.At+f.RetryAfter >= end: // then another version decides
	case e.headroom.positive() && never != e.need().more(t.r.capacity): // the headroom may be rounded
	case never != (f.RetryAfter < 0):
		t.m.report("figures", t.c, e.events, "a cost of %s, retry-after %d", e.Charges[0].Cost, f.RetryAfter)
	case never || t.tied || e.Wait > 0 || e.Verb == history.Reserve:
	case t.r.shape == rated:
		over := low.plus(need).minus(t.r.capacity)
		if f.RetryAfter < math.MaxInt32*1000 && over.more(t.r.rate.times(f.RetryAfter)) {
			t.m.report("figures", t.c, e.events, "after %d us it does not fit yet", f.RetryAfter)
		}
	case low.plus(need).more(t.r.capacity) && t.r.shape == window:
		if _, end := t.r.window(e.ret.At); e.ret.At+f.RetryAfter < end {
			t.m.report("figures", t.c, e.events, "after %d us the window is not over", f.RetryAfter)
		}
	}
}

// refusals reports the refusals that nothing excuses.
func (m *model) refusals() {
	for _, a := range m.calls {
		if hasDecision(a.Verb) && a.outcome() == history.Refused && a.via() != history.ViaRepeat && !m.excused[a] {
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

// blocks reports whether a refusal of the entry can block the key. A charge that can never pass does not block it.
func (e *entry) blocks(capacity num) bool {
	if e.Verb == history.Extend { // an extension needs less than its total
		return e.Charges[e.chargeIndex].Keep == ""
	}
	for i, c := range e.Charges {
		if i >= e.chargeIndex && c.Keep == "" && e.cell.matches(c) && !e.cell.family.costs[c.Cost].more(capacity) {
			return true
		}
	}
	return false
}

// crowded reports whether the call of an entry overlapped with the call of another charge to the cell. If the store
// reads its clock early (history.Early), their times do not say which came first.
func (e *entry) crowded(charges *spans) bool {
	overlaps := charges.during(e.from+1, e.to-1)
	if e.surelyCharged() {
		overlaps = overlaps.minus(intNum(1)) // the entry itself
	}
	return overlaps.positive()
}
