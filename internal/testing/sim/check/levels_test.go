package check_test

import "github.com/headgate/headgate/internal/testing/history"

var levelCases = []tamperCase{
	{"a refusal that charged", "settled", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		b.take(1, "2")
		b.take(2, "4", withRefusal(day-2))
		s := b.addState(3, "2")
		return b, func() { s.Used = "6" }
	}},
	{"refused although it fits", "refusal", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		b.take(1, "3")
		id := b.take(2, "2.5", withRefusal(day-2))
		return b, func() { b.calls[id].Charges[0].Cost = "2" }
	}},
	{"an unknown outcome that excuses no more", "refusal", func() (*builder, func()) {
		b := newBuilder(tokenBucket("1", "5"))
		b.take(1, "3", withOutcome(history.Unknown), func(_ *history.Call, r *history.Return) { r.At, r.Until = 0, 2000 })
		b.take(10, "1")
		id := b.take(11, "2", withRefusal(second))
		return b, func() { b.postpone(id, 4*second) }
	}},
	{"a refusal that blocks nobody", "refusal", func() (*builder, func()) {
		l := tokenBucket("1", "1")
		l.Block = hour
		b := newBuilder(l)
		b.take(1, "1")
		b.take(2, "1", withRefusal(hour))
		b.take(2*second, "1", withRefusal(hour-2*second+2))
		return b, func() { b.h.Events[0].Limit.Block = 0 }
	}},
	{"a block that is over", "refusal", func() (*builder, func()) {
		b := newBuilder(tokenBucket("1", "1"))
		id := b.addCall(1, history.Block, "", withOutcome(history.Done),
			func(c *history.Call, _ *history.Return) { c.For = hour })
		b.take(hour, "1", withRefusal(1))
		return b, func() { b.calls[id].For = hour - 1 }
	}},
	{"admitted while blocked", "blocks", func() (*builder, func()) {
		b := newBuilder(tokenBucket("1", "5"))
		id := b.addCall(1, history.Block, "", withOutcome(history.Done),
			func(c *history.Call, _ *history.Return) { c.For = hour })
		b.take(1+hour, "1")
		return b, func() { b.calls[id].For++ }
	}},
	{"admitted while a refusal blocks", "blocks", func() (*builder, func()) {
		l := tokenBucket("1", "1")
		l.Block = hour
		b := newBuilder(l)
		b.take(1, "1")
		b.take(2, "1", withRefusal(hour))
		id := b.take(2+hour, "1")
		return b, func() { b.postpone(id, -1) }
	}},
	{"a charge whose answer arrives after the clock was set back", "figures", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		first := b.take(1, "2")
		id := b.take(2, "1", withRemaining(2))
		b.addFault(3, history.Fault{Kind: history.Clock, By: -second})
		b.returnAt(first, 4)
		return b, func() { b.returns[id].Each[0].Remaining = 1 }
	}},
	{"a check that fits no more", "refusal", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		b.take(1, "3")
		id := b.addCall(2, history.Check, "2")
		return b, func() { b.calls[id].Charges[0].Cost = "3" }
	}},
	{"two charges of which both fit", "refusal", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		b.take(1, "3")
		id := b.take(2, "3", withCharge("l", "other", "5"), withOutcome(history.Refused))
		return b, func() { b.calls[id].Charges[0].Cost = "2" }
	}},
	{"two charges, refused and one charged", "settled", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		b.take(1, "3")
		b.take(2, "3", withCharge("l", "other", "5"), withOutcome(history.Refused))
		b.addState(3, "3")
		s := b.addState(3, "0", forKey("other"))
		return b, func() { s.Used = "5" }
	}},
	{"a cancellation not given back", "settled", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		id := b.take(1, "3")
		b.take(2, "1")
		b.addFollowUp(3, history.Cancel, id, withCorrected("3"))
		s := b.addState(4, "1")
		return b, func() { s.Used = "4" }
	}},
	{"an unknown outcome and more", "settled", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		b.take(1, "3")
		b.take(2, "1", withOutcome(history.Unknown), func(_ *history.Call, r *history.Return) { r.At = 0 })
		s := b.addState(4, "4")
		return b, func() { s.Used = "4.5" }
	}},
	{"an admission missing in the state", "recorded", func() (*builder, func()) {
		b := newBuilder(tokenBucket("1", "5"))
		b.take(1, "3")
		b.take(2, "1")
		s := b.addState(1+second, "3.000000")
		return b, func() { s.Used = "2" }
	}},
	{"remaining, one too many", "figures", func() (*builder, func()) {
		b := newBuilder(tokenBucket("1", "5"))
		b.take(1, "1.5", withRemaining(3))
		id := b.take(2, "1", withRemaining(2))
		return b, func() { b.returns[id].Each[0].Remaining = 3 }
	}},
	{"remaining, one too few", "figures", func() (*builder, func()) {
		b := newBuilder(history.Limit{Algorithm: history.SlidingWindow, Amount: "100", Period: second})
		b.take(1, "100", withRemaining(0))
		id := b.take(second*3/2, "10", withRemaining(40))
		return b, func() { b.returns[id].Each[0].Remaining = 38 }
	}},
	{"another capacity", "figures", func() (*builder, func()) {
		b := newBuilder(tokenBucket("1", "5"))
		b.take(1, "1", func(_ *history.Call, r *history.Return) {
			r.Each = []history.Figures{{Remaining: 4, Capacity: 5}}
		})
		return b, func() { b.returns[1].Each[0].Capacity = 6 }
	}},
	{"a retry-after that is too short", "figures", func() (*builder, func()) {
		b := newBuilder(tokenBucket("1", "5"))
		b.take(1, "5", withRemaining(0))
		id := b.take(2, "2", withRefusal(2*second-1))
		return b, func() { b.returns[id].Each[0].RetryAfter-- }
	}},
	{"never, although it will", "figures", func() (*builder, func()) {
		b := newBuilder(tokenBucket("1", "5"))
		b.take(1, "5", withRemaining(0))
		id := b.take(2, "6", withRefusal(-1))
		return b, func() { b.calls[id].Charges[0].Cost = "5" }
	}},
}
