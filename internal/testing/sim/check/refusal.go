package check

import (
	"math"

	"github.com/headgate/headgate/internal/testing/history"
)

// decision checks one decision of the store: with before in use without what was decided
// at the same time, and after with it.
func (t *tracker) decision(e *entry, before, after num) {
	if t.m.early && e.crowded(t.spans) {
		t.m.excused[e.ask] = true
		return
	}
	switch {
	case e.outcome() == history.Admitted:
		if e.ret.At < t.blockSure && !t.tied && !t.anyBlock {
			t.m.violation("blocks", t.c, e.events, "admitted at %d, while the key is blocked until %d",
				e.ret.At, t.blockSure)
		}
		if e.keep.positive() && e.sure() && len(e.Charges) == 1 && !t.lowOff &&
			before.plus(e.cost).plus(e.keep).more(t.r.most) {
			t.m.violation("headroom", t.c, e.events, "admitted at %d with %s in use: it was to leave %s",
				e.ret.At, before, e.Charges[0].Keep)
		}
	case t.justified(e, after):
		t.m.excused[e.ask] = true
	}
	t.figures(e, before, after)
}

// justified reports whether a refusal is: by the level, or by a block, and notes the block
// that it may have set.
func (t *tracker) justified(e *entry, after num) bool {
	at, most := e.ret.At, t.r.most
	full := most
	// later starts are given up to then
	if e.Verb == history.Reserve && e.Wait > 0 && t.r.shape == rated && len(e.Charges) == 1 && !e.keep.positive() {
		full = most.plus(t.r.rate.times(e.Wait / t.r.step * t.r.step))
	}
	if !e.need().more(most) && !after.plus(t.pending).plus(e.need()).more(full) {
		return t.blocked(e)
	}
	block := t.r.limit.Block
	if block == 0 || !e.blocks(most) || e.Verb == history.Check || e.Wait > 0 || at < t.blockSure && !t.anyBlock {
		return true
	}
	if at >= t.blockMax && e.to < t.blockOpen && e.Verb == history.Take && len(e.Charges) == 1 {
		t.blockSure = at + block // nothing but the level can have refused it
	}
	t.blockMax = max(t.blockMax, at+block)
	return true
}

// blocked reports whether the key may have been blocked when it was decided about an entry:
// also by another one of the same time.
func (t *tracker) blocked(e *entry) bool {
	return e.ret.At < t.blockMax || e.to >= t.blockOpen || t.tied && t.r.limit.Block > 0
}

func (t *tracker) figures(e *entry, before, after num) {
	f, ok := e.figures()
	if !ok || len(e.Charges) != 1 || e.hazy {
		return
	}
	c, most := t.c, t.r.most
	low := before
	if t.lowOff {
		low = num{}
	}
	if e.sure() {
		low = low.plus(e.cost)
	}
	high := after.plus(t.pending)
	least, largest := c.family.units(most.minus(high)), c.family.units(most.minus(low))
	if t.blocked(e) && f.Remaining == 0 {
		least = 0
	}
	if f.Remaining >= 0 && (f.Remaining > largest || f.Remaining < least) {
		t.m.violation("figures", c, e.events, "%d remaining, by the level %d to %d", f.Remaining, least, largest)
	}
	if whole := c.family.units(most); f.Capacity > 0 && f.Capacity != whole {
		t.m.violation("figures", c, e.events, "the capacity is %d, not %d", whole, f.Capacity)
	}
	if e.outcome() == history.Refused {
		t.retry(e, f, low)
	}
}

// retry checks that waiting for the retry-after suffices: that it is no less than the
// lowest level needs.
func (t *tracker) retry(e *entry, f history.Figures, low num) {
	least := e.cost.plus(e.keep) // what has to be free
	never := least.more(t.r.most)
	switch end := t.r.end(); {
	case end > 0 && f.RetryAfter >= 0 && e.ret.At+f.RetryAfter >= end: // then another definition decides
	case e.keep.positive() && never != e.need().more(t.r.most): // by the rounding of the headroom
	case never != (f.RetryAfter < 0):
		t.m.violation("figures", t.c, e.events, "a cost of %s, retry-after %d", e.Charges[0].Cost, f.RetryAfter)
	case never || t.tied || e.Wait > 0 || e.Verb == history.Reserve:
	case t.r.shape == rated:
		over := low.plus(least).minus(t.r.most)
		if f.RetryAfter < math.MaxInt32*1000 && over.more(t.r.rate.times(f.RetryAfter)) {
			t.m.violation("figures", t.c, e.events, "after %d us it does not fit yet", f.RetryAfter)
		}
	case low.plus(least).more(t.r.most) && t.r.shape == window:
		if _, end := t.r.window(e.ret.At); e.ret.At+f.RetryAfter < end {
			t.m.violation("figures", t.c, e.events, "after %d us the window is not over", f.RetryAfter)
		}
	}
}

func (m *model) refusals() {
	for _, a := range m.order {
		if asks(a.Verb) && a.outcome() == history.Refused && a.via() != history.ViaRepeat && !m.excused[a] {
			m.violation("refusal", a.parts[0].cell, a.events,
				"refused at %d, although the cost fits on all that can have been charged", a.ret.At)
		}
	}
}

// fits checks that no more is said to remain than can pass at once.
func (m *model) fits(a *ask) {
	for i := range min(len(a.Charges), len(a.ret.Each)) {
		if f := a.ret.Each[i]; f.Capacity > 0 && f.Remaining > f.Capacity {
			m.violation("figures", nil, a.events, "%s %q: %d of %d remain",
				a.Charges[i].Limit, a.Charges[i].Key, f.Remaining, f.Capacity)
		}
	}
}

// blocks reports whether the refusal of one of its charges can block the key: not of one
// that can never pass.
func (e *entry) blocks(most num) bool {
	if e.Verb == history.Extend { // it needs less than it costs in all
		return e.Charges[e.place].Keep == ""
	}
	for i, c := range e.Charges {
		if i >= e.place && c.Keep == "" && e.cell.is(c) && !e.cell.family.costs[c.Cost].more(most) {
			return true
		}
	}
	return false
}

// crowded reports whether the call of an entry was under way together with that of another charge to the cell,
// of which these are the spans: of a store that reads its clock early (history.Early) their times do not say who came
// first.
func (e *entry) crowded(charges *spans) bool {
	together := charges.during(e.from+1, e.to-1)
	if e.sure() {
		together = together.minus(whole(1)) // itself
	}
	return together.positive()
}
