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

var perHour = law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 10_000, Step: 3_600_000_000, Drain: 1}

// identified returns a request with an id, of a charge of two for each key, for a minute.
func identified(id string, group uint32, now int64, keys ...string) (ops []law.Op) {
	for _, key := range keys {
		ops = append(ops, law.Op{
			Verb: law.Take, Group: group, Cell: law.Cell{Limit: "l", Key: key}, Params: perHour, Cost: 2000, Count: 1,
			ID: id, TTL: 60_000_000, Now: now,
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

// rows returns how many rows the tables of a file have.
func rows(tb testing.TB, path string, tables ...string) (n []int) {
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

// TestARequestIsOneRow: also when a part is settled, when another request shares a cell, and when
// a part is charged again after a reset.
func TestARequestIsOneRow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	now := int64(1_700_000_000_000_000)
	s, err := sqlite.Open(context.Background(), "sqlite:"+path, &sqlite.Config{Clock: func() int64 { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	want := func(what string, requests, resets, cells int) {
		t.Helper()
		got, is := rows(t, path, "requests", "resets", "cells"), []int{requests, resets, cells}
		if !slices.Equal(got, is) {
			t.Errorf("%s: %d requests, resets and cells, want %d", what, got, is)
		}
	}
	six := []string{"a", "b", "c", "d", "e", "f"}
	request := identified("id", 1, now, six...)
	apply(t, s, request...)
	want("charged", 1, 0, 6)
	settle := slices.Clone(request[:2])
	for i := range settle {
		settle[i].Verb, settle[i].Cost, settle[i].TTL = law.Settle, 1000, 0
	}
	apply(t, s, settle...)
	want("settled in part", 1, 0, 6)
	apply(t, s, identified("id", 1, now, "g")...)
	apply(t, s, identified("another", 1, now, "a", "g")...)
	want("two more requests", 3, 0, 7)

	reset := law.Op{Verb: law.Reset, Cell: law.Cell{Limit: "l", Key: "f"}, Params: perHour, Cost: 1, Count: 1, Now: now}
	apply(t, s, reset)
	want("reset", 3, 1, 6)
	for i, out := range apply(t, s, request...) {
		if out.Replayed == (i == 5) || out.Granted != 1 {
			t.Errorf("%s again: %+v, want the last one charged, the others as before", six[i], out)
		}
	}
	want("charged again", 3, 1, 7)
	if _, err := s.Sweep(context.Background(), 1000); err != nil {
		t.Fatal(err)
	}
	want("swept too early", 3, 1, 7)

	now += 10 * 3_600_000_000 * perHour.Capacity
	if _, err := s.Sweep(context.Background(), 1000); err != nil {
		t.Fatal(err)
	}
	want("swept", 0, 0, 0)
}
