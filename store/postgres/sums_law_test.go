package postgres

import (
	"fmt"
	"slices"
	"testing"

	"github.com/headgate/headgate/law"
)

// sumBatch arranges a batch and sums it up.
func sumBatch(ops []law.Op) (sums, bool) {
	valid := arrange(ops, make([]law.Outcome, len(ops)))
	return sumUp(ops, &valid)
}

// TestOnlyPlainChargesAreSummed changes the second of two plain charges, and checks whether sumUp accepts the batch.
func TestOnlyPlainChargesAreSummed(t *testing.T) {
	for name, tt := range map[string]struct {
		change   func(op *law.Op)
		accepted bool
	}{
		"no change":    {func(*law.Op) {}, true},
		"verb":         {func(op *law.Op) { op.Verb = law.Check }, false},
		"law":          {func(op *law.Op) { op.Params.Kind = law.Log }, false},
		"window":       {func(op *law.Op) { op.Params.Kind = law.Window }, true},
		"anchor":       {func(op *law.Op) { op.Params.Anchor = law.Calendar }, false},
		"all or none":  {func(op *law.Op) { op.Count = 2 }, false},
		"a part":       {func(op *law.Op) { op.Count, op.Partial = 2, true }, true},
		"ceiling":      {func(op *law.Op) { op.Ceiling = 5 }, false},
		"deferred":     {func(op *law.Op) { op.Deferred = true }, false},
		"id":           {func(op *law.Op) { op.ID = "1" }, false},
		"one request":  {func(op *law.Op) { op.Group = 1 }, true},
		"one cell":     {func(op *law.Op) { op.Cell.Key = "a" }, true},
		"other limits": {func(op *law.Op) { op.Cell.Key, op.Params.Capacity = "a", 4 }, false},
		"other times":  {func(op *law.Op) { op.Now = 5 }, false},
		"too much":     {func(op *law.Op) { op.Cell.Key, op.Cost = "a", 3 }, false},
		"invalid":      {func(op *law.Op) { op.Cost = 0 }, true}, // the batch is summed without it
	} {
		ops := []law.Op{newTake(1, "a", ""), newTake(2, "b", "")}
		for i := range ops {
			ops[i].Params.Capacity = 3
		}
		tt.change(&ops[1])
		b, ok := sumBatch(ops)
		if ok != tt.accepted {
			t.Errorf("%s: got accepted %t, want %t", name, ok, tt.accepted)
		}
		if b.allOrNone != (name == "one request") {
			t.Errorf("%s: got allOrNone %t, want %t", name, b.allOrNone, !b.allOrNone)
		}
	}
}

// TestSumUpAddsTheChargesOfACell sums up four charges of three cells.
func TestSumUpAddsTheChargesOfACell(t *testing.T) {
	var ops []law.Op
	for i, key := range []string{"b", "c", "a", "b"} {
		ops = append(ops, newTake(uint32(i), key, ""))
		ops[i].Params.Capacity = 100
	}
	b, ok := sumBatch(ops)
	const want = "true [a b c] [1 2 1] [1] [0 1 2 3] [2 3 1 2]"
	if got := fmt.Sprint(ok, b.keys, b.cost, b.limitNumbers, b.indexes, b.cellNumbers); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestDecodeRejectsMalformedAnswers decodes valid and malformed answers of take_sums about three cells.
func TestDecodeRejectsMalformedAnswers(t *testing.T) {
	ops := []law.Op{newTake(1, "a", ""), newTake(2, "b", ""), newTake(3, "c", "")}
	for name, tt := range map[string]struct {
		res        []int64
		undecided  []int
		wellFormed bool
	}{
		"granted":            {[]int64{9, 3, 0, 0, 0, 3, 1, 0, 9, 0, 1, 1, 0, 9, 0, 2, 1, 0, 9, 0}, nil, true},
		"one cell undecided": {[]int64{9, 2, 0, 0, 0, 3, 1, 0, 9, 0, 1, 1, 0, 9, 0}, []int{1}, true},
		"the state of a full cell": {
			[]int64{9, 2, 0, 0, 0, 3, 1, 0, 9, 0, 1, 1, 0, 9, 0, 2, 1, 1, 0, 9, 1, 1, 10, 0, 9}, nil, true,
		},
		"the state of a cell with room": {
			[]int64{9, 2, 0, 0, 0, 3, 1, 0, 9, 0, 1, 1, 0, 9, 0, 2, 1, 0, 0, 9, 1, 1, 9, 0, 9}, []int{1}, true,
		},
		"no numbers":        {nil, nil, false},
		"more new cells":    {[]int64{9, 1, 9, 2, 0, 3, 1, 0, 9, 0}, nil, false},
		"a cell twice":      {[]int64{9, 2, 0, 0, 0, 3, 1, 0, 9, 0, 3, 1, 0, 9, 0}, nil, false},
		"an unknown cell":   {[]int64{9, 1, 0, 0, 0, 4, 1, 0, 9, 0}, nil, false},
		"too few rows":      {[]int64{9, 2, 0, 0, 0, 3, 1, 0, 9, 0}, nil, false},
		"too many cells":    {[]int64{9, 4, 0, 0, 0, 3, 1, 0, 9, 0}, nil, false},
		"an incomplete row": {[]int64{9, 1, 0, 0, 0, 3, 1, 0, 9}, nil, false},
		"half a state":      {[]int64{9, 0, 0, 0, 0, 2, 1, 1, 0, 9, 1, 1, 10}, nil, false},
	} {
		b, _ := sumBatch(ops)
		undecided, ok := b.decode(tt.res, ops, make([]law.Outcome, 3))
		if ok != tt.wellFormed || ok && !slices.Equal(undecided, tt.undecided) {
			t.Errorf("%s: got %v, %t; want %v, %t", name, undecided, ok, tt.undecided, tt.wellFormed)
		}
	}
}
