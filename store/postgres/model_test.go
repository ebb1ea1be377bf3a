package postgres_test

import (
	"math/rand/v2"
	"testing"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store/memory"
)

func TestTmp(t *testing.T) {
	s := open(t)
	m := memory.New(nil)
	rng := rand.New(rand.NewPCG(1, 2))
	now := int64(1_790_000_000_000_000)
	params := []law.Params{
		{Kind: law.Bucket, Unit: 1000, Capacity: 5000, Step: 1, Drain: 1},
		{Kind: law.Bucket, Unit: 7000, Capacity: 35000, Step: 1000, Drain: 3, Block: 5000},
		{Kind: law.Bucket, Anchor: law.Epoch, Unit: 1000, Capacity: 5000, Step: 20000, Drain: law.Max},
		{Kind: law.Bucket, Anchor: law.Calendar, Unit: 1000, Capacity: 5000, Step: 20000, Drain: law.Max},
		{Kind: law.Window, Unit: 1000, Capacity: 5000, Step: 10000},
		{Kind: law.Window, Unit: 10, Capacity: 50, Step: 3_000_000},
		{Kind: law.Log, Unit: 1000, Capacity: 5000, Step: 10000},
		{Kind: law.Log, Unit: 1000, Capacity: 5000, Step: 10000, History: 50000, Block: 3000},
	}
	verbs := []law.Verb{law.Take, law.Take, law.Take, law.Take, law.Take, law.Check, law.Block, law.Reset}
	keys := []string{"a", "b", "c"}
	for round := range 1500 {
		var ops []law.Op
		for g := range 1 + rng.IntN(4) {
			verb := verbs[rng.IntN(len(verbs))]
			size := 1
			if rng.IntN(3) == 0 {
				size = 1 + rng.IntN(3)
			}
			used := map[string]law.Params{}
			for range size {
				limit := "l" + string(rune('0'+rng.IntN(4)))
				if rng.IntN(2) == 0 {
					limit = "changing"
				}
				p, ok := used[limit]
				if !ok {
					p = params[rng.IntN(len(params))]
					if limit != "changing" {
						p = params[(int(limit[1]-'0')*2)%len(params)]
					}
					used[limit] = p
				}
				op := law.Op{Verb: verb, Group: uint32(g + 1), Cell: law.Cell{Limit: limit, Key: keys[rng.IntN(3)]}, Params: p,
					Cost: 1 + rng.Int64N(3*p.Unit), Count: 1 + rng.Int64N(3)}
				if size == 1 {
					op.Partial = rng.IntN(3) == 0
				}
				if rng.IntN(8) == 0 {
					op.Ceiling = p.Capacity * 3
				}
				if verb == law.Block {
					op.TTL = rng.Int64N(3) * 10000
					op.Reason = "x"
				}
				op.Now = now
				b := now - now%20000
				op.Bounds = [4]int64{b - 20000, b, b + 20000, b + 40000}
				if rng.IntN(20) == 0 {
					op.Bounds = [4]int64{b - 60000, b - 50000, b - 40000, b - 30000}
				}
				ops = append(ops, op)
				switch rng.IntN(12) {
				case 0:
					now -= rng.Int64N(30000)
				case 1:
					if rng.IntN(30) == 0 {
						now -= 3_000_000 + rng.Int64N(30_000_000)
					}
				case 2:
					if rng.IntN(30) == 0 {
						now += rng.Int64N(30_000_000)
					}
				default:
					now += rng.Int64N(4000)
				}
			}
		}
		got, want := make([]law.Outcome, len(ops)), make([]law.Outcome, len(ops))
		if err := s.Apply(t.Context(), ops, got); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if err := m.Apply(t.Context(), ops, want); err != nil {
			t.Fatal(err)
		}
		for i := range ops {
			if testing.Verbose() {
				t.Logf("r%d %d verb %d g%d %v kind %d cost %d*%d partial %v granted %d/%d state %v / %v err %v", round, i, ops[i].Verb, ops[i].Group, ops[i].Cell, ops[i].Params.Kind, ops[i].Cost, ops[i].Count, ops[i].Partial, got[i].Granted, want[i].Granted, got[i].State, want[i].State, want[i].Err)
			}
			if (got[i].Entry != 0) != (want[i].Entry != 0) {
				t.Fatalf("round %d op %d entry %+v\n got %+v\nwant %+v", round, i, ops[i], got[i], want[i])
			}
			got[i].Entry, want[i].Entry = 0, 0
			if (got[i].Err == nil) != (want[i].Err == nil) {
				t.Fatalf("round %d op %d err %+v\n got %+v\nwant %+v", round, i, ops[i], got[i], want[i])
			}
			if got[i].Err != nil {
				continue
			}
			if got[i] != want[i] {
				t.Fatalf("round %d op %d of %d %+v\n got %+v\nwant %+v", round, i, len(ops), ops[i], got[i], want[i])
			}
		}
	}
}
