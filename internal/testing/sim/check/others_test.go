package check_test

import "github.com/headgate/headgate/internal/testing/history"

func leases(amount string, ttl int64) history.Limit {
	return history.Limit{Algorithm: history.Concurrency, Amount: amount, TTL: ttl}
}

var otherCases = []tamperCase{
	{"repeated for less", "repeat", func() (*book, func()) {
		b := newBook(bucket("1", "5"))
		b.take(1, "4")
		b.take(2, "3", refused(2*second))
		id := b.take(3, "3", repeated)
		return b, func() { b.calls[id].Charges[0].Cost = "2" }
	}},
	{"repeated too late", "repeat", func() (*book, func()) {
		b := newBook(bucket("10", "5"))
		b.take(1, "5")
		b.take(2, "1", refused(second/10-1))
		id := b.take(second/10, "1", repeated)
		return b, func() { b.postpone(id, 10) }
	}},
	{"repeated by another node", "repeat", func() (*book, func()) {
		b := newBook(bucket("1", "5"))
		b.take(1, "4")
		b.take(2, "3", refused(2*second))
		b.take(3, "3", repeated)
		return b, func() { b.h.Events[5].Node, b.h.Events[6].Node = "b", "b" }
	}},
	{"repeated from another definition", "repeat", func() (*book, func()) {
		same := fixed("5", day)
		same.Version = 2
		b := newBook(fixed("5", day), same)
		b.take(1, "4")
		b.take(2, "3", refused(day-2))
		b.take(3, "3", version(2), repeated)
		return b, func() { b.h.Events[1].Limit.Amount = "6" }
	}},
	{"repeated although there was room", "repeat", func() (*book, func()) {
		b := newBook(bucket("1", "5"))
		b.take(1, "5", remaining(0))
		b.take(3, "5", repeated)
		return b, func() { b.rets[1].Each[0].Remaining = 5 }
	}},
	{"an id charged twice", "once", func() (*book, func()) {
		b := newBook(fixed("5", day))
		b.take(1, "1", idem("x"))
		id := b.take(2, "1", idem("x"), replay)
		return b, func() { b.rets[id].Replayed = false }
	}},
	{"an id with two answers", "once", func() (*book, func()) {
		b := newBook(fixed("5", day))
		b.take(1, "1", idem("x"), remaining(4))
		id := b.take(2, "1", idem("x"), replay, remaining(4))
		return b, func() { b.rets[id].Each[0].Remaining = 3 }
	}},
	{"an id for other charges", "once", func() (*book, func()) {
		b := newBook(fixed("5", day))
		b.take(1, "1", idem("x"))
		id := b.take(2, "1", idem("x"), replay)
		return b, func() { b.calls[id].Charges[0].Cost = "2" }
	}},
	{"an id answered before it was admitted", "once", func() (*book, func()) {
		b := newBook(fixed("5", day))
		b.take(1, "1", idem("x"), outcome(history.Unknown), func(_ *history.Call, r *history.Return) { r.At = 0 })
		b.take(2, "1", idem("x"), replay)
		return b, func() { b.rets[1].Outcome = history.Nothing }
	}},
	{"an id of which one attempt was lost, charged twice", "settled", func() (*book, func()) {
		b := newBook(fixed("5", day))
		b.take(1, "1", idem("x"), outcome(history.Unknown), func(_ *history.Call, r *history.Return) { r.At = 0 })
		b.take(2, "1", idem("x"))
		s := b.state(3, "1")
		return b, func() { s.Used = "2" }
	}},
	{"settled twice", "once", func() (*book, func()) {
		b := newBook(fixed("5", day))
		id := b.take(1, "3")
		b.addFollowUp(2, history.Settle, id, actual("1"), corrected("2"))
		again := b.addFollowUp(3, history.Settle, id, actual("1"), outcome(history.Nothing))
		return b, func() { b.rets[again].Outcome, b.rets[again].Corrected = history.Done, []string{"2"} }
	}},
	{"more given back than there was", "once", func() (*book, func()) {
		b := newBook(fixed("5", day))
		id := b.take(1, "3")
		b.addFollowUp(2, history.Settle, id, actual("1"), corrected("2"))
		return b, func() { b.rets[2].Corrected[0] = "2.5" }
	}},
	{"two reservations swapped", "tickets", func() (*book, func()) {
		b := newBook(bucket("1", "1"))
		b.addCall(0, history.Reserve, "1", startAt(0))
		b.addCall(1, history.Reserve, "1", startAt(second))
		b.addCall(2, history.Reserve, "1", startAt(2*second))
		return b, func() { b.rets[2].StartAt, b.rets[3].StartAt = b.rets[3].StartAt, b.rets[2].StartAt }
	}},
	{"a start too early", "tickets", func() (*book, func()) {
		b := newBook(bucket("1", "1"))
		b.addCall(0, history.Reserve, "1", startAt(0))
		id := b.addCall(1, history.Reserve, "1", startAt(second))
		return b, func() { b.rets[id].StartAt-- }
	}},
	{"a start before its decision", "tickets", func() (*book, func()) {
		b := newBook(bucket("1", "1"))
		id := b.addCall(5, history.Reserve, "1", startAt(5))
		return b, func() { b.rets[id].StartAt-- }
	}},
	{"a lease too many", "leases", func() (*book, func()) {
		b := newBook(leases("2", 10*second))
		b.addCall(1, history.Acquire, "1")
		b.addCall(2, history.Acquire, "1")
		id := b.addCall(3, history.Acquire, "1", outcome(history.Refused))
		return b, func() { b.rets[id].Outcome = history.Admitted }
	}},
	{"a lease renewed after its end", "leases", func() (*book, func()) {
		b := newBook(leases("2", 10*second))
		id := b.addCall(1, history.Acquire, "1")
		b.addFollowUp(9*second, history.Renew, id)
		renew := b.addFollowUp(18*second, history.Renew, id)
		return b, func() { b.postpone(renew, second+100) }
	}},
	{"a lease that was not released", "leases", func() (*book, func()) {
		b := newBook(leases("1", 10*second))
		id := b.addCall(1, history.Acquire, "1")
		release := b.addFollowUp(2, history.Release, id)
		b.addCall(3, history.Acquire, "1")
		return b, func() { b.rets[release].Outcome = history.Nothing }
	}},
	{"a lease refused although one is free", "refusal", func() (*book, func()) {
		b := newBook(leases("1", 10*second))
		b.addCall(1, history.Acquire, "1")
		id := b.addCall(5*second, history.Acquire, "1", outcome(history.Refused))
		return b, func() { b.postpone(id, 6*second) }
	}},
	{"a release that was not forgotten", "refusal", func() (*book, func()) {
		b := newBook(leases("1", 10*second))
		id := b.addCall(1, history.Acquire, "1")
		b.addFollowUp(2, history.Release, id)
		f := b.fault(3, history.Fault{Kind: history.Forget, Since: 1500})
		b.addCall(4, history.Acquire, "1", outcome(history.Refused))
		return b, func() { f.Since = 2200 }
	}},
	{"a time below 0", "format", func() (*book, func()) {
		b := newBook(fixed("5", day))
		b.take(1, "3")
		return b, func() { b.rets[1].At = -1 }
	}},
}
