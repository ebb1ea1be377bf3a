package check

import (
	"cmp"
	"slices"

	"github.com/headgate/headgate/internal/testing/history"
)

// moment is something that happens to a cell at a time of the store's clock: a decision or a block, which is a call,
// or what the store says in the end.
type moment struct {
	at    int64
	call  *ask
	entry *entry // nil: a block
	state *state
}

// tracker follows the level of a cell: low is never above that of the store, high never
// below it.
type tracker struct {
	m         *model
	c         *cell
	r         *rule
	low, high level
	lowOff    bool  // nothing is known to be in use
	trusted   int64 // true time until which the store's times are in order

	unknown []*entry // by their calls: may have been charged
	begun   int      // of unknown: those that can have been
	pending num      // what they cost together, but for those that were folded
	ends    []*entry // unknown, by the time until which they can be charged
	ended   int
	late    []*fix // what was given back, by their returns
	latest  int

	charged []charged // in order of their times
	tied    bool
	spans   *spans // of charges, if the store reads its clock early

	blockSure, blockMax int64
	anyBlock            bool  // blocks may have been lifted at times that are not known
	blockOpen           int64 // true time from which blocks are not known any more
}

// charged remembers what was charged after a true time.
type charged struct {
	entry *entry
	to    int64 // the latest return of all up to this
}

// levels checks refusals, figures and the final state of a cell that one version of a limit
// with a rule that is known has decided about. It skips cells of limits with a prefetch, of which the store's
// charges are not known, of changed limits, and those of which a charge was put off for the start of another.
func (m *model) levels(c *cell) {
	rules := c.rules
	if only := c.family.only(); len(rules) == 0 && len(c.states) > 0 && only != nil {
		rules = append(rules, only)
	}
	if len(rules) != 1 || rules[0].prefetching() || c.raised() {
		for _, e := range c.entries {
			m.excused[e.ask] = true
		}
		return
	}
	t := &tracker{m: m, c: c, r: rules[0], trusted: m.setBack, blockOpen: forever, anyBlock: m.lossy(0, forever)}
	blurred := slices.ContainsFunc(c.entries, (*entry).maybe) || m.lossy(0, forever) || len(c.fixes) > 0 ||
		len(c.resets) > 0
	if m.early {
		t.spans = &spans{}
		for _, e := range c.entries {
			if e.sure() {
				t.spans.add(e.from, e.to, whole(1))
			}
		}
		t.spans.sort()
	}
	t.low, t.high = newLevel(t.r, false, blurred), newLevel(t.r, true, blurred)
	for moments := t.moments(); len(moments) > 0; {
		n := slices.IndexFunc(moments, func(mo moment) bool { return mo.at > moments[0].at })
		if n < 0 {
			n = len(moments)
		}
		t.tied = n > 1
		t.together(moments[:n])
		moments = moments[n:]
	}
}

// moments returns what is known to have happened at a time, in the order of these, and
// sorts what is not.
func (t *tracker) moments() (moments []moment) {
	m := t.m
	for _, e := range t.c.entries {
		switch {
		case e.maybe():
			t.mayBeCharged(e)
			if e.outcome() == history.Unknown && e.rule.limit.Block > 0 {
				t.blockOpen = min(t.blockOpen, e.from)
			}
		case e.hazy && e.outcome() == history.Refused:
			m.excused[e.ask] = true
			if e.rule.limit.Block > 0 {
				t.blockOpen = min(t.blockOpen, e.from)
			}
		case e.outcome() == history.Admitted || e.outcome() == history.Refused:
			if e.ret.At > 0 && !e.ret.Replayed && e.via() == history.ViaStore {
				moments = append(moments, moment{at: e.ret.At, call: e.ask, entry: e})
			} else {
				m.excused[e.ask] = m.excused[e.ask] || e.outcome() == history.Refused
			}
		}
	}
	moments = t.orders(moments)
	t.settlements()
	for i := range t.c.states {
		// Another version counts what is in use by its own rule.
		if s := &t.c.states[i]; s.Version == t.r.limit.Version {
			moments = append(moments, moment{at: s.At, state: s})
		}
	}
	moments = slices.DeleteFunc(moments, func(mo moment) bool { // their times are in no order
		if mo.call == nil || mo.call.to < t.trusted {
			return false
		}
		m.excused[mo.call] = true
		t.disordered(&mo)
		return true
	})
	slices.SortStableFunc(moments, func(a, b moment) int { return cmp.Compare(a.at, b.at) })
	slices.SortStableFunc(t.unknown, func(a, b *entry) int { return cmp.Compare(a.from, b.from) })
	slices.SortStableFunc(t.ends, func(a, b *entry) int { return cmp.Compare(a.until(), b.until()) })
	slices.SortStableFunc(t.late, func(a, b *fix) int { return cmp.Compare(a.to, b.to) })
	return moments
}

// disordered notes what happened at a time that is in no order: the call may have been done
// before others of which the times are in order.
func (t *tracker) disordered(mo *moment) {
	switch {
	case mo.call.from >= t.trusted: // after all of them
	case mo.entry != nil && mo.entry.sure():
		t.mayBeCharged(mo.entry.whole())
	case mo.entry == nil && mo.call.Verb == history.Unblock:
		t.anyBlock = true
	case mo.entry == nil, mo.entry.outcome() == history.Refused && t.r.limit.Block > 0:
		t.blockOpen = min(t.blockOpen, mo.call.from)
	}
}

func (t *tracker) mayBeCharged(e *entry) {
	t.unknown, t.ends = append(t.unknown, e), append(t.ends, e)
}

// raised reports whether some charge to the cell waits for the start of another key: then
// its level is raised by what is not known here. docs/algorithms.md, "Several limits, one start".
func (c *cell) raised() bool {
	return slices.ContainsFunc(c.entries, func(e *entry) bool {
		return e.Verb == history.Reserve && len(e.parts) > 1 && e.outcome() != history.Refused
	})
}

// orders adds blocks, and notes what is not known after those whose time is not known, and after resets.
func (t *tracker) orders(moments []moment) []moment {
	for _, a := range slices.Concat(t.c.resets, t.c.blocks) {
		switch {
		case a.outcome() == history.Nothing:
		case a.Verb == history.Reset:
			t.lowOff, t.anyBlock = true, true
		case a.outcome() == history.Done && a.ret.At > 0:
			moments = append(moments, moment{at: a.ret.At, call: a})
		case a.Verb == history.Unblock:
			t.anyBlock = true
		default:
			t.blockOpen = min(t.blockOpen, a.from)
		}
	}
	return moments
}

// settlements keeps the corrections, whose times are not known.
func (t *tracker) settlements() {
	for _, f := range t.c.fixes {
		if f.down && t.m.lossy(f.of.from, f.until()) {
			t.lowOff = true // it may give back what others were charged
		}
		switch {
		case f.outcome() == history.Done && f.ret.Replayed, f.down && (!f.amountKnown || f.spread):
		case !f.down:
			t.mayBeCharged(f.asEntry())
		default:
			t.late = append(t.late, f)
		}
	}
}

// asEntry returns a correction upwards whose time is not known, as a charge of that much.
func (f *fix) asEntry() *entry {
	c := f.of.cell
	return &entry{ask: f.ask, cell: c, rule: f.of.rule, cost: f.amount.plus(c.family.least())} // it was rounded down
}

// together applies all moments of one time, of which the order is not known: the low level
// before them, the high one after them.
func (t *tracker) together(list []moment) {
	at := list[0].at
	t.low.advance(at)
	t.high.advance(at)
	from := int64(forever)
	for i := range list {
		if a := list[i].call; a != nil {
			t.fold(a)
			from = min(from, a.from)
			if list[i].entry == nil {
				t.blockMax = max(t.blockMax, at+a.For)
			}
		}
	}
	for ; from < forever && t.latest < len(t.late) && t.late[t.latest].to < from; t.latest++ {
		t.giveBack(t.late[t.latest]) // it was over before anything of this time
	}
	before := t.low.used()
	for i := range list {
		if e := list[i].entry; e != nil && e.sure() {
			t.charge(e)
		}
	}
	after := t.high.used()
	for i := range list {
		switch mo := &list[i]; {
		case mo.entry != nil:
			t.decision(mo.entry, before, after)
		case mo.call != nil:
			t.blockSure = at + mo.call.For // it replaces an earlier one
		case mo.state != nil:
			t.final(mo.state, before, after)
		}
	}
}

// charge adds a charge that was certainly made to both levels.
func (t *tracker) charge(e *entry) {
	cost := e.cost
	if e.ret.StartAt > e.ret.At {
		// docs/project/decisions/limiter.md: a start is put off to the end of a step, and
		// the level says so.
		cost = cost.plus(t.r.rate.times(t.r.step))
	}
	if e.prevAt > 0 {
		t.high.take(e.moved, e.prevAt)
	}
	t.high.add(cost.plus(e.moved))
	if !e.lossy {
		t.low.add(atLeast(e.cost.minus(e.back), num{}))
	}
	last := charged{e, e.to}
	if n := len(t.charged); n > 0 {
		last.to = max(last.to, t.charged[n-1].to)
	}
	t.charged = append(t.charged, last)
}

// fold takes what can be said of calls that were over before this one was made: those that
// may have been charged are, not later than now.
func (t *tracker) fold(a *ask) {
	for t.begun < len(t.unknown) && t.unknown[t.begun].from <= a.to {
		t.pending = t.pending.plus(t.unknown[t.begun].cost)
		t.begun++
	}
	for t.ended < t.begun && t.ends[t.ended].until() < a.from {
		t.pending = t.pending.minus(t.ends[t.ended].cost)
		t.high.add(t.ends[t.ended].cost)
		t.ended++
	}
}

// giveBack lowers the high level by a correction that was made between its call and its
// return, which is over; but not below what can have been charged since.
func (t *tracker) giveBack(f *fix) {
	if t.m.lossy(f.of.from, f.to) {
		return
	}
	if t.r.shape == logged || t.r.shape == window || t.r.shape == sliding {
		t.high.take(f.amount, f.of.ret.At)
		return
	}
	var since num
	for i := len(t.charged) - 1; i >= 0 && t.charged[i].to >= f.from; i-- {
		if e := t.charged[i].entry; e.to >= f.from {
			since = since.plus(e.cost)
		}
	}
	for i := t.ended - 1; i >= 0; i-- {
		if t.ends[i].until() < f.from {
			break
		}
		since = since.plus(t.ends[i].cost)
	}
	used := t.high.used()
	if b, ok := t.high.(*bucket); ok {
		used = b.n // what was charged since may have the slack too
	}
	if since.less(used) {
		t.high.take(atMost(f.amount, used.minus(since)), f.of.ret.At)
	}
}

// final checks what the store says of the cell after the run: no less is in use than was
// surely charged and has not drained (recorded), and no more than can have been (settled).
func (t *tracker) final(s *state, low, high num) {
	if t.trusted < forever {
		return
	}
	for ; t.begun < len(t.unknown); t.begun++ {
		t.pending = t.pending.plus(t.unknown[t.begun].cost)
	}
	for ; t.latest < len(t.late); t.latest++ {
		t.giveBack(t.late[t.latest])
		high = t.high.used()
	}
	high = high.plus(t.pending)
	least := t.c.family.least()
	switch used := t.c.family.count(number(s.Used)); { // it may be finer than what is counted
	case used.plus(least).less(low) && !t.lowOff:
		t.m.violation("recorded", t.c, []int{s.event},
			"the store says that %s is in use, at least %s was charged and has not drained", s.Used, low)
	case high.plus(least).less(used):
		t.m.violation("settled", t.c, []int{s.event},
			"the store says that %s is in use, at most %s can have been charged", s.Used, high)
	}
}
