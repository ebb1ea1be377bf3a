package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
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

// TestIDsOfAnOlderFileAreKnown opens a file in which each cell of a request had a row of its own.
func TestIDsOfAnOlderFileAreKnown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	exec := func(text string, args ...any) {
		t.Helper()
		if _, err := db.ExecContext(context.Background(), text, args...); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"001_cells", "002_admissions", "003_rooms", "004_catalog"} {
		text, err := os.ReadFile(filepath.Join("sql", name+".sql"))
		if err != nil {
			t.Fatal(err)
		}
		exec(string(text))
	}
	exec("pragma user_version = 1004")
	now := store.SystemClock()
	request := identified(`an "id"`, 1, 0, `quoted "a"`, "b", "c")
	records := []*law.Record{{}, {}, {}}
	law.Apply(request, make([]law.Outcome, 3), now, records)
	for i, r := range records {
		c, st, a := request[i].Cell, r.State, r.Admit[0]
		exec(`insert into cells values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '')`, c.Limit, c.Key, st.Kind, st.Level, st.Prev, st.At,
			st.Unit, st.Step, st.EmptyAt, st.BlockedUntil)
		exec(`insert into admissions values (?, ?, ?, ?, ?, ?, ?, ?, ?)`, c.Limit, c.Key, a.ID, a.Fingerprint,
			a.Terms.String(), a.Cost, a.Charged(), a.Settled, a.KeepUntil)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	s := open(t, "sqlite:"+path)
	for i, out := range apply(t, s, request...) {
		if !out.Replayed || out.Used != 2000 {
			t.Errorf("%s: %+v, want it replayed", request[i].Cell.Key, out)
		}
	}
	for i := range request {
		request[i].Verb, request[i].Cost, request[i].TTL = law.Settle, 500, 0
	}
	for i, out := range apply(t, s, request...) {
		if out.Granted != 1500 {
			t.Errorf("%s settled: %+v, want 1500 given back", request[i].Cell.Key, out)
		}
	}
	if n := rows(t, path, "requests"); n[0] != 3 {
		t.Errorf("%d requests, want three", n[0])
	}
	if n := fmt.Sprint(rows(t, path, "cells where ids_until > 0")); n != "[3]" {
		t.Errorf("%s cells say for how long ids are known", n)
	}
}
