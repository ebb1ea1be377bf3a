package memory_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestConformance(t *testing.T) {
	storetest.Run(t, func(testing.TB) store.Store { return memory.New(&memory.Config{Names: true}) },
		&storetest.Options{Histories: tier.Pick(150, 6000, 6000)})
}

func TestConformanceWithoutConfigNames(t *testing.T) {
	storetest.Run(t, func(testing.TB) store.Store {
		s := memory.New(nil)
		return uninspectableStore{s, s}
	},
		&storetest.Options{Histories: tier.Pick(150, 6000, 6000)})
}

// uninspectableStore is a store without store.Inspector, but with a catalog.
type uninspectableStore struct {
	store.Store
	store.Catalog
}

func TestAFullStoreEvictsOnlyEmptyCells(t *testing.T) {
	const maxKeys = 256
	now := t0
	s := memory.New(&memory.Config{Clock: func() int64 { return now }, MaxKeys: maxKeys})
	p := law.Params{Kind: law.Bucket, Unit: 1_000_000, Capacity: 1_000_000, Step: 1, Drain: 1}
	takeOnce := func(key string) law.Outcome {
		outs := make([]law.Outcome, 1)
		if err := s.Apply(context.Background(),
			[]law.Op{{Verb: law.Take, Cell: law.Cell{Limit: "l", Key: key}, Params: p, Cost: 1_000_000, Count: 1}},
			outs); err != nil {
			t.Fatal(err)
		}
		return outs[0]
	}
	admitted := 0
	for i := range 10 * maxKeys {
		out := takeOnce(fmt.Sprint(i))
		if errors.Is(out.Err, store.ErrFull) != (i >= maxKeys) {
			t.Fatalf("key %d: got %+v, want ErrFull from key %d on", i, out, maxKeys)
		}
		admitted += int(out.Granted)
	}
	if admitted != maxKeys {
		t.Errorf("got %d admitted, want one for each of %d keys", admitted, maxKeys)
	}
	now += 2_000_000 // all cells are empty again
	for i := range maxKeys {
		if out := takeOnce(fmt.Sprint("new ", i)); out.Err != nil || out.Granted != 1 {
			t.Fatalf("every cell is empty: got %+v, want the new key admitted", out)
		}
	}
}

// TestANewKeyReplacesTheOnlyDeadCell fills a store up to MaxTotal. Between two new keys one cell dies, in any table.
// Each new key has to take its place.
func TestANewKeyReplacesTheOnlyDeadCell(t *testing.T) {
	t.Parallel()
	const maxTotal = 2000
	now := t0
	s := memory.New(&memory.Config{Clock: func() int64 { return now }, MaxTotal: maxTotal})
	takeAll := func(key string, life int64, byTakeOne bool) bool {
		p := law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 1000, Step: life, Drain: 1000}
		cell := law.Cell{Limit: fmt.Sprint(life), Key: key}
		if byTakeOne {
			b, ok := s.TakeOne(t.Context(), cell, &p, 1000)
			if ok {
				return b.Granted
			}
		}
		out := apply(t, s, law.Op{Verb: law.Take, Cell: cell, Params: p, Cost: 1000, Count: 1})
		if out.Err != nil && !errors.Is(out.Err, store.ErrFull) {
			t.Fatal(out.Err)
		}
		return out.Granted == 1
	}
	for i := range maxTotal - 1 {
		if !takeAll(fmt.Sprint(i), 3_600_000_000, i%2 == 0) {
			t.Fatalf("key %d was refused before the store was full", i)
		}
	}
	for i := range 500 {
		if !takeAll(fmt.Sprint("short ", i), 1000, i%2 == 0) {
			t.Fatalf("short key %d was refused, want the place of a dead cell", i)
		}
		if takeAll("one more", 1000, false) {
			t.Fatal("a key beyond MaxTotal was admitted")
		}
		now += 1000
	}
	for i := range maxTotal - 1 {
		if takeAll(fmt.Sprint(i), 3_600_000_000, i%3 == 0) {
			t.Fatalf("key %d was admitted twice, want its live cell kept", i)
		}
	}
	if n, err := s.Sweep(t.Context(), maxTotal); n != 1 || err != nil {
		t.Errorf("swept %d, %v; want 1, the last short key", n, err)
	}
}

func TestListsOfCellsNeedConfigNames(t *testing.T) {
	t.Parallel()
	s := memory.New(nil)
	if _, _, err := s.Cells(t.Context(), store.Query{}); !errors.Is(err, store.ErrSetup) {
		t.Errorf("a list of cells: got %v, want ErrSetup", err)
	}
	out := make([]law.Outcome, 1)
	p := law.Params{Kind: law.Log, Unit: 1, Capacity: 2, Step: 1_000_000}
	for range 2 {
		if err := s.Apply(t.Context(), []law.Op{{
			Verb: law.Take, Cell: law.Cell{Limit: "l", Key: "k"}, Params: p,
			Cost: 1, Count: 1,
		}}, out); err != nil {
			t.Fatal(err)
		}
	}
	cells, _, err := s.Cells(t.Context(), store.Query{Limit: "l", Key: "k", HasKey: true})
	if err != nil || len(cells) != 1 || cells[0].State != out[0].State {
		t.Errorf("the cell by its key: got %v, %v; want %+v", cells, err, out[0].State)
	}
	if list, err := s.Entries(t.Context(), law.Cell{Limit: "l", Key: "k"}, 5); err != nil || len(list) != 2 {
		t.Errorf("its entries: got %v, %v; want two", list, err)
	}
}

// TestMoreDefinitionsThanNumbersDoNotCollide uses 3000 definitions of a limit: more than the 1022 that a store numbers.
func TestMoreDefinitionsThanNumbersDoNotCollide(t *testing.T) {
	t.Parallel()
	s := memory.New(&memory.Config{Clock: func() int64 { return t0 }})
	for round := range int64(2) {
		for i := range int64(3000) {
			p := law.Params{Kind: law.Bucket, Unit: 1, Capacity: i + 10, Step: 1_000_000, Drain: 1}
			b, ok := s.TakeOne(t.Context(), law.Cell{Limit: "l", Key: fmt.Sprint(i)}, &p, i+6)
			if !ok || b.Granted != (round == 0) || b.Used != i+6 {
				t.Fatalf("round %d, limit %d: got %+v, %v; want it admitted in round 0 alone", round, i, b, ok)
			}
		}
	}
}
