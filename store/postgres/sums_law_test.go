package postgres

import (
	"fmt"
	"slices"
	"testing"

	"github.com/headgate/headgate/law"
)

// sumBatch sums up a batch.
func sumBatch(ops []law.Op) (sums, bool) {
	a := arrange(ops, make([]law.Outcome, len(ops)))
	return sumUp(ops, &a)
}

func TestOnlyPlainChargesAreSummed(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(op *law.Op) // the second of two charges
		ok     bool
	}{
		"a plain one":  {func(*law.Op) {}, true},
		"verb":         {func(op *law.Op) { op.Verb = law.Check }, false},
		"law":          {func(op *law.Op) { op.Params.Kind = law.Log }, false},
		"window":       {func(op *law.Op) { op.Params.Kind = law.Window }, true},
		"anchor":       {func(op *law.Op) { op.Params.Anchor = law.Calendar }, false},
		"all or none":  {func(op *law.Op) { op.Count = 2 }, false},
		"a part":       {func(op *law.Op) { op.Count, op.Partial = 2, true }, true},
		"ceiling":      {func(op *law.Op) { op.Ceiling = 5 }, false},
		"late":         {func(op *law.Op) { op.Deferred = true }, false},
		"id":           {func(op *law.Op) { op.ID = "1" }, false},
		"one request":  {func(op *law.Op) { op.Group = 1 }, true},
		"one cell":     {func(op *law.Op) { op.Cell.Key = "a" }, true},
		"other limits": {func(op *law.Op) { op.Cell.Key, op.Params.Capacity = "a", 4 }, false},
		"other times":  {func(op *law.Op) { op.Now = 5 }, false},
		"too much":     {func(op *law.Op) { op.Cell.Key, op.Cost = "a", 3 }, false},
		"not valid":    {func(op *law.Op) { op.Cost = 0 }, true},
	} {
		ops := []law.Op{takeOf(1, "a", ""), takeOf(2, "b", "")}
		for i := range ops {
			ops[i].Params.Capacity = 3
		}
		tt.change(&ops[1])
		b, ok := sumBatch(ops)
		if ok != tt.ok {
			t.Errorf("%s: %t", name, ok)
		}
		if b.allOrNone != (name == "one request") {
			t.Errorf("%s: several charges of a request: %t", name, b.allOrNone)
		}
	}
}

func TestASumIsOfAllChargesOfACell(t *testing.T) {
	var ops []law.Op
	for i, key := range []string{"b", "c", "a", "b"} {
		ops = append(ops, takeOf(uint32(i), key, ""))
		ops[i].Params.Capacity = 100
	}
	b, ok := sumBatch(ops)
	if got := fmt.Sprint(ok, b.keys, b.cost, b.rule, b.index, b.cell); got != "true [a b c] [1 2 1] [1] [0 1 2 3] [2 3 1 2]" {
		t.Error(got)
	}
}

func TestAnswersAboutSumsThatAreNotAboutEachCell(t *testing.T) {
	ops := []law.Op{takeOf(1, "a", ""), takeOf(2, "b", ""), takeOf(3, "c", "")}
	for name, tt := range map[string]struct {
		res  []int64
		left []int
		ok   bool
	}{
		"granted":             {[]int64{9, 3, 0, 0, 0, 3, 1, 0, 9, 0, 1, 1, 0, 9, 0, 2, 1, 0, 9, 0}, nil, true},
		"a cell that is left": {[]int64{9, 2, 0, 0, 0, 3, 1, 0, 9, 0, 1, 1, 0, 9, 0}, []int{1}, true},
		"a cell that was read and is full": {
			[]int64{9, 2, 0, 0, 0, 3, 1, 0, 9, 0, 1, 1, 0, 9, 0, 2, 1, 1, 0, 9, 1, 1, 10, 0, 9}, nil, true,
		},
		"a cell that was read and has room": {
			[]int64{9, 2, 0, 0, 0, 3, 1, 0, 9, 0, 1, 1, 0, 9, 0, 2, 1, 0, 0, 9, 1, 1, 9, 0, 9}, []int{1}, true,
		},
		"nothing":             {nil, nil, false},
		"more new cells":      {[]int64{9, 1, 9, 2, 0, 3, 1, 0, 9, 0}, nil, false},
		"a cell twice":        {[]int64{9, 2, 0, 0, 0, 3, 1, 0, 9, 0, 3, 1, 0, 9, 0}, nil, false},
		"a cell that is not":  {[]int64{9, 1, 0, 0, 0, 4, 1, 0, 9, 0}, nil, false},
		"fewer than it says":  {[]int64{9, 2, 0, 0, 0, 3, 1, 0, 9, 0}, nil, false},
		"more than there are": {[]int64{9, 4, 0, 0, 0, 3, 1, 0, 9, 0}, nil, false},
		"a number less":       {[]int64{9, 1, 0, 0, 0, 3, 1, 0, 9}, nil, false},
		"half a state":        {[]int64{9, 0, 0, 0, 0, 2, 1, 1, 0, 9, 1, 1, 10}, nil, false},
	} {
		b, _ := sumBatch(ops)
		left, ok := b.decode(tt.res, ops, make([]law.Outcome, 3))
		if ok != tt.ok || ok && !slices.Equal(left, tt.left) {
			t.Errorf("%s: %v, %t", name, left, ok)
		}
	}
}
