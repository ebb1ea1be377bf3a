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
		for _, tt := range []struct{ now, end int64 }{ // by the shorter limit it would end at 3, 7, 8 and 11 s
			{T0 + sec, T0 + 10*sec}, {T0 + 5*sec, T0 + 10*sec}, {T0 + 6*sec, T0 + 10*sec}, {T0 + 9*sec, T0 + 11*sec},
		} {
			op.Now = tt.now
			renewal := applyOne(t, s, op)
			got := applyOne(t, s, check(take(c.Limit, c.Key, long, 1, tt.now)))
			if renewal.Granted != 1 || renewal.State.EmptyAt != tt.end || got.RetryAt != tt.end {
				t.Errorf("renewed by a shorter limit after %d us: got %+v, RetryAt %d for others; want both at %d",
					tt.now-T0, renewal, got.RetryAt, tt.end)
			}
		}
	}
	renewByShorterLimit()
	a, b := acquire(T0), acquire(T0+sec)
	if a.Granted+b.Granted != 2 || acquire(T0+2*sec).Granted != 0 {
		t.Error("a limit of two leases: want two acquired, and the third refused")
	}
	if !renew(a.EntryNumber, T0+9*sec) || renew(b.EntryNumber, T0+11*sec) {
		t.Error("want a lease renewed before its end, and refused after its end")
	}
	if c := acquire(T0 + 11*sec); c.Granted != 1 || acquire(T0+12*sec).RetryAt != T0+19*sec {
		t.Error("want the ended lease acquired again, and the renewed one kept until 19 s")
	}
	if !release(a, T0+13*sec) || release(a, T0+13*sec) || renew(a.EntryNumber, T0+13*sec) {
		t.Error("want one release, no second one, and no renewal after it")
	}
	if acquire(T0+13*sec).Granted != 1 || acquire(T0+13*sec).Granted != 0 {
		t.Error("want the released lease acquired once")
	}
}
