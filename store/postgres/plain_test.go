package postgres

import (
	"fmt"
	"slices"
	"testing"

	"github.com/headgate/headgate/law"
)

// divided is how a batch is divided: the plain charges, and the rest.
func divided(ops []law.Op) (plain, more []int, b plainBatch) {
	a := arrange(ops, make([]law.Outcome, len(ops)))
	b = plainly(ops, &a)
	if len(b.index) == 0 {
		return nil, a.index, b
	}
	return b.index, b.more.index, b
}

func TestPlainChargesAreOnlyThose(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(op *law.Op) // the second of two charges
		more   []int
	}{
		"a plain one":  {func(*law.Op) {}, nil},
		"verb":         {func(op *law.Op) { op.Verb = law.Check }, []int{1}},
		"law":          {func(op *law.Op) { op.Params.Kind = law.Window }, []int{1}},
		"anchor":       {func(op *law.Op) { op.Params.Anchor = law.Calendar }, []int{1}},
		"all or none":  {func(op *law.Op) { op.Count = 2 }, []int{1}},
		"a part":       {func(op *law.Op) { op.Count, op.Partial = 2, true }, nil},
		"ceiling":      {func(op *law.Op) { op.Ceiling = 5 }, []int{1}},
		"late":         {func(op *law.Op) { op.Deferred = true }, []int{1}},
		"id":           {func(op *law.Op) { op.ID = "1" }, []int{1}},
		"one request":  {func(op *law.Op) { op.Group = 1 }, nil},
		"one cell":     {func(op *law.Op) { op.Cell.Key = "a" }, nil},
		"other limits": {func(op *law.Op) { op.Cell.Key, op.Params.Capacity = "a", 4 }, []int{1}},
		"other times":  {func(op *law.Op) { op.Cell.Key, op.Now = "a", 5 }, []int{1}},
		"too much":     {func(op *law.Op) { op.Cell.Key, op.Cost = "a", 3 }, []int{1}},
	} {
		ops := []law.Op{takeOf(1, "a", ""), takeOf(2, "b", "")}
		for i := range ops {
			ops[i].Params.Capacity = 3
		}
		tt.change(&ops[1])
		if plain, more, _ := divided(ops); len(plain)+len(more) != 2 || !slices.Equal(more, tt.more) {
			t.Errorf("%s: %d plain, %d for headgate.apply, want the latter %v", name, plain, more, tt.more)
		}
	}
	ops := []law.Op{takeOf(1, "a", ""), takeOf(2, "b", "")}
	ops[1].Cost = 0
	if plain, more, _ := divided(ops); len(plain) != 1 || len(more) > 0 {
		t.Errorf("%d and %d are asked of a charge that is not valid", plain, more)
	}
}

// TestNothingPassesWhatIsNotPlain on a cell: each cell is charged in the order of the batch.
func TestNothingPassesWhatIsNotPlain(t *testing.T) {
	var ops []law.Op
	for i, key := range []string{"a", "b", "c", "a", "a", "b", "c", "d"} {
		ops = append(ops, takeOf(uint32(i), key, ""))
		ops[i].Params.Capacity = 100
	}
	ops[1].Group, ops[2].Group = 9, 9 // b and c
	ops[3].ID = "1"                   // a: all on it follows
	ops[4].Group, ops[5].Group = 4, 4 // a and b
	plain, more, b := divided(ops)
	if !slices.Equal(plain, []int{0, 1, 2, 6, 7}) || !slices.Equal(more, []int{3, 4, 5}) || !b.coupled {
		t.Errorf("%d are plain, %d are not, coupled: %t", plain, more, b.coupled)
	}
	if got := fmt.Sprint(b.cost, b.cell, b.group, b.more.modes); got != "[1 1 2 1] [1 2 3 3 4] [1 2 2 3 4] [2 2 -1 -1]" {
		t.Errorf("sums, cells, requests and modes are %s", got)
	}
}

func TestAnswersThatAreNotAboutEachCharge(t *testing.T) {
	ops := []law.Op{takeOf(1, "a", ""), takeOf(2, "b", ""), takeOf(3, "c", "")}
	good := func() *granted {
		return &granted{
			cells: []int32{3, 1}, level: []int64{1, 1}, at: []int64{1, 1}, blocked: []int64{0, 0},
			rest: []int32{2}, outcomes: make([]int64, law.Width),
		}
	}
	for name, change := range map[string]func(*granted){
		"":                     func(*granted) {},
		"a cell twice":         func(g *granted) { g.cells[0] = 1 },
		"a cell that is not":   func(g *granted) { g.cells[0] = 4 },
		"a cell less":          func(g *granted) { g.cells = g.cells[:1] },
		"a time less":          func(g *granted) { g.at = g.at[:1] },
		"a charge less":        func(g *granted) { g.rest, g.outcomes = nil, nil },
		"a charge that is not": func(g *granted) { g.rest[0] = 0 },
		"a number less":        func(g *granted) { g.outcomes = g.outcomes[1:] },
	} {
		_, _, b := divided(ops)
		g := good()
		change(g)
		if ok := b.decode(g, ops, make([]law.Outcome, 3)); ok != (name == "") {
			t.Errorf("%q: %t", name, ok)
		}
	}
}

func TestAnswersAboutSumsThatAreNotAboutEachCell(t *testing.T) {
	ops := []law.Op{takeOf(1, "a", ""), takeOf(2, "b", ""), takeOf(3, "c", "")}
	for name, tt := range map[string]struct {
		res  []int64
		left []int
		ok   bool
	}{
		"granted":             {[]int64{9, 3, 0, 0, 3, 1, 9, 0, 1, 1, 9, 0, 2, 1, 9, 0}, nil, true},
		"a cell that is left": {[]int64{9, 2, 0, 0, 3, 1, 9, 0, 1, 1, 9, 0}, []int{1}, true},
		"a cell that was read and is full": {
			[]int64{9, 2, 0, 0, 3, 1, 9, 0, 1, 1, 9, 0, 2, 1, 1, 0, 9, 1, 1, 10, 0, 9, 0, 0}, nil, true,
		},
		"a cell that was read and has room": {
			[]int64{9, 2, 0, 0, 3, 1, 9, 0, 1, 1, 9, 0, 2, 1, 0, 0, 9, 1, 1, 9, 0, 9, 0, 0}, []int{1}, true,
		},
		"nothing":             {nil, nil, false},
		"more new cells":      {[]int64{9, 1, 9, 2, 3, 1, 9, 0}, nil, false},
		"a cell twice":        {[]int64{9, 2, 0, 0, 3, 1, 9, 0, 3, 1, 9, 0}, nil, false},
		"a cell that is not":  {[]int64{9, 1, 0, 0, 4, 1, 9, 0}, nil, false},
		"fewer than it says":  {[]int64{9, 2, 0, 0, 3, 1, 9, 0}, nil, false},
		"more than there are": {[]int64{9, 4, 0, 0, 3, 1, 9, 0}, nil, false},
		"a number less":       {[]int64{9, 1, 0, 0, 3, 1, 9}, nil, false},
		"half a state":        {[]int64{9, 0, 0, 0, 2, 1, 1, 0, 9, 1, 1, 10}, nil, false},
	} {
		_, _, b := divided(ops)
		left, ok := b.decodeSums(tt.res, ops, make([]law.Outcome, 3))
		if ok != tt.ok || ok && !slices.Equal(left, tt.left) {
			t.Errorf("%s: %v, %t", name, left, ok)
		}
	}
}
