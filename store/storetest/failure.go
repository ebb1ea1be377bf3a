package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// testCancelledContext calls a store with a context that has ended.
func testCancelledContext(t *testing.T, s store.Store) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := applyErr(ctx, s, take("cancelled", "k", bucket(1, 5), 5, T0)); !errors.Is(err, context.Canceled) {
		t.Errorf("Apply: got %v, want context.Canceled", err)
	}
	if _, err := s.Sweep(ctx, 10); !errors.Is(err, context.Canceled) {
		t.Errorf("Sweep: got %v, want context.Canceled", err)
	}
	if applyOne(t, s, take("cancelled", "k", bucket(1, 5), 5, T0)).Granted != 1 {
		t.Error("a cancelled call was charged")
	}
}

// testClosedStore closes a store twice, and then calls it.
func testClosedStore(t *testing.T, s store.Store) {
	applyOne(t, s, take("closed", "k", bucket(1, 5), 1, T0))
	for range 2 {
		if err := s.Close(); err != nil {
			t.Errorf("Close: got %v, want no error", err)
		}
	}
	if _, err := applyErr(t.Context(), s, take("closed", "k", bucket(1, 5), 1, T0)); !errors.Is(err, store.ErrClosed) {
		t.Errorf("Apply: got %v, want ErrClosed", err)
	}
	if _, err := s.Sweep(context.Background(), 10); !errors.Is(err, store.ErrClosed) {
		t.Errorf("Sweep: got %v, want ErrClosed", err)
	}
}

// testInspect reads cells and entries by a store.Inspector.
func testInspect(t *testing.T, s store.Store) {
	i, ok := store.As[store.Inspector](s)
	if !ok {
		t.Log("the store is no store.Inspector")
		return
	}
	ctx := context.Background()
	p := slidingLog(2, hour) // a store may remove cells that refuse nobody, so these count for an hour
	p.History = 10 * hour
	hourly := law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 9000, Step: hour, Drain: 1000}
	now := applyOne(t, s, take("inspect", "clock", hourly, 1, 0)).Clock
	for n := range 5 {
		applyOne(t, s, take("inspect log", fmt.Sprint(n%2), p, 1, now+int64(n)))
		applyOne(t, s, take("inspect", fmt.Sprint(n), hourly, 1, now))
	}
	block := take("inspect", "3", hourly, 1, now)
	block.Verb, block.TTL, block.Reason = law.Block, 3_600_000_000, "abuse"
	applyOne(t, s, block)
	applyOne(t, s, check(take("inspect", "never used", hourly, 1, now)))

	list := func(q store.Query) (names []string) {
		cells, clock, err := i.Cells(ctx, q)
		if err != nil {
			t.Fatalf("cells: %v", err)
		}
		if clock < now {
			t.Errorf("got clock %d, want %d at least, the time of a decision", clock, now)
		}
		for _, c := range cells {
			names = append(names, c.Limit+"/"+c.Key+c.Reason)
		}
		return names
	}
	for _, tt := range []struct {
		name string
		q    store.Query
		want []string
	}{
		{"a limit's cells in order", store.Query{Limit: "inspect"}, []string{
			"inspect/0", "inspect/1", "inspect/2", "inspect/3abuse", "inspect/4", "inspect/clock",
		}},
		{"all, a page", store.Query{Max: 2, After: law.Cell{Limit: "inspect", Key: "4"}}, []string{
			"inspect/clock", "inspect log/0",
		}},
		{"one", store.Query{Limit: "inspect", Key: "2", HasKey: true}, []string{"inspect/2"}},
		{"none", store.Query{Limit: "inspect", Key: "", HasKey: true}, nil},
		{"what is blocked", store.Query{Blocked: true}, []string{"inspect/3abuse"}},
	} {
		if got := list(tt.q); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
	entries, err := i.Entries(ctx, law.Cell{Limit: "inspect log", Key: "0"}, 2)
	if err != nil || len(entries) != 2 {
		t.Fatalf("got entries %v, %v; want two", entries, err)
	}
	if e := entries[0]; e.Granted || e.At != now+4 || e.Cost != 1000 || e.Number <= entries[1].Number ||
		!entries[1].Granted {
		t.Errorf("got entries %+v, want the refused attempt first", entries)
	}
}

// testBadQueries queries cells and entries that cannot exist: every driver refuses them, but not valid odd texts.
func testBadQueries(t *testing.T, s store.Store) {
	i, ok := store.As[store.Inspector](s)
	if !ok {
		return
	}
	applyOne(t, s, take("query", "k", slidingLog(1, 1_000_000), 1, T0))
	for _, text := range []string{
		"\x00", "a\x00", "\xff", "\xbf\x27", "\xed\xa0\x80", strings.Repeat("k", law.MaxKey+1),
	} {
		for field, q := range map[string]store.Query{
			"limit":        {Limit: text},
			"key":          {Limit: "query", Key: text, HasKey: true},
			"after: key":   {After: law.Cell{Key: text}},
			"after: limit": {After: law.Cell{Limit: text, Key: "k"}},
		} {
			name, _, _ := strings.Cut(field, ":")
			cells, _, err := i.Cells(context.Background(), q)
			if invalid, ok := errors.AsType[*law.InvalidError](err); !ok || invalid.Field != name ||
				!strings.Contains(err.Error(), field+": ") {
				t.Errorf("%+q: got %v, %v; want an InvalidError about %s", text, cells, err, field)
			}
		}
		for _, cell := range []law.Cell{{Limit: text, Key: "k"}, {Limit: "query", Key: text}} {
			if entries, err := i.Entries(context.Background(), cell, 1); !errors.Is(err, store.ErrInvalid) {
				t.Errorf("the entries of %+q: got %v, %v; want an ErrInvalid", cell, entries, err)
			}
		}
	}
	if entries, err := i.Entries(t.Context(), law.Cell{Limit: "query", Key: "k"}, -1); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("-1 entries: got %v, %v; want an ErrInvalid", entries, err)
	}
	if entries, err := i.Entries(t.Context(), law.Cell{Limit: "query", Key: "k"}, 0); err != nil || len(entries) != 0 {
		t.Errorf("0 entries: got %v, %v; want none", entries, err)
	}
	// These texts are valid limits and keys.
	for _, text := range []string{"'", "' or 1=1 -- ", `\`, `\'`, "%", "縗' or 1=1 -- ", "¿\\'", "x\x01", "\u2028"} {
		for _, q := range []store.Query{{Limit: text}, {Limit: "query", Key: text, HasKey: true}} {
			if cells, _, err := i.Cells(context.Background(), q); err != nil || len(cells) != 0 {
				t.Errorf("%+q: got %v, %v; want nothing", text, cells, err)
			}
		}
		q := store.Query{Limit: "query", After: law.Cell{Limit: "query", Key: text}}
		if cells, _, err := i.Cells(t.Context(), q); err != nil || (len(cells) == 1) != (text < "k") || len(cells) > 1 {
			t.Errorf("after %+q: got %v, %v; want the cell of the key k, if that is greater", text, cells, err)
		}
	}
}
