package mysql_test

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/mysql"
)

// TestAlternativesByCallDecideAsMemory calls headgate_group with random requests of several charges, most with
// alternatives, and compares all outcomes, cells and attempts with a memory store that decides them at the server's
// times.
func TestAlternativesByCallDecideAsMemory(t *testing.T) {
	t.Parallel()
	db, _ := openDBAndStore(t)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	memoryStore := memory.New(&memory.Config{Names: true})
	limits := []law.Params{
		{Kind: law.Bucket, Unit: 1000, Capacity: 5000, Step: 1000, Drain: 100},
		{Kind: law.Bucket, Unit: 1000, Capacity: 9000, Step: 200_000, Drain: 3000, Block: 300_000},
		{Kind: law.Bucket, Anchor: law.Calendar, Unit: 1000, Capacity: 9000, Step: 86_400_000_000, Drain: 9000},
		{Kind: law.Window, Unit: 1000, Capacity: 7000, Step: 200_000},
		{Kind: law.Log, Unit: 1000, Capacity: 7000, Step: 200_000, History: 3_600_000_000},
		{Kind: law.Log, Unit: 1000, Capacity: 6000, Step: 300_000},
	}
	seed := tier.Seed()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var cells []law.Cell
	for i := range 2 * len(limits) {
		cells = append(cells, law.Cell{Limit: fmt.Sprint("limit ", i/2), Key: fmt.Sprint("schlüssel ", i%2)})
	}
	results := map[string]int{} // how many requests had a result
	hasAll := func() bool {
		for _, result := range []string{
			"first", "other", "refused", "replayed first", "replayed other", "reused", "verb 4", "stale",
		} {
			if results[result] == 0 {
				return false
			}
		}
		return true
	}
	requests := map[string][]law.Op{}
	now := serverClock(t, db)
	rounds := tier.Pick(400, 3000, 10_000)
	for round := 0; round < rounds || round < 10_000 && !hasAll(); round++ {
		ops := randomAlternatives(rng, now, limits, cells)
		if id := ops[0].ID; id != "" && requests[id] != nil && rng.IntN(3) > 0 {
			ops = requests[id] // most requests with the id are the same
		} else if id != "" {
			requests[id] = ops
		}
		if known := requests[fmt.Sprint("№ ", rng.IntN(4))]; known != nil && rng.IntN(8) == 0 {
			op := known[rng.IntN(len(known))]
			op.Verb, op.Alternative, op.Cost, op.TTL = law.Settle, 0, []int64{law.Cancelled, 0, 500}[rng.IntN(3)], 0
			ops = []law.Op{op}
		}
		call, args := groupCall(ops...)
		if rng.IntN(15) == 0 {
			ops = []law.Op{{Verb: law.Reset, Cell: ops[0].Cell, Params: ops[0].Params, Count: 1}}
			call = mysql.WithRevision("headgate_ask") + "(6,?,?,1,0,1,1,1,1,0,0,1,0,0,'',0,0,0,0,0,0)"
			args = []any{ops[0].Cell.Limit, ops[0].Cell.Key}
			mustExec(t, conn, "SET @hg_all = '[]', @hg_stale = 0")
		}
		mustExec(t, conn, "CALL "+call, args...)
		var all string
		var clock int64
		var stale bool
		err := conn.QueryRowContext(t.Context(), "SELECT @hg_all, @hg_clk, @hg_stale").Scan(&all, &clock, &stale)
		if err != nil {
			t.Fatal(err)
		}
		var rows [][]int64
		if err := json.Unmarshal([]byte(all), &rows); err != nil {
			t.Fatalf("%s: %v", all, err)
		}
		for i := range ops {
			ops[i].Now = clock
		}
		wants := make([]law.Outcome, len(ops))
		if err := memoryStore.Apply(t.Context(), ops, wants); err != nil {
			t.Fatal(err)
		}
		result := resultOf(ops, wants)
		results[result]++
		gots := make([]law.Outcome, len(ops))
		resultErrs := [...]error{3: law.ErrReused, 4: law.ErrUnknownID, 5: law.ErrSettled}
		for _, r := range rows {
			out := &gots[r[0]-1]
			*out = law.Outcome{Granted: r[1], Used: r[2], Clock: r[3], RetryAt: r[4]}
			out.Stale, out.Replayed = r[9] == 1, r[9] == 2
			out.State.At, out.State.EmptyAt, out.State.BlockedUntil = r[5], r[6], r[7]
			if r[9] > 2 {
				out.Err = resultErrs[r[9]]
			}
		}
		for i := range ops {
			want, got := wants[i], gots[i]
			s := want.State
			want.State = law.State{At: s.At, EmptyAt: s.EmptyAt, BlockedUntil: s.BlockedUntil}
			want.StartAt, want.EntryNumber = 0, 0
			if want.Stale {
				got.Clock = want.Clock
			}
			if want.Err != nil && (errors.Is(want.Err, got.Err) || got == (law.Outcome{}) && i > 0) {
				want, got = law.Outcome{}, law.Outcome{}
			}
			if ops[i].Verb != law.Reset && got != want || stale != (result == "stale") {
				t.Fatalf("round %d charge %d of %+v:\n got %+v\nwant %+v", round, i, ops, gots, wants)
			}
		}
		if round < 50 || round%10 == 0 { // at first many cells are new
			expectSameCells(t, conn, memoryStore, limits, cells)
		}
	}
	t.Logf("%v", results)
	if !hasAll() {
		t.Error("got no request of some result, want one of each")
	}
	expectSameCells(t, conn, memoryStore, limits, cells)
}

// randomAlternatives returns a request with up to three alternatives of up to three charges, around a time.
func randomAlternatives(rng *rand.Rand, now int64, limits []law.Params, cells []law.Cell) (ops []law.Op) {
	const day = 86_400_000_000
	today := now / day * day
	var id string
	if rng.IntN(2) == 0 {
		id = fmt.Sprint("№ ", rng.IntN(4))
	}
	life := 1 + rng.Int64N(300_000)
	for alternative := range 1 + rng.IntN(3) {
		window := [4]int64{today - day, today, today + day, today + 2*day}
		if rng.IntN(12) == 0 {
			window = [4]int64{day, 2 * day, 3 * day, 4 * day} // stale
		}
		seen := map[law.Cell]bool{}
		for range 1 + rng.IntN(3) {
			n := rng.IntN(len(limits))
			op := law.Op{
				Verb: law.Take, Group: 1, Alternative: uint8(alternative + 1), //nolint:gosec // few
				Cell: cells[2*n+rng.IntN(2)], Params: limits[n], Cost: 500 * (1 + rng.Int64N(6)), Count: 1, ID: id,
			}
			if limits[n].Anchor == law.Calendar {
				op.Window = window
			}
			if id != "" {
				op.TTL = life
			}
			if rng.IntN(8) == 0 {
				op.Ceiling = 3000
			}
			if id == "" || !seen[op.Cell] {
				ops = append(ops, op)
			}
			seen[op.Cell] = true
		}
	}
	return ops
}

// resultOf returns what became of a request, in words.
func resultOf(ops []law.Op, outs []law.Outcome) string {
	switch {
	case slices.ContainsFunc(outs, func(out law.Outcome) bool { return out.Stale }):
		return "stale"
	case errors.Is(outs[0].Err, law.ErrReused):
		return "reused"
	case outs[0].Err != nil:
		return outs[0].Err.Error()
	case ops[0].Verb != law.Take:
		return fmt.Sprint("verb ", ops[0].Verb)
	}
	result := "refused"
	for i, j := 0, law.AlternativeEnd(ops, 0); i < len(ops); i, j = j, law.AlternativeEnd(ops, j) {
		admitted, replayed := true, false
		for _, out := range outs[i:j] {
			admitted, replayed = admitted && out.Granted == 1, replayed || out.Replayed
		}
		if admitted {
			if result = "first"; i > 0 {
				result = "other"
			}
		}
		if replayed {
			return "replayed " + result
		}
	}
	return result
}

// expectSameCells compares the cells and the attempts of the server with those of a memory store.
func expectSameCells(t *testing.T, conn *sql.Conn, memoryStore *memory.Store, limits []law.Params, cells []law.Cell) {
	t.Helper()
	count := 0
	for i, cell := range cells {
		outs := make([]law.Outcome, 1)
		check := law.Op{
			Verb: law.Check, Cell: cell, Params: limits[i/2], Cost: 1, Count: 1, Now: 1, Window: [4]int64{0, 1, 2, 3},
		}
		if err := memoryStore.Apply(t.Context(), []law.Op{check}, outs); err != nil || outs[0].Err != nil {
			t.Fatal(err, outs[0].Err)
		}
		var got law.State
		err := conn.QueryRowContext(t.Context(), "SELECT law, level, prev, at, unit, step, empty_at, blocked_until FROM headgate_cells "+
			"WHERE limit_name = ? AND cell_key = ?", cell.Limit, cell.Key).
			Scan(&got.Kind, &got.Level, &got.Prev, &got.At, &got.Unit, &got.Step, &got.EmptyAt, &got.BlockedUntil)
		if err == nil {
			count++
		} else if !errors.Is(err, sql.ErrNoRows) {
			t.Fatal(err)
		}
		if got != outs[0].State {
			t.Fatalf("%+v:\n got %+v\nwant %+v", cell, got, outs[0].State)
		}
		if limits[i/2].History == 0 {
			continue // memory removes entries as they expire
		}
		entries, err := memoryStore.Entries(t.Context(), cell, 1000)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, e := range entries {
			want = append(want, fmt.Sprintf("%d %d %s %t", e.At, e.Cost, e.ID, e.Granted))
		}
		gotEntries := columnsText(t, conn, "entry", "SELECT CONCAT_WS(' ', at, cost, id, IF(granted, 'true', 'false')) AS entry "+
			"FROM headgate_entries WHERE limit_name = ? AND cell_key = ? ORDER BY number DESC LIMIT 1000", cell.Limit, cell.Key)
		if gotEntries != strings.Join(want, ", ") {
			t.Fatalf("attempts of %+v:\n got %s\nwant %s", cell, gotEntries, strings.Join(want, ", "))
		}
	}
	if got := columnsText(t, conn, "n", "SELECT COUNT(*) AS n FROM headgate_cells"); got != fmt.Sprint(count) {
		t.Fatalf("got %s cells, want %d: no other was charged", got, count)
	}
}
