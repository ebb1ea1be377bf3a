package check_test

import "github.com/headgate/headgate/internal/testing/history"

// withDecision sets which version of a limit has decided (0: that of the call), and the retry-after.
func withDecision(version int, retry int64) option {
	return func(_ *history.Call, r *history.Return) {
		r.Each = []history.Figures{{Remaining: -1, RetryAfter: retry, Version: version}}
	}
}

// addOverride adds version n of limit "l", an override of key "k" that each process applies within 2 s, and returns it.
func (b *builder) addOverride(at int64, n int, l history.Limit, until int64) *history.Limit {
	l.Name, l.Version, l.Key, l.MaxApplyTime = "l", n, "k", 2*second
	if until > 0 {
		l.Until = base + until
	}
	b.addEvent(history.Event{T: at * 1000, Limit: &l})
	return &l
}

func (b *builder) addRemoval(at int64, version int) {
	b.addEvent(history.Event{T: at * 1000, Removal: &history.Removal{Limit: "l", Version: version}})
}

// tamperVersion returns a function that makes the answer to a call name another version.
func (b *builder) tamperVersion(id, version int) func() {
	return func() { b.returns[id].Each[0].Version = version }
}

var overrideCases = []tamperCase{
	{"an override that is not known yet, and one that is", "overrides", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		b.addOverride(second, 2, fixedWindow("9", day), 0)
		b.take(2*second, "1", withDecision(0, 0))
		id := b.take(4*second, "1", withDecision(2, 0))
		return b, b.tamperVersion(id, 0)
	}},
	{"an override of another key", "overrides", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		l := b.addOverride(second, 2, fixedWindow("9", day), 0)
		b.take(2*second, "1", withDecision(2, 0))
		return b, func() { l.Key = "other" }
	}},
	{"an override before it is made", "overrides", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		id := b.take(second, "1", withDecision(0, 0))
		b.addOverride(2*second, 2, fixedWindow("9", day), 0)
		return b, b.tamperVersion(id, 2)
	}},
	{"a removed override that a process still knows", "overrides", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		b.addOverride(second, 2, fixedWindow("9", day), 0)
		b.addRemoval(5*second, 2)
		b.take(6*second, "1", withDecision(2, 0))
		id := b.take(8*second, "1", withDecision(0, 0))
		return b, b.tamperVersion(id, 2)
	}},
	{"an override that another one replaces", "overrides", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		b.addOverride(second, 2, fixedWindow("9", day), 0)
		b.addOverride(5*second, 3, fixedWindow("8", day), 0)
		b.take(6*second, "1", withDecision(2, 0))
		id := b.take(8*second, "1", withDecision(3, 0))
		return b, b.tamperVersion(id, 2)
	}},
	{"the last microsecond of an override", "ends", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		b.addOverride(second, 2, fixedWindow("9", day), 5*second)
		id := b.take(5*second-1, "1", withDecision(2, 0))
		b.take(5*second, "1", withDecision(0, 0))
		return b, func() { b.returns[id].At++ }
	}},
	{"an end that comes too early", "overrides", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		b.addOverride(second, 2, fixedWindow("9", day), 5*second)
		id := b.take(5*second, "1", withDecision(0, 0))
		return b, func() { b.returns[id].At-- }
	}},
	{"a clock that was put back before an end", "overrides", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		b.addOverride(second, 2, fixedWindow("9", day), 5*second)
		f := b.addFault(6*second, history.Fault{Kind: history.Clock, By: -4 * second})
		b.take(7*second, "1", withDecision(0, 0), func(_ *history.Call, r *history.Return) { r.At -= 4 * second })
		return b, func() { f.Kind = history.Kill }
	}},
	{"a refusal beyond the end of an override", "ends", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		b.addOverride(second, 2, fixedWindow("1", day), 9*second)
		b.take(4*second, "1", withDecision(2, 0))
		id := b.take(5*second, "1", withDecision(2, 4*second), withOutcome(history.Refused))
		return b, func() { b.returns[id].Each[0].RetryAfter++ }
	}},
	{"the capacity of another definition", "figures", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		b.addOverride(second, 2, fixedWindow("9", day), 0)
		id := b.take(4*second, "1", withDecision(2, 0))
		b.returns[id].Each[0].Capacity = 9
		return b, func() { b.returns[id].Each[0].Capacity = 5 }
	}},
	{"the bound of an override while it alone decides", "bound", func() (*builder, func()) {
		b := newBuilder(fixedWindow("50", day))
		b.addOverride(second, 2, fixedWindow("3", day), 0)
		b.take(2*second, "40", withDecision(0, 0))
		b.take(4*second, "2", withDecision(2, 0))
		id := b.take(5*second, "1", withDecision(2, 0))
		return b, func() { b.calls[id].Charges[0].Cost = "2" }
	}},
	{"the bound of the limit itself after an override", "bound", func() (*builder, func()) {
		b := newBuilder(tokenBucket("1", "3"))
		b.addOverride(second, 2, tokenBucket("10", "50"), 5*second)
		b.take(4*second, "50", withDecision(2, 0))
		b.take(6*second, "3", withDecision(0, 0))
		id := b.take(7*second, "1", withDecision(0, 0))
		return b, func() { b.calls[id].Charges[0].Cost = "2" }
	}},
	{"the sum of two definitions while processes differ", "bound", func() (*builder, func()) {
		b := newBuilder(tokenBucket("1", "3"))
		b.addOverride(second, 2, tokenBucket("10", "100"), 0)
		b.addOverride(2*second, 3, tokenBucket("1", "5"), 0)
		b.take(3*second, "90", withDecision(2, 0))
		b.addRemoval(4*second, 3)
		b.take(5*second, "4", withDecision(3, 0))
		b.take(5*second+100, "2", withDecision(0, 0))
		id := b.take(5*second+200, "1", withDecision(3, 0))
		b.take(5*second+300, "1", withDecision(0, 0))
		return b, func() { b.calls[id].Charges[0].Cost = "3" }
	}},
	{"an answer that does not say which definition has refused", "repeat", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		l := b.addOverride(second, 2, fixedWindow("1", day), 0)
		b.addCall(4*second, history.Take, "2", withOutcome(history.Unknown))
		b.take(5*second, "2", withDecision(2, second), asRepeat)
		return b, func() { l.Key = "other" }
	}},
	{"a refusal that would last for longer than an override", "figures", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		l := b.addOverride(second, 2, fixedWindow("1", day), 9*second)
		b.take(4*second, "1", withDecision(2, 0))
		b.take(5*second, "1", withDecision(2, 4*second), withOutcome(history.Refused))
		b.take(6*second, "2", withDecision(2, 3*second), withOutcome(history.Refused))
		return b, func() { l.Until = 0 }
	}},
}
