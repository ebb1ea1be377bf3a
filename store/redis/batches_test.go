package redis

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
)

// TestBatchesOverSlotsMatchPackageLaw applies several requests at a time, some over several
// slots, on the same few cells: takes, with an ID or repeated, checks, settlements, resets and
// blocks, and deferred takes in one slot.
func TestBatchesOverSlotsMatchPackageLaw(t *testing.T) {
	s := openSlots(t, slotsURL(t))
	seed := newSeed(t)
	g := rand.New(rand.NewPCG(seed, 0))
	keys := keysApart(3)
	records := map[law.Cell]*law.Record{}
	get := func(c law.Cell) *law.Record {
		if records[c] == nil {
			records[c] = &law.Record{Receipts: register{}}
		}
		return records[c]
	}
	now := testTime
	var admittedOps [][]law.Op
	admitted, refused := 0, 0
	rounds := tier.Pick(60, 600, 600)
	for n := range rounds {
		now += g.Int64N(600_000)
		era := n / 30
		if n%30 == 0 {
			admittedOps = nil
		}
		var ops []law.Op
		var groups [][]int
		cells := func() (out []law.Op) {
			for len(out) == 0 {
				for _, k := range g.Perm(3) {
					for l := range 2 {
						if g.IntN(3) == 0 {
							p := law.Params{Kind: law.Bucket, Unit: 1_000_000, Capacity: 5_000_000, Step: 1, Drain: 2}
							if l == 1 {
								p = law.Params{
									Kind: law.Bucket, Unit: 1_000_000, Capacity: 3_000_000,
									Step: 1, Drain: 1,
								}
							}
							out = append(out, takeOne(fmt.Sprint(era, "-", l), keys[k], p, now))
						}
					}
				}
			}
			return out
		}
		for gr := range 1 + g.IntN(6) {
			group := cells()
			kind := g.IntN(12)
			together := func() bool {
				return !slices.ContainsFunc(group, func(op law.Op) bool { return op.Cell.Key != group[0].Cell.Key })
			}
			switch {
			case kind < 6:
				late, wait := g.IntN(3) > 0, g.Int64N(4_000_000)
				if late && g.IntN(2) == 0 {
					key := group[0].Cell.Key
					group = slices.DeleteFunc(group, func(op law.Op) bool { return op.Cell.Key != key })
				}
				late = late && together()
				for i := range group {
					group[i].Cost = 1 + g.Int64N(3_000_000)
					if late {
						group[i].Deferred, group[i].Ceiling = true, group[i].Params.Ceiling(wait)
					}
				}
				if g.IntN(2) == 0 {
					withID(fmt.Sprint(n, ".", gr), group...)
				}
			case kind == 6:
				for i := range group {
					group[i].Verb, group[i].Cost = law.Check, 1+g.Int64N(3_000_000)
				}
			case kind == 7 && len(admittedOps) > 0: // repeat
				was := admittedOps[g.IntN(len(admittedOps))]
				group = append([]law.Op(nil), was...)
				late := g.IntN(2) == 0 && together()
				for i := range group {
					group[i].Now = now
					group[i].Deferred, group[i].Ceiling = late, 0
					if late {
						group[i].Ceiling = group[i].Params.Ceiling(3_000_000)
					}
				}
			case kind <= 9 && len(admittedOps) > 0:
				was := admittedOps[g.IntN(len(admittedOps))]
				group = append([]law.Op(nil), was...)
				cost := g.Int64N(2) * g.Int64N(2_000_000)
				for i := range group {
					group[i] = settleOp(group[i], cost)
					group[i].Now, group[i].Deferred, group[i].Ceiling = now, false, 0
				}
				k := g.IntN(len(group)) // over several slots, the slots that know the ID settle: docs
				group = group[k : k+1]
			case kind == 10:
				for i := range group {
					group[i].Verb = law.Reset
				}
			default:
				for i := range group {
					group[i].Verb, group[i].TTL = law.Block, g.Int64N(2)*g.Int64N(300_000)
				}
			}
			from := len(ops)
			for i := range group {
				group[i].Group = uint32(gr)
			}
			ops = append(ops, group...)
			var index []int
			for i := from; i < len(ops); i++ {
				index = append(index, i)
			}
			groups = append(groups, index)
		}
		own := make([]*law.Record, len(ops))
		for i := range ops {
			own[i] = get(ops[i].Cell)
		}
		want := make([]law.Outcome, len(ops))
		law.Apply(ops, want, now, own)
		outs := outcomes(t, s, ops...)
		for _, r := range records {
			if r.Forget {
				r.Receipts = register{}
			}
			for _, a := range r.Admit {
				r.Receipts.(register)[a.ID] = a
			}
			*r = law.Record{State: r.State, Receipts: r.Receipts}
		}
		for _, index := range groups {
			ok, okGot := true, true
			for _, i := range index {
				ok = ok && want[i].Err == nil && want[i].Granted == ops[i].Count
				okGot = okGot && outs[i].Err == nil && outs[i].Granted == ops[i].Count
			}
			v := ops[index[0]].Verb
			if v == law.Take && ok {
				admitted++
			} else if v == law.Take {
				refused++
			}
			if v == law.Settle {
				ok, okGot = want[index[0]].Err == nil, outs[index[0]].Err == nil
				if ok != okGot {
					t.Fatalf("seed %d, round %d, to settle: %+v\n got %+v\nwant %+v", seed, n,
						ops[index[0]:index[len(index)-1]+1], outs[index[0]:index[len(index)-1]+1],
						want[index[0]:index[len(index)-1]+1])
				}
			}
			if v == law.Reset || v == law.Block {
				continue
			}
			bad := ok != okGot
			for _, i := range index {
				bad = bad || ok && (outs[i].StartAt != want[i].StartAt || outs[i].Granted != want[i].Granted ||
					outs[i].State.Level != want[i].State.Level || outs[i].Replayed != want[i].Replayed)
			}
			if bad {
				t.Fatalf("seed %d, round %d: %+v\n got %+v\nwant %+v", seed, n, ops[index[0]:index[len(index)-1]+1],
					outs[index[0]:index[len(index)-1]+1], want[index[0]:index[len(index)-1]+1])
			}
			if ok && v == law.Take && ops[index[0]].ID != "" {
				admittedOps = append(admittedOps, ops[index[0]:index[len(index)-1]+1])
			}
		}
		for c, r := range records {
			if c.Limit[:len(fmt.Sprint(era))+1] != fmt.Sprint(era, "-") {
				delete(records, c)
				continue
			}
			p := law.Params{Kind: law.Bucket, Unit: 1_000_000, Capacity: 5_000_000, Step: 1, Drain: 2}
			op := takeOne(c.Limit, c.Key, p, now)
			op.Verb = law.Check
			out := apply(t, s, op)[0]
			if out.State.Level != r.State.Level || out.State.At != r.State.At ||
				out.State.BlockedUntil != r.State.BlockedUntil || out.State.Prev != r.State.Prev {
				t.Fatalf("seed %d, round %d: %v is %+v, want %+v\n%+v\ngot %+v\nwant %+v", seed, n, c, out.State,
					r.State, ops, outs, want)
			}
			r.State = out.State
		}
	}
	if admitted < rounds/3 || refused < rounds/3 {
		t.Errorf("of %d batches %d requests were admitted, %d not: the limits drawn say little", rounds,
			admitted, refused)
	}
}
