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
		{"reset", []law.Op{takeOf(1, "a", "1"), reset, reset, takeOf(2, "a", "2")}, []int32{1, 3, 4}},
		{"an invalid one between", []law.Op{takeOf(1, "a", "1"), invalid, takeOf(1, "b", "1")}, []int32{1, 2}},
	} {
		b := encode(tt.ops, make([]law.Outcome, len(tt.ops)))
		if got := b.parts(tt.ops); !slices.Equal(got, tt.ends) || !b.once {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.ends)
		}
	}
}

func TestPlainChargesAreOnlyThose(t *testing.T) {
	ops := []law.Op{takeOf(1, "a", ""), takeOf(2, "b", "")}
	if _, ok := plainly(ops); !ok {
		t.Error("two plain charges are not plain")
	}
	for name, change := range map[string]func(*law.Op){
		"verb":    func(op *law.Op) { op.Verb = law.Settle },
		"law":     func(op *law.Op) { op.Params.Kind = law.Window },
		"anchor":  func(op *law.Op) { op.Params.Anchor = law.Calendar },
		"count":   func(op *law.Op) { op.Count = 2 },
		"partial": func(op *law.Op) { op.Partial = true },
		"ceiling": func(op *law.Op) { op.Ceiling = 5 },
		"late":    func(op *law.Op) { op.Deferred = true },
		"id":      func(op *law.Op) { op.ID = "1" },
		"group":   func(op *law.Op) { op.Group = 1 },
		"cell":    func(op *law.Op) { op.Cell.Key = "a" },
		"cost":    func(op *law.Op) { op.Cost = 0 },
	} {
		other := slices.Clone(ops)
		change(&other[1])
		if _, ok := plainly(other); ok {
			t.Errorf("a charge with another %s is plain", name)
		}
	}
	if b := encode(ops, make([]law.Outcome, 2)); b.once {
		t.Error("charges without an ID are for headgate.apply_once")
	}
}
