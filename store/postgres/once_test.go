package postgres

import (
	"slices"
	"testing"

	"github.com/headgate/headgate/law"
)

func takeOf(group uint32, key, id string) law.Op {
	return law.Op{
		Verb: law.Take, Group: group, Cell: law.Cell{Limit: "l", Key: key}, Cost: 1, Count: 1, ID: id, TTL: 1,
		Params: law.Params{Kind: law.Bucket, Unit: 1, Capacity: 1, Step: 1, Drain: 1},
	}
}

func TestPartsKeepRequestsOfOneIDApart(t *testing.T) {
	reset, settle, invalid := takeOf(9, "a", ""), takeOf(8, "a", "1"), takeOf(7, "a", "")
	reset.Verb, settle.Verb, invalid.Cost = law.Reset, law.Settle, 0
	extend := settle
	extend.Verb = law.Extend
	for _, tt := range []struct {
		name string
		ops  []law.Op
		ends []int32
	}{
		{
			"differ",
			[]law.Op{takeOf(1, "a", "1"), takeOf(2, "a", "2"), takeOf(3, "a", ""), takeOf(4, "a", "")},
			[]int32{4},
		},
		{"one request", []law.Op{takeOf(1, "a", "1"), takeOf(1, "b", "1")}, []int32{2}},
		{"two requests", []law.Op{takeOf(1, "a", "1"), takeOf(1, "b", "1"), takeOf(2, "a", "1")}, []int32{2, 3}},
		{"settled", []law.Op{takeOf(1, "a", "1"), settle, takeOf(2, "a", "2")}, []int32{1, 3}},
		{"extended", []law.Op{takeOf(1, "a", "1"), extend, takeOf(2, "a", "2")}, []int32{1, 3}},
		{"reset", []law.Op{takeOf(1, "a", "1"), reset, reset, takeOf(2, "a", "2")}, []int32{1, 3, 4}},
		{"an invalid one between", []law.Op{takeOf(1, "a", "1"), invalid, takeOf(1, "b", "1")}, []int32{1, 2}},
	} {
		a := arrange(tt.ops, make([]law.Outcome, len(tt.ops)))
		b := encode(tt.ops, &a)
		if got := b.parts(tt.ops); !slices.Equal(got, tt.ends) || !b.withIDs {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.ends)
		}
	}
}
