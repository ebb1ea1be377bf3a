package check_test

import "github.com/headgate/headgate/internal/testing/history"

func concurrency(amount string, ttl int64) history.Limit {
	return history.Limit{Algorithm: history.Concurrency, Amount: amount, TTL: ttl}
}

// leaseCases are about leases: the rules "leases", and "refusal" of a lease.
var leaseCases = []tamperCase{
	{"a lease too many", "leases", func() (*builder, func()) {
		b := newBuilder(concurrency("2", 10*second))
		b.addCall(1, history.Acquire, "1")
		b.addCall(2, history.Acquire, "1")
		id := b.addCall(3, history.Acquire, "1", withOutcome(history.Refused))
		return b, func() { b.returns[id].Outcome = history.Admitted }
	}},
	{"a lease renewed after its end", "leases", func() (*builder, func()) {
		b := newBuilder(concurrency("2", 10*second))
		id := b.addCall(1, history.Acquire, "1")
		b.addFollowUp(9*second, history.Renew, id)
		renew := b.addFollowUp(18*second, history.Renew, id)
		return b, func() { b.postpone(renew, second+100) }
	}},
	{"a lease that was not released", "leases", func() (*builder, func()) {
		b := newBuilder(concurrency("1", 10*second))
		id := b.addCall(1, history.Acquire, "1")
		release := b.addFollowUp(2, history.Release, id)
		b.addCall(3, history.Acquire, "1")
		return b, func() { b.returns[release].Outcome = history.Nothing }
	}},
	{"a lease refused although one is free", "refusal", func() (*builder, func()) {
		b := newBuilder(concurrency("1", 10*second))
		b.addCall(1, history.Acquire, "1")
		id := b.addCall(5*second, history.Acquire, "1", withOutcome(history.Refused))
		return b, func() { b.postpone(id, 6*second) }
	}},
	{"a release that was not forgotten", "refusal", func() (*builder, func()) {
		b := newBuilder(concurrency("1", 10*second))
		id := b.addCall(1, history.Acquire, "1")
		b.addFollowUp(2, history.Release, id)
		f := b.addFault(3, history.Fault{Kind: history.Forget, Since: 1500})
		b.addCall(4, history.Acquire, "1", withOutcome(history.Refused))
		return b, func() { f.Since = 2200 }
	}},
}

// reservationCases are about the starts of reservations.
var reservationCases = []tamperCase{
	{"two reservations swapped", "tickets", func() (*builder, func()) {
		b := newBuilder(tokenBucket("1", "1"))
		b.addCall(0, history.Reserve, "1", withStart(0))
		b.addCall(1, history.Reserve, "1", withStart(second))
		b.addCall(2, history.Reserve, "1", withStart(2*second))
		return b, func() { b.returns[2].StartAt, b.returns[3].StartAt = b.returns[3].StartAt, b.returns[2].StartAt }
	}},
	{"a start too early", "tickets", func() (*builder, func()) {
		b := newBuilder(tokenBucket("1", "1"))
		b.addCall(0, history.Reserve, "1", withStart(0))
		id := b.addCall(1, history.Reserve, "1", withStart(second))
		return b, func() { b.returns[id].StartAt-- }
	}},
	{"a start before its decision", "tickets", func() (*builder, func()) {
		b := newBuilder(tokenBucket("1", "1"))
		id := b.addCall(5, history.Reserve, "1", withStart(5))
		return b, func() { b.returns[id].StartAt-- }
	}},
}

// formatCases are about values that no history may have.
var formatCases = []tamperCase{
	{"a time below 0", "format", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		b.take(1, "3")
		return b, func() { b.returns[1].At = -1 }
	}},
}
