package redis

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
)

// TestBatchesOverSlotsMatchPackageLaw applies batches of requests on few cells, some over several slots: takes, retries
// with an ID, checks, settlements, resets and blocks, and deferred takes in one slot.
func TestBatchesOverSlotsMatchPackageLaw(t *testing.T) {
	s := openSlots(t, slotsURL(t))
	seed := newSeed(t)
	g := rand.New(rand.NewPCG(seed, 0))
	keys := keysApart(3)
	records := map[law.Cell]*law.Record{}
	recordOf := func(c law.Cell) *law.Record {
		if records[c] == nil {
			records[c] = &law.Record{Receipts: mapReceipts{}}
		}
		return records[c]
	}
	now := testTime
	var admittedRequests [][]law.Op // with an ID
	admitted, refused := 0, 0
	rounds := tier.Pick(60, 600, 600)
	for n := range rounds {
		now += g.Int64N(600_000)
		era := n / 30
		if n%30 == 0 {
			admittedRequests = nil
		}
		var ops []law.Op
		var groups [][]int
		randomTakes := func() (takes []law.Op) {
			for len(takes) == 0 {
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
							takes = append(takes, takeOne(fmt.Sprint(era, "-", l), keys[k], p, now))
						}
					}
				}
			}
			return takes
		}
		for groupNumber := range 1 + g.IntN(6) {
			group := randomTakes()
			action := g.IntN(12)
			hasOneKey := func() bool {
				return !slices.ContainsFunc(group, func(op law.Op) bool { return op.Cell.Key != group[0].Cell.Key })
			}
			switch {
			case action < 6:
				isDeferred, maxWait := g.IntN(3) > 0, g.Int64N(4_000_000)
				if isDeferred && g.IntN(2) == 0 {
					key := group[0].Cell.Key
					group = slices.DeleteFunc(group, func(op law.Op) bool { return op.Cell.Key != key })
				}
				isDeferred = isDeferred && hasOneKey()
				for i := range group {
					group[i].Cost = 1 + g.Int64N(3_000_000)
					if isDeferred {
						group[i].Deferred, group[i].Ceiling = true, group[i].Params.Ceiling(maxWait)
					}
				}
				if g.IntN(2) == 0 {
					withID(fmt.Sprint(n, ".", groupNumber), group...)
				}
			case action == 6:
				for i := range group {
					group[i].Verb, group[i].Cost = law.Check, 1+g.Int64N(3_000_000)
				}
			case action == 7 && len(admittedRequests) > 0: // repeat
				group = slices.Clone(admittedRequests[g.IntN(len(admittedRequests))])
				isDeferred := g.IntN(2) == 0 && hasOneKey()
				for i := range group {
					group[i].Now = now
					group[i].Deferred, group[i].Ceiling = isDeferred, 0
					if isDeferred {
						group[i].Ceiling = group[i].Params.Ceiling(3_000_000)
					}
				}
			case action <= 9 && len(admittedRequests) > 0:
				group = slices.Clone(admittedRequests[g.IntN(len(admittedRequests))])
				cost := g.Int64N(2) * g.Int64N(2_000_000)
				for i := range group {
					group[i] = settleOp(group[i], cost)
					group[i].Now, group[i].Deferred, group[i].Ceiling = now, false, 0
				}
				k := g.IntN(len(group)) // one op: if one slot does not know the ID, those that do have settled
				group = group[k : k+1]
			case action == 10:
				for i := range group {
					group[i].Verb = law.Reset
				}
			default:
				for i := range group {
					group[i].Verb, group[i].TTL = law.Block, g.Int64N(2)*g.Int64N(300_000)
				}
			}
			start := len(ops)
			for i := range group {
				group[i].Group = uint32(groupNumber)
			}
			ops = append(ops, group...)
			var index []int
			for i := start; i < len(ops); i++ {
				index = append(index, i)
			}
			groups = append(groups, index)
		}
		opRecords := make([]*law.Record, len(ops))
		for i := range ops {
			opRecords[i] = recordOf(ops[i].Cell)
		}
		want := make([]law.Outcome, len(ops))
		law.Apply(ops, want, now, opRecords)
		outs := outcomes(t, s, ops...)
		for _, r := range records {
			if r.Forget {
				r.Receipts = mapReceipts{}
			}
			for _, receipt := range r.Admit {
				r.Receipts.(mapReceipts)[receipt.ID] = receipt
			}
			*r = law.Record{State: r.State, Receipts: r.Receipts}
		}
		for _, index := range groups {
			wantOK, gotOK := true, true
			for _, i := range index {
				wantOK = wantOK && want[i].Err == nil && want[i].Granted == ops[i].Count
				gotOK = gotOK && outs[i].Err == nil && outs[i].Granted == ops[i].Count
			}
			verb := ops[index[0]].Verb
			if verb == law.Take && wantOK {
				admitted++
			} else if verb == law.Take {
				refused++
			}
			if verb == law.Settle {
				wantOK, gotOK = want[index[0]].Err == nil, outs[index[0]].Err == nil
				if wantOK != gotOK {
					t.Fatalf("seed %d, round %d, to settle: %+v\n got %+v\nwant %+v", seed, n,
						ops[index[0]:index[len(index)-1]+1], outs[index[0]:index[len(index)-1]+1],
						want[index[0]:index[len(index)-1]+1])
				}
			}
			if verb == law.Reset || verb == law.Block {
				continue
			}
			isWrong := wantOK != gotOK
			for _, i := range index {
				isWrong = isWrong || wantOK && (outs[i].StartAt != want[i].StartAt ||
					outs[i].Granted != want[i].Granted || outs[i].State.Level != want[i].State.Level ||
					outs[i].Replayed != want[i].Replayed)
			}
			if isWrong {
				t.Fatalf("seed %d, round %d: %+v\n got %+v\nwant %+v", seed, n, ops[index[0]:index[len(index)-1]+1],
					outs[index[0]:index[len(index)-1]+1], want[index[0]:index[len(index)-1]+1])
			}
			if wantOK && verb == law.Take && ops[index[0]].ID != "" {
				admittedRequests = append(admittedRequests, ops[index[0]:index[len(index)-1]+1])
			}
		}
		for c, r := range records {
			if c.Limit[:len(fmt.Sprint(era))+1] != fmt.Sprint(era, "-") {
				delete(records, c)
				continue
			}
			p := law.Params{Kind: law.Bucket, Unit: 1_000_000, Capacity: 5_000_000, Step: 1, Drain: 2}
			op := takeOne(c.Limit, c.Key, p, now)
			op.Verb = law.Check // it changes nothing, so any limit shows the state
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
		t.Errorf("in %d batches %d requests were admitted, %d refused: the limits drawn prove little", rounds,
			admitted, refused)
	}
}
