package storetest

import (
	"testing"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// testLeases acquires, renews and releases leases.
func testLeases(t *testing.T, s store.Store) {
	p := slidingLog(2, 10*sec)
	p.Leased = true
	acquire := func(now int64) law.Outcome { return applyOne(t, s, take("leases", "k", p, 1, now)) }
	renew := func(entry, now int64) bool {
		op := law.Op{
			Verb: law.Renew, Cell: law.Cell{Limit: "leases", Key: "k"}, Params: p, EntryNumber: entry, Now: now,
		}
		return applyOne(t, s, op).Granted == 1
	}
	release := func(out law.Outcome, now int64) bool {
		op := take("leases", "k", p, 1, now)
		return applyOne(t, s, law.Back(&op, &out, p.Unit)).Granted == p.Unit
	}
	renewByShorterLimit := func() {
		c := law.Cell{Limit: "leases", Key: "longer"}
		long, short := p, p
		long.Capacity, short.Capacity = p.Unit, p.Unit
		short.Step = 2 * sec
		out := applyOne(t, s, take(c.Limit, c.Key, long, 1, T0))
		op := law.Op{Verb: law.Renew, Cell: c, Params: short, EntryNumber: out.EntryNumber}
		for _, at := range []struct{ now, end int64 }{ // by the shorter limit it would end at 3, 7, 8 and 11 s
			{T0 + sec, T0 + 10*sec}, {T0 + 5*sec, T0 + 10*sec}, {T0 + 6*sec, T0 + 10*sec}, {T0 + 9*sec, T0 + 11*sec},
		} {
			op.Now = at.now
			renewed := applyOne(t, s, op)
			got := applyOne(t, s, check(take(c.Limit, c.Key, long, 1, at.now)))
			if renewed.Granted != 1 || renewed.State.EmptyAt != at.end || got.RetryAt != at.end {
				t.Errorf("a lease that is renewed by a shorter limit after %d us: %+v, others can have it at %d; want %d",
					at.now-T0, renewed, got.RetryAt, at.end)
			}
		}
	}
	renewByShorterLimit()
	a, b := acquire(T0), acquire(T0+sec)
	if a.Granted+b.Granted != 2 || acquire(T0+2*sec).Granted != 0 {
		t.Error("want two leases of two")
	}
	if !renew(a.EntryNumber, T0+9*sec) || renew(b.EntryNumber, T0+11*sec) {
		t.Error("a lease can be renewed until it ends, and not then")
	}
	if c := acquire(T0 + 11*sec); c.Granted != 1 || acquire(T0+12*sec).RetryAt != T0+19*sec {
		t.Error("a lease that was not renewed can be had again; the other is held on")
	}
	if !release(a, T0+13*sec) || release(a, T0+13*sec) || renew(a.EntryNumber, T0+13*sec) {
		t.Error("a lease can be released once")
	}
	if acquire(T0+13*sec).Granted != 1 || acquire(T0+13*sec).Granted != 0 {
		t.Error("what was released can be had again, once")
	}
}
