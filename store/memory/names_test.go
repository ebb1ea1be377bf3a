package memory_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// TestCellsListsTheKeysThatExist makes, resets and sweeps cells with keys of many lengths at random. The store must
// list exactly those that exist.
func TestCellsListsTheKeysThatExist(t *testing.T) {
	t.Parallel()
	now := t0
	bucket := law.Params{Kind: law.Bucket, Unit: 1_000_000, Capacity: 100_000_000, Step: 1, Drain: 1}
	s := memory.New(&memory.Config{Clock: func() int64 { return now }, Names: true})
	const hour = 3_600_000_000
	rng := rand.New(rand.NewPCG(1, 2))
	existing := map[law.Cell]bool{}
	cellOf := func(n int) law.Cell {
		key := strings.Repeat(strconv.Itoa(n)+"/", 1+n%40)
		if n%97 == 0 {
			key = strings.Repeat("k", 300) + key
		}
		return law.Cell{Limit: "limit-" + strconv.Itoa(n%3), Key: key}
	}
	out := make([]law.Outcome, 1)
	for round := range 40 {
		for range 400 {
			n := rng.IntN(3000)
			p, verb := bucket, law.Take
			switch {
			case n%5 == 0:
				p = law.Params{Kind: law.Log, Unit: 1, Capacity: 9, Step: hour}
			case rng.IntN(2) == 0 && existing[cellOf(n)]:
				verb = law.Reset
			}
			op := law.Op{Verb: verb, Cell: cellOf(n), Params: p}
			if verb == law.Take {
				op.Cost, op.Count = p.Unit, 1
			}
			if err := s.Apply(context.Background(), []law.Op{op}, out); err != nil || out[0].Err != nil {
				t.Fatal(err, out[0].Err)
			}
			existing[op.Cell] = verb == law.Take || existing[op.Cell] && out[0].Granted == 0
		}
		if round%10 == 9 {
			now += 2 * hour
			for n := 1; n > 0; {
				var err error
				if n, err = s.Sweep(t.Context(), 1000); err != nil {
					t.Fatal(err)
				}
			}
			clear(existing)
		}
		expectCells(t, s, existing)
	}
}

// expectCells checks that a store lists exactly the existing cells, in order.
func expectCells(t *testing.T, s store.Inspector, existing map[law.Cell]bool) {
	t.Helper()
	var want []law.Cell
	for cell, exists := range existing {
		if exists {
			want = append(want, cell)
		}
	}
	slices.SortFunc(want, law.Cell.Compare)
	var got []law.Cell
	for q := (store.Query{Max: 1000}); ; q.After = got[len(got)-1] {
		cells, _, err := s.Cells(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cells {
			got = append(got, c.Cell)
		}
		if len(cells) < q.Max {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("got %d keys listed, want %d", len(got), len(want))
	}
}

// TestAPageOfCellsAllocatesLittle lists 3 of 20,000 keys, with at most one allocation for each hundred keys.
func TestAPageOfCellsAllocatesLittle(t *testing.T) {
	s := memory.New(&memory.Config{Names: true})
	defer s.Close()
	p := law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 5000, Step: 1_000_000_000, Drain: 1}
	const keys = 20_000
	for i := range keys {
		cell := law.Cell{Limit: "l", Key: "key " + strconv.Itoa(10_000+i)}
		ops := []law.Op{{Cell: cell, Params: p, Cost: 1000, Count: 1, Verb: law.Take}}
		if err := s.Apply(t.Context(), ops, make([]law.Outcome, 1)); err != nil {
			t.Fatal(err)
		}
	}
	var page []store.Cell
	q := store.Query{After: law.Cell{Limit: "l", Key: "key 19999"}, Max: 3}
	allocations := testing.AllocsPerRun(3, func() {
		var err error
		if page, _, err = s.Cells(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	})
	if len(page) != 3 || page[0].Key != "key 20000" || page[2].Key != "key 20002" {
		t.Errorf("got the page %+v, want keys 20000 to 20002", page)
	}
	if allocations > keys/100 {
		t.Errorf("got %v allocations for a page of 3 of %d keys, want %d at most", allocations, keys, keys/100)
	}
}
