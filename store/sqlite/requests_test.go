package sqlite_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"slices"
	"testing"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/sqlite"
)

// slowBucket has ten units, of which one credit drains each hour.
var slowBucket = law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 10_000, Step: 3_600_000_000, Drain: 1}

// requestWithID returns a request that charges two units of each key, under an id that lives for a minute.
func requestWithID(id string, group uint32, now int64, keys ...string) (ops []law.Op) {
	for _, key := range keys {
		ops = append(ops, law.Op{
			Verb: law.Take, Group: group, Cell: law.Cell{Limit: "l", Key: key}, Params: slowBucket, Cost: 2000,
			Count: 1, ID: id, TTL: 60_000_000, Now: now,
		})
	}
	return ops
}

func apply(tb testing.TB, s store.Store, ops ...law.Op) []law.Outcome {
	tb.Helper()
	outs := make([]law.Outcome, len(ops))
	if err := s.Apply(context.Background(), ops, outs); err != nil {
		tb.Fatal(err)
	}
	for i := range outs {
		if outs[i].Err != nil {
			tb.Fatal(outs[i].Err)
		}
	}
	return outs
}

// countRows returns the numbers of rows of some tables of a file.
func countRows(tb testing.TB, path string, tables ...string) (n []int) {
	tb.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		tb.Fatal(err)
	}
	defer db.Close()
	for _, table := range tables {
		var rows int
		if err := db.QueryRow("select count(*) from " + table).Scan(&rows); err != nil {
			tb.Fatal(err)
		}
		n = append(n, rows)
	}
	return n
}

// TestARequestIsOneRow counts rows while requests with ids are charged, settled in part, reset and charged again, and
// swept.
func TestARequestIsOneRow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	now := int64(1_700_000_000_000_000)
	s, err := sqlite.Open(context.Background(), "sqlite:"+path, &sqlite.Config{Clock: func() int64 { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	expectRows := func(when string, requests, resets, cells int) {
		t.Helper()
		got, want := countRows(t, path, "requests", "resets", "cells"), []int{requests, resets, cells}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %d requests, resets and cells, want %d", when, got, want)
		}
	}
	keys := []string{"a", "b", "c", "d", "e", "f"}
	request := requestWithID("id", 1, now, keys...)
	apply(t, s, request...)
	expectRows("charged", 1, 0, 6)
	settle := slices.Clone(request[:2])
	for i := range settle {
		settle[i].Verb, settle[i].Cost, settle[i].TTL = law.Settle, 1000, 0
	}
	apply(t, s, settle...)
	expectRows("settled in part", 1, 0, 6)
	apply(t, s, requestWithID("id", 1, now, "g")...)
	apply(t, s, requestWithID("another", 1, now, "a", "g")...)
	expectRows("two more requests", 3, 0, 7)

	reset := law.Op{
		Verb: law.Reset, Cell: law.Cell{Limit: "l", Key: "f"}, Params: slowBucket, Cost: 1, Count: 1, Now: now,
	}
	apply(t, s, reset)
	expectRows("reset", 3, 1, 6)
	for i, out := range apply(t, s, request...) {
		if out.Replayed == (i == 5) || out.Granted != 1 {
			t.Errorf("key %s again: got %+v, want f charged and the others replayed", keys[i], out)
		}
	}
	expectRows("charged again", 3, 1, 7)
	if _, err := s.Sweep(context.Background(), 1000); err != nil {
		t.Fatal(err)
	}
	expectRows("swept too early", 3, 1, 7)

	now += 10 * 3_600_000_000 * slowBucket.Capacity
	if _, err := s.Sweep(context.Background(), 1000); err != nil {
		t.Fatal(err)
	}
	expectRows("swept", 0, 0, 0)
}
