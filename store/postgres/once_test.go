package postgres

import (
	"slices"
	"testing"

	"github.com/headgate/headgate/law"
)

// newTake returns a take of one credit from a bucket whose capacity is one credit; id may be empty.
func newTake(group uint32, key, id string) law.Op {
	return law.Op{
		Verb: law.Take, Group: group, Cell: law.Cell{Limit: "l", Key: key}, Cost: 1, Count: 1, ID: id, TTL: 1,
		Params: law.Params{Kind: law.Bucket, Unit: 1, Capacity: 1, Step: 1, Drain: 1},
	}
}

// TestPartsSeparateRequestsOfOneID checks that a part ends before a second request of an id, and around resets.
func TestPartsSeparateRequestsOfOneID(t *testing.T) {
	reset, settle, invalid := newTake(9, "a", ""), newTake(8, "a", "1"), newTake(7, "a", "")
	reset.Verb, settle.Verb, invalid.Cost = law.Reset, law.Settle, 0
	extend := settle
	extend.Verb = law.Extend
	for _, tt := range []struct {
		name string
		ops  []law.Op
		ends []int32 // the numbers of ops up to the end of each part
	}{
		{
			"different ids",
			[]law.Op{newTake(1, "a", "1"), newTake(2, "a", "2"), newTake(3, "a", ""), newTake(4, "a", "")},
			[]int32{4},
		},
		{"one request", []law.Op{newTake(1, "a", "1"), newTake(1, "b", "1")}, []int32{2}},
		{"two requests", []law.Op{newTake(1, "a", "1"), newTake(1, "b", "1"), newTake(2, "a", "1")}, []int32{2, 3}},
		{"settle", []law.Op{newTake(1, "a", "1"), settle, newTake(2, "a", "2")}, []int32{1, 3}},
		{"extend", []law.Op{newTake(1, "a", "1"), extend, newTake(2, "a", "2")}, []int32{1, 3}},
		{"reset", []law.Op{newTake(1, "a", "1"), reset, reset, newTake(2, "a", "2")}, []int32{1, 3, 4}},
		{"an invalid request between", []law.Op{newTake(1, "a", "1"), invalid, newTake(1, "b", "1")}, []int32{1, 2}},
	} {
		valid := arrange(tt.ops, make([]law.Outcome, len(tt.ops)))
		b := encode(tt.ops, &valid)
		if got := b.parts(tt.ops); !slices.Equal(got, tt.ends) || !b.withReceipts {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.ends)
		}
	}
}
