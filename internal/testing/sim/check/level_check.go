package check

import (
	"cmp"
	"slices"

	"github.com/headgate/headgate/internal/testing/history"
)

// moment is an event of a cell at a time of the store's clock: a decision, a block or the final state.
type moment struct {
	at    int64
	call  *call  // for a decision or a block
	entry *entry // for a decision
	state *state // for the final state
}

// tracker follows the level of a cell. The low level is never above the store's, the high one never below it.
type tracker struct {
	m            *model
	c            *cell
	r            *rule
	low, high    level
	lowUnknown   bool  // the low level is not reliable, and counts as 0
	orderedUntil int64 // true time until which the store's times are in order

	unknown        []*entry      // entries that may have been charged, in the order of their calls
	unknownCalled  int           // how many of unknown have been called
	pending        num           // the cost of the called entries of unknown that are not in the high level
	unknownByEnd   []*entry      // unknown, in the order of the times by which they were charged
	unknownEnded   int           // how many of unknownByEnd were added to the high level
	refunds        []*correction // in the order of their returns
	refundsApplied int           // how many of refunds were applied

	charges        []sureCharge // in the order of their times
	severalMoments bool         // several moments have the present time
	spans          *spans       // the surely charged entries, if the store reads its clock early

	surelyBlockedUntil, maxBlockedUntil int64
	blockLifted                         bool  // blocks may have been lifted at times that are not known
	blockUnknown                        int64 // true time from which it is not known whether the key is blocked
}

type sureCharge struct {
	entry *entry
	to    int64 // the latest return of all charges up to this one
}

// levels checks the refusals, the figures and the final state of a cell about which one version of a limit has decided.
// It skips changed limits, limits with a prefetch, because the store's charges are not known, and cells whose level was
// raised by an unknown amount: there it excuses all calls.
func (m *model) levels(c *cell) {
	rules := c.rules
	if version := c.family.baseVersion(); len(rules) == 0 && len(c.states) > 0 && version != nil {
		rules = append(rules, version)
	}
	if len(rules) != 1 || rules[0].prefetching() || c.hasUnknownRaise() {
		for _, e := range c.entries {
			m.isExcused[e.call] = true
		}
		return
	}
	lost := m.mayBeLost(0, forever)
	t := &tracker{m: m, c: c, r: rules[0], orderedUntil: m.clockSetBackAt, blockUnknown: forever, blockLifted: lost}
	uncertain := slices.ContainsFunc(c.entries, (*entry).maybeCharged) || lost ||
		len(c.corrections) > 0 || len(c.resets) > 0
	if m.readsClockEarly {
		t.spans = &spans{}
		for _, e := range c.entries {
			if e.surelyCharged() {
				t.spans.add(e.from, e.to, numOf(1))
			}
		}
		t.spans.sort()
	}
	t.low, t.high = newLevel(t.r, false, uncertain), newLevel(t.r, true, uncertain)
	for moments := t.moments(); len(moments) > 0; {
		n := slices.IndexFunc(moments, func(mo moment) bool { return mo.at > moments[0].at })
		if n < 0 {
			n = len(moments)
		}
		t.severalMoments = n > 1
		t.applyMoments(moments[:n])
		moments = moments[n:]
	}
}

// moments returns the moments of the cell in the order of their times, and collects what has no known time.
func (t *tracker) moments() (moments []moment) {
	m := t.m
	for _, e := range t.c.entries {
		switch {
		case e.maybeCharged():
			t.addUnknown(e)
			if e.outcome() == history.Unknown && e.rule.limit.Block > 0 {
				t.blockUnknown = min(t.blockUnknown, e.from)
			}
		case e.costUnknown && e.outcome() == history.Refused:
			m.isExcused[e.call] = true
			if e.rule.limit.Block > 0 {
				t.blockUnknown = min(t.blockUnknown, e.from)
			}
		case e.outcome() == history.Admitted || e.outcome() == history.Refused:
			if e.ret.At > 0 && !e.ret.Replayed && e.via() == history.ViaStore {
				moments = append(moments, moment{at: e.ret.At, call: e.call, entry: e})
			} else {
				m.isExcused[e.call] = m.isExcused[e.call] || e.outcome() == history.Refused
			}
		}
	}
	moments = t.addBlocks(moments)
	t.collectCorrections()
	for i := range t.c.states {
		// A state that was inspected by another version counts what is in use by the rule of that version.
		if s := &t.c.states[i]; s.Version == t.r.limit.Version {
			moments = append(moments, moment{at: s.At, state: s})
		}
	}
	moments = slices.DeleteFunc(moments, func(mo moment) bool { // those whose times are in no order
		if mo.call == nil || mo.call.to < t.orderedUntil {
			return false
		}
		m.isExcused[mo.call] = true
		t.noteUntimed(&mo)
		return true
	})
	slices.SortStableFunc(moments, func(a, b moment) int { return cmp.Compare(a.at, b.at) })
	slices.SortStableFunc(t.unknown, func(a, b *entry) int { return cmp.Compare(a.from, b.from) })
	slices.SortStableFunc(t.unknownByEnd, func(a, b *entry) int { return cmp.Compare(a.doneBy(), b.doneBy()) })
	slices.SortStableFunc(t.refunds, func(a, b *correction) int { return cmp.Compare(a.to, b.to) })
	return moments
}

// noteUntimed handles a moment whose time is in no order: its call may have been done before other calls.
func (t *tracker) noteUntimed(mo *moment) {
	switch {
	case mo.call.from >= t.orderedUntil: // after all moments with a time in order
	case mo.entry != nil && mo.entry.surelyCharged():
		t.addUnknown(mo.entry.withMovedCost())
	case mo.entry == nil && mo.call.Verb == history.Unblock:
		t.blockLifted = true
	case mo.entry == nil, mo.entry.outcome() == history.Refused && t.r.limit.Block > 0:
		t.blockUnknown = min(t.blockUnknown, mo.call.from)
	}
}

func (t *tracker) addUnknown(e *entry) {
	t.unknown, t.unknownByEnd = append(t.unknown, e), append(t.unknownByEnd, e)
}

// hasUnknownRaise reports whether some charge to the cell may wait for the start of another key, which raises the level
// of the cell by an unknown amount. docs/algorithms.md, "Several limits, one start".
func (c *cell) hasUnknownRaise() bool {
	return slices.ContainsFunc(c.entries, func(e *entry) bool {
		return e.Verb == history.Reserve && len(e.entries) > 1 && e.outcome() != history.Refused
	})
}

// addBlocks adds blocks with a known time to moments, and notes what other blocks and resets leave unknown.
func (t *tracker) addBlocks(moments []moment) []moment {
	for _, a := range slices.Concat(t.c.resets, t.c.blocks) {
		switch {
		case a.outcome() == history.Nothing:
		case a.Verb == history.Reset:
			t.lowUnknown, t.blockLifted = true, true
		case a.outcome() == history.Done && a.ret.At > 0:
			moments = append(moments, moment{at: a.ret.At, call: a})
		case a.Verb == history.Unblock:
			t.blockLifted = true
		default:
			t.blockUnknown = min(t.blockUnknown, a.from)
		}
	}
	return moments
}

// collectCorrections adds the refunds with a known amount to refunds, and what was charged in addition to unknown. The
// times of corrections are not known.
func (t *tracker) collectCorrections() {
	for _, f := range t.c.corrections {
		if f.isRefund && t.m.mayBeLost(f.entry.from, f.doneBy()) {
			t.lowUnknown = true // the correction may give back what others were charged
		}
		switch {
		case f.outcome() == history.Done && f.ret.Replayed, f.isRefund && (!f.amountKnown || f.severalTimes):
		case !f.isRefund:
			c := f.entry.cell
			cost := f.amount.plus(c.family.roundingStep()) // the amount was rounded down
			t.addUnknown(&entry{call: f.call, cell: c, rule: f.entry.rule, cost: cost})
		default:
			t.refunds = append(t.refunds, f)
		}
	}
}

// applyMoments applies all moments of one time. Their order is not known, so decisions are checked with the low level
// before all of them and with the high level after all of them.
func (t *tracker) applyMoments(list []moment) {
	at := list[0].at
	t.low.advance(at)
	t.high.advance(at)
	from := int64(forever)
	for i := range list {
		if a := list[i].call; a != nil {
			t.chargeUnknown(a)
			from = min(from, a.from)
			if list[i].entry == nil {
				t.maxBlockedUntil = max(t.maxBlockedUntil, at+a.For)
			}
		}
	}
	// Apply the refunds that had returned before any call of this time.
	for from < forever && t.refundsApplied < len(t.refunds) && t.refunds[t.refundsApplied].to < from {
		t.giveBack(t.refunds[t.refundsApplied])
		t.refundsApplied++
	}
	low := t.low.used()
	for i := range list {
		if e := list[i].entry; e != nil && e.surelyCharged() {
			t.charge(e)
		}
	}
	high := t.high.used()
	for i := range list {
		switch mo := &list[i]; {
		case mo.entry != nil:
			t.checkDecision(mo.entry, low, high)
		case mo.call != nil:
			t.surelyBlockedUntil = at + mo.call.For // a block replaces an earlier one
		case mo.state != nil:
			t.checkState(mo.state, low, high)
		}
	}
}

// charge adds a sure charge to the high level, and to the low level what it surely keeps of it.
func (t *tracker) charge(e *entry) {
	cost := e.cost
	if e.ret.StartAt > e.ret.At {
		// docs/project/decisions/limiter.md: a start is put off to the end of a step, and the level includes that.
		cost = cost.plus(t.r.rate.times(t.r.step))
	}
	if e.movedAt > 0 {
		t.high.refund(e.movedCost, e.movedAt)
	}
	t.high.add(cost.plus(e.movedCost))
	if !e.mayBeLost {
		t.low.add(maxNum(e.cost.minus(e.maxRefund), num{}))
	}
	latest := sureCharge{e, e.to}
	if n := len(t.charges); n > 0 {
		latest.to = max(latest.to, t.charges[n-1].to)
	}
	t.charges = append(t.charges, latest)
}

// chargeUnknown adds to pending the unknown entries that were called before a call returned, and moves those that were
// done before it began, if they were, from pending to the high level.
func (t *tracker) chargeUnknown(a *call) {
	for t.unknownCalled < len(t.unknown) && t.unknown[t.unknownCalled].from <= a.to {
		t.pending = t.pending.plus(t.unknown[t.unknownCalled].cost)
		t.unknownCalled++
	}
	for t.unknownEnded < t.unknownCalled && t.unknownByEnd[t.unknownEnded].doneBy() < a.from {
		t.pending = t.pending.minus(t.unknownByEnd[t.unknownEnded].cost)
		t.high.add(t.unknownByEnd[t.unknownEnded].cost)
		t.unknownEnded++
	}
}

// giveBack lowers the high level by a refund that has returned, unless a fail-over may have lost it. A level that does
// not know what was charged when does not fall below what can have been charged since the call of the refund.
func (t *tracker) giveBack(f *correction) {
	if t.m.mayBeLost(f.entry.from, f.to) {
		return
	}
	if t.r.shape == logShape || t.r.shape == windowShape || t.r.shape == slidingShape {
		t.high.refund(f.amount, f.entry.ret.At)
		return
	}
	var chargedSince num
	for i := len(t.charges) - 1; i >= 0 && t.charges[i].to >= f.from; i-- {
		if e := t.charges[i].entry; e.to >= f.from {
			chargedSince = chargedSince.plus(e.cost)
		}
	}
	for i := t.unknownEnded - 1; i >= 0; i-- {
		if t.unknownByEnd[i].doneBy() < f.from {
			break
		}
		chargedSince = chargedSince.plus(t.unknownByEnd[i].cost)
	}
	used := t.high.used()
	if b, ok := t.high.(*bucket); ok {
		used = b.n // the slack may be part of what was charged since
	}
	if chargedSince.less(used) {
		t.high.refund(minNum(f.amount, used.minus(chargedSince)), f.entry.ret.At)
	}
}

// checkState checks the final state of the cell: no less is in use than was surely charged and has not drained
// (recorded), and no more than can have been charged (settled).
func (t *tracker) checkState(s *state, low, high num) {
	if t.orderedUntil < forever {
		return
	}
	for ; t.unknownCalled < len(t.unknown); t.unknownCalled++ {
		t.pending = t.pending.plus(t.unknown[t.unknownCalled].cost)
	}
	for ; t.refundsApplied < len(t.refunds); t.refundsApplied++ {
		t.giveBack(t.refunds[t.refundsApplied])
		high = t.high.used()
	}
	high = high.plus(t.pending)
	step := t.c.family.roundingStep()
	switch used := t.c.family.count(parseRat(s.Used)); {
	case used.plus(step).less(low) && !t.lowUnknown:
		t.m.report("recorded", t.c, []int{s.event},
			"the store says that %s is in use, at least %s was charged and has not drained", s.Used, low)
	case high.plus(step).less(used):
		t.m.report("settled", t.c, []int{s.event},
			"the store says that %s is in use, at most %s can have been charged", s.Used, high)
	}
}
