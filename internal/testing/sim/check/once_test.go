package check_test

import "github.com/headgate/headgate/internal/testing/history"

// repeatCases are about refusals that a node repeats without the store.
var repeatCases = []tamperCase{
	{"repeated for less", "repeat", func() (*builder, func()) {
		b := newBuilder(tokenBucket("1", "5"))
		b.take(1, "4")
		b.take(2, "3", withRefusal(2*second))
		id := b.take(3, "3", asRepeat)
		return b, func() { b.calls[id].Charges[0].Cost = "2" }
	}},
	{"repeated too late", "repeat", func() (*builder, func()) {
		b := newBuilder(tokenBucket("10", "5"))
		b.take(1, "5")
		b.take(2, "1", withRefusal(second/10-1))
		id := b.take(second/10, "1", asRepeat)
		return b, func() { b.postpone(id, 10) }
	}},
	{"repeated by another node", "repeat", func() (*builder, func()) {
		b := newBuilder(tokenBucket("1", "5"))
		b.take(1, "4")
		b.take(2, "3", withRefusal(2*second))
		b.take(3, "3", asRepeat)
		return b, func() { b.h.Events[5].Node, b.h.Events[6].Node = "b", "b" }
	}},
	{"repeated from another definition", "repeat", func() (*builder, func()) {
		secondVersion := fixedWindow("5", day)
		secondVersion.Version = 2
		b := newBuilder(fixedWindow("5", day), secondVersion)
		b.take(1, "4")
		b.take(2, "3", withRefusal(day-2))
		b.take(3, "3", withVersion(2), asRepeat)
		return b, func() { b.h.Events[1].Limit.Amount = "6" }
	}},
	{"repeated although there was room", "repeat", func() (*builder, func()) {
		b := newBuilder(tokenBucket("1", "5"))
		b.take(1, "5", withRemaining(0))
		b.take(3, "5", asRepeat)
		return b, func() { b.returns[1].Each[0].Remaining = 5 }
	}},
}

// onceCases are about charges under an id, and settlements.
var onceCases = []tamperCase{
	{"an id charged twice", "once", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		b.take(1, "1", withID("x"))
		id := b.take(2, "1", withID("x"), asReplay)
		return b, func() { b.returns[id].Replayed = false }
	}},
	{"an id with two answers", "once", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		b.take(1, "1", withID("x"), withRemaining(4))
		id := b.take(2, "1", withID("x"), asReplay, withRemaining(4))
		return b, func() { b.returns[id].Each[0].Remaining = 3 }
	}},
	{"an id for other charges", "once", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		b.take(1, "1", withID("x"))
		id := b.take(2, "1", withID("x"), asReplay)
		return b, func() { b.calls[id].Charges[0].Cost = "2" }
	}},
	{"an id answered before it was admitted", "once", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		b.take(1, "1", withID("x"), withOutcome(history.Unknown), func(_ *history.Call, r *history.Return) { r.At = 0 })
		b.take(2, "1", withID("x"), asReplay)
		return b, func() { b.returns[1].Outcome = history.Nothing }
	}},
	{"an id of which one attempt was lost, charged twice", "settled", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		b.take(1, "1", withID("x"), withOutcome(history.Unknown), func(_ *history.Call, r *history.Return) { r.At = 0 })
		b.take(2, "1", withID("x"))
		s := b.addState(3, "1")
		return b, func() { s.Used = "2" }
	}},
	{"settled twice", "once", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		id := b.take(1, "3")
		b.addFollowUp(2, history.Settle, id, withActual("1"), withCorrected("2"))
		secondSettle := b.addFollowUp(3, history.Settle, id, withActual("1"), withOutcome(history.Nothing))
		return b, func() {
			b.returns[secondSettle].Outcome, b.returns[secondSettle].Corrected = history.Done, []string{"2"}
		}
	}},
	{"more given back than there was", "once", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		id := b.take(1, "3")
		b.addFollowUp(2, history.Settle, id, withActual("1"), withCorrected("2"))
		return b, func() { b.returns[2].Corrected[0] = "2.5" }
	}},
}
