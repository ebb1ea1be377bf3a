package mysql_test

import (
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/mysql"
)

// TestConcurrentTakeOnceChargesOnce checks that 32 concurrent calls with four ids charge each id once.
func TestConcurrentTakeOnceChargesOnce(t *testing.T) {
	t.Parallel()
	db, _ := openDBAndStore(t)
	expectOneChargePerID(t, db)
}

// TestGaleraCallsAreExact checks concurrent calls on two nodes: each id is charged once, reservations start one second
// apart, and three leases are acquired.
func TestGaleraCallsAreExact(t *testing.T) {
	urls := dbtest.Galera(t)
	openAndMigrate(t, urls[0])
	const waitForWrites = "wsrep_sync_wait=15"
	nodes := []*sql.DB{openPlainDB(t, urls[0], waitForWrites), openPlainDB(t, urls[1], waitForWrites)}
	var ignored int // a read waits for the writes of the other node; a CALL would not wait for its procedure
	if err := nodes[1].QueryRowContext(t.Context(), "SELECT 1").Scan(&ignored); err != nil {
		t.Fatal(err)
	}
	expectOneChargePerID(t, nodes...)

	var mu sync.Mutex
	var starts []time.Time
	acquired := 0
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			var allowed, replayed int
			var start time.Time
			var limit string
			var delay, retry any
			reserve := func() error {
				return nodes[i%2].QueryRowContext(t.Context(),
					"CALL headgate_reserve('token-bucket 1/s burst 1', 'r', 1, 60, null, null)").
					Scan(&allowed, &start, &delay, &retry, &limit, &replayed)
			}
			err := reserve()
			for isConflict(err) {
				err = reserve()
			}
			if err != nil || allowed != 1 {
				t.Errorf("headgate_reserve: got allowed %d, %v; want 1", allowed, err)
			}
			got := rowText(t, nodes[i%2], "CALL headgate_acquire('concurrency 3 ttl 60s', 'c', 1)")
			mu.Lock()
			defer mu.Unlock()
			starts = append(starts, start)
			if strings.HasPrefix(got, "acquired=1 ") {
				acquired++
			}
		})
	}
	wg.Wait()
	if acquired != 3 {
		t.Errorf("got %d leases, want 3", acquired)
	}
	slices.SortFunc(starts, time.Time.Compare)
	for i := 1; i < len(starts); i++ {
		if d := starts[i].Sub(starts[i-1]); d < time.Second || i > 1 && d > 1100*time.Millisecond {
			t.Errorf("got starts %d and %d %v apart, want 1s", i-1, i, d)
		}
	}
}

// expectOneChargePerID makes 32 concurrent calls with four ids, over the pools in turn, and checks that four charge.
func expectOneChargePerID(t *testing.T, dbs ...*sql.DB) {
	t.Helper()
	var charged atomic.Int64
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			id := string(rune('a' + i%4))
			got := rowText(t, dbs[i%len(dbs)], "CALL headgate_take_once('"+id+"', 'sliding-log 100/1h', 'k', 2, 0)")
			if !strings.HasPrefix(got, "allowed=1 ") {
				t.Errorf("%s: got %s, want allowed=1", id, got)
			}
			if strings.HasSuffix(got, "replayed=0") {
				charged.Add(1)
			}
		})
	}
	wg.Wait()
	if charged.Load() != 4 {
		t.Errorf("got %d calls that were not replayed, want 4", charged.Load())
	}
	if got := rowText(t, dbs[0], "CALL headgate_check('sliding-log 100/1h', 'k', 1)"); !strings.HasPrefix(
		got, "allowed=1 remaining=92 ") {
		t.Errorf("headgate_check: got %s, want 8 of 100 used", got)
	}
}

// listBothLogs lists the entries of a cell that count after a time, in the server and in memory, for a failure message.
func listBothLogs(t *testing.T, conn *sql.Conn, memoryStore *memory.Store, cell law.Cell, after int64) string {
	var b strings.Builder
	rows, err := conn.QueryContext(t.Context(),
		"SELECT at, expires_at, cost, granted FROM headgate_entries WHERE limit_name = ? AND cell_key = ? AND expires_at > ? ORDER BY expires_at", cell.Limit, cell.Key, after)
	if err != nil {
		return err.Error()
	}
	defer rows.Close()
	for rows.Next() {
		var at, expires, cost, granted int64
		if err := rows.Scan(&at, &expires, &cost, &granted); err != nil {
			return err.Error()
		}
		fmt.Fprintf(&b, "server: at %d expires %d cost %d granted %d\n", at, expires, cost, granted)
	}
	if err := rows.Err(); err != nil {
		return err.Error()
	}
	entries, err := memoryStore.Entries(t.Context(), cell, 1000)
	if err != nil {
		return err.Error()
	}
	for _, e := range entries {
		if e.Granted && e.ExpiresAt > after {
			fmt.Fprintf(&b, "memory: at %d expires %d cost %d\n", e.At, e.ExpiresAt, e.Cost)
		}
	}
	return b.String()
}

// TestVerbsByCallDecideAsMemory calls the private procedures that the public ones call, with random ops, and compares
// the answers and the cells with a memory store that decides the same ops at the server's times.
//
// Another session keeps a transaction open that began before all ops. So nothing is purged, the index of entries still
// has the versions from before they were renewed or settled, and the server has to look up the current ones.
func TestVerbsByCallDecideAsMemory(t *testing.T) {
	t.Parallel()
	db, _ := openDBAndStore(t)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	oldSession, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer oldSession.Close()
	for _, statement := range []string{
		"START TRANSACTION WITH CONSISTENT SNAPSHOT",
		"INSERT INTO headgate_limits (name, rule) VALUES ('not-committed', 'token-bucket 1/s')",
	} {
		mustExec(t, oldSession, statement)
	}
	memoryStore := memory.New(&memory.Config{Names: true})
	limits := []law.Params{
		{Kind: law.Bucket, Unit: 1000, Capacity: 5000, Step: 1000, Drain: 100},
		{Kind: law.Bucket, Unit: 1000, Capacity: 9000, Step: 200_000, Drain: 3000, Block: 3000},
		{Kind: law.Bucket, Unit: 1, Capacity: 1 << 52, Step: 7, Drain: 1 << 50},
		{Kind: law.Bucket, Anchor: law.Epoch, Unit: 1000, Capacity: 5000, Step: 50_000, Drain: 5000},
		{Kind: law.Window, Unit: 1000, Capacity: 7000, Step: 300_000},
		{Kind: law.Log, Unit: 1000, Capacity: 7000, Step: 300_000, History: 400_000},
		{Kind: law.Log, Unit: 1000, Capacity: 7000, Step: 60_000_000, Leased: true},
	}
	seed := tier.Seed()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	memoryEntries := map[int64]int64{} // the number of an entry in memory, by its number in the server
	var leases []int64                 // the numbers in the server of the last eight leases
	// Corrected and extended charges and texts of headgate_ask, by law, and charges that headgate_direct decided.
	corrected, extended, askCalls, directCalls := map[law.Kind]int{}, map[law.Kind]int{}, map[law.Kind]int{}, 0
	hasAllKinds := func(counts map[law.Kind]int) bool {
		return counts[law.Bucket] > 0 && counts[law.Window] > 0 && counts[law.Log] > 0
	}
	isEnough := func() bool {
		return hasAllKinds(corrected) && hasAllKinds(extended) && hasAllKinds(askCalls) && directCalls >= 20
	}
	// Extensions of logs are rare, so there may be more rounds.
	rounds := tier.Pick(300, 3500, 10_000)
	for round := 0; round < rounds || round < 10_000 && !isEnough(); round++ {
		n := rng.IntN(len(limits))
		p := limits[n]
		if rng.IntN(40) == 0 {
			p.Unit = 100 // the limit was changed
		}
		op := law.Op{
			Verb: law.Take, Cell: law.Cell{Limit: fmt.Sprint("limit ", n), Key: fmt.Sprint("schlüssel ", rng.IntN(2))},
			Params: p,
			Cost:   1 + rng.Int64N(p.Capacity/2), Count: 1,
		}
		if rng.IntN(3) > 0 {
			op.Cost = 1000 * (1 + rng.Int64N(3))
		}
		setID := func() {
			id := rng.Int64N(6)
			if op.ID, op.TTL = fmt.Sprint("№ ", id), 1+rng.Int64N(400_000); rng.IntN(12) > 0 {
				op.Cost = 1000 * (1 + id%3) // the cost of most ops with the id
			}
		}
		var text string
		var args []any
		isAsk := false
		switch variant := rng.IntN(4); {
		case p.Leased && variant > 1 && len(leases) > 0:
			lease := leases[rng.IntN(len(leases))]
			op.Verb, op.EntryNumber = law.Renew, memoryEntries[lease]
			p.Step /= 1 + rng.Int64N(3) // the limit's time to live may have changed
			op.Params = p
			if variant == 3 {
				op.Verb, op.Cost = law.Return, law.Max
			}
			text, args = mysql.WithRevision("headgate_ask")+"(?,?,?,3,0,?,0,?,0,0,0,0,0,?,'',0,0,0,0,0,0)",
				[]any{op.Verb, op.Cell.Limit, op.Cell.Key, p.Unit, p.Step, lease}
		case variant == 0:
			setID()
			op.Verb, op.Cost, op.TTL = law.Settle, rng.Int64N(4000), 0
			text, args = groupCall(op)
		case variant == 1 && rng.IntN(2) == 0:
			if setID(); rng.IntN(6) == 0 {
				op.Ceiling = 1 + rng.Int64N(p.Capacity)
			}
			op.Verb, op.Cost = law.Extend, op.Cost+rng.Int64N(3000)
			text, args = groupCall(op)
		default:
			if n < 3 && rng.IntN(2) == 0 {
				op.Deferred, op.Ceiling = true, p.Ceiling(rng.Int64N(400_000))
			}
			if !op.Deferred && rng.IntN(2) == 0 || rng.IntN(3) > 0 {
				setID()
			}
			if text, args = groupCall(op); op.Alone() && rng.IntN(2) == 0 {
				text = mysql.WithRevision("headgate_ask") + "(1,?,?,?,?,?,?,?,?,?,?,?,0,0,'',0,0,0,0,0,0)"
				args = []any{
					op.Cell.Limit, op.Cell.Key, p.Kind, p.Anchor, p.Unit, p.Capacity, p.Step, p.Drain, p.Block,
					p.History, op.Cost,
				}
				isAsk = true
			}
		}
		mustExec(t, conn, "SET @hg_how = 0, @hg_when = 0, @hg_charged = 0")
		if op.Verb == law.Take && op.Alone() && p.Block == 0 && p.Kind == law.Bucket && p.Anchor != law.Calendar &&
			op.Ceiling == 0 && callDirect(t, conn, &op) {
			directCalls++
		} else if _, err := conn.ExecContext(t.Context(), "CALL "+text, args...); err != nil {
			t.Fatalf("%s %v: %v", text, args, err)
		} else if isAsk {
			askCalls[p.Kind]++
		}
		// result is 2 for a replay, 3 to 5 for the errors in resultErrs.
		var granted, used, clock, retryAt, result, startAt, entry, charged, level, prev, at, emptyAt, blockedUntil int64
		if err := conn.QueryRowContext(t.Context(),
			"SELECT @hg_g, @hg_x, @hg_clk, @hg_retry, @hg_how, @hg_when, COALESCE(@hg_entry, 0), COALESCE(@hg_charged, 0)").
			Scan(&granted, &used, &clock, &retryAt, &result, &startAt, &entry, &charged); err != nil {
			t.Fatal(err)
		}
		if op.Verb == law.Extend {
			granted = charged
		}
		err := conn.QueryRowContext(t.Context(),
			"SELECT level, prev, at, empty_at, blocked_until FROM headgate_cells WHERE limit_name = ? AND cell_key = ?",
			op.Cell.Limit, op.Cell.Key).
			Scan(&level, &prev, &at, &emptyAt, &blockedUntil)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			t.Fatal(err)
		}
		op.Now = clock
		outs := make([]law.Outcome, 1)
		if err := memoryStore.Apply(t.Context(), []law.Op{op}, outs); err != nil {
			t.Fatal(err)
		}
		want := outs[0]
		resultErrs := [...]error{3: law.ErrReused, 4: law.ErrUnknownID, 5: law.ErrSettled}
		if want.Err != nil || result > 2 && op.Verb != law.Renew && op.Verb != law.Return {
			if result < 3 || !errors.Is(want.Err, resultErrs[result]) {
				t.Fatalf("round %d %+v: got result %d, want %v", round, op, result, want.Err)
			}
			continue
		}
		if granted != want.Granted || used != want.Used && op.Verb != law.Renew || retryAt != want.RetryAt ||
			op.Verb <= law.Settle && op.Verb != law.Return &&
				(startAt != want.StartAt || (result == 2) != want.Replayed) {
			t.Fatalf("round %d %+v:\n got granted %d used %d retry %d result %d start %d\nwant %+v\n%s", round, op, granted,
				used, retryAt, result, startAt, want, listBothLogs(t, conn, memoryStore, op.Cell, clock))
		}
		if s := want.State; !want.Replayed && (level != s.Level || prev != s.Prev || at != s.At ||
			emptyAt != s.EmptyAt || blockedUntil != s.BlockedUntil) {
			t.Fatalf("round %d %+v:\n got level %d prev %d at %d empty %d blocked %d\nwant %+v", round, op, level, prev,
				at, emptyAt, blockedUntil, s)
		}
		if op.Verb == law.Settle && granted != 0 {
			corrected[p.Kind]++
		}
		if op.Verb == law.Extend && !want.Replayed && retryAt == 0 {
			extended[p.Kind]++
		}
		if p.Leased && want.EntryNumber > 0 && !want.Replayed && want.Granted > 0 {
			if memoryEntries[entry] != 0 {
				t.Fatalf("round %d: got the number %d of another entry", round, entry)
			}
			memoryEntries[entry] = want.EntryNumber
			if leases = append(leases, entry); len(leases) > 8 {
				leases = leases[1:]
			}
		}
	}
	for kind := law.Bucket; kind <= law.Log; kind++ {
		if corrected[kind] == 0 {
			t.Errorf("law %d: got no corrected charge", kind)
		}
		if extended[kind] == 0 {
			t.Errorf("law %d: got no extended charge", kind)
		}
		if askCalls[kind] == 0 {
			t.Errorf("law %d: got no charge for headgate_ask", kind)
		}
	}
	if directCalls < 20 {
		t.Errorf("got %d charges by headgate_direct, want 20 or more", directCalls)
	}
}

// callDirect calls headgate_direct for a charge, and reports whether headgate_direct has decided it.
func callDirect(t *testing.T, conn *sql.Conn, op *law.Op) (decided bool) {
	t.Helper()
	p := &op.Params
	call := "CALL " + mysql.WithRevision("headgate_direct") + "(?,?,?,?,?,?,?,?)"
	if _, err := conn.ExecContext(t.Context(), call, op.Cell.Limit, op.Cell.Key, p.Anchor, p.Unit,
		p.Capacity, p.Step, p.Drain, op.Cost); err != nil {
		t.Fatalf("%+v: %v", *op, err)
	}
	if err := conn.QueryRowContext(t.Context(), "SELECT @hg_count").Scan(&decided); err != nil {
		t.Fatal(err)
	}
	return decided
}

// groupCall returns a call of headgate_group for a request.
func groupCall(ops ...law.Op) (call string, args []any) {
	var charges []string
	for i, j := 0, law.AlternativeEnd(ops, 0); i < len(ops); i, j = j, law.AlternativeEnd(ops, j) {
		fingerprint := law.Fingerprint(ops[i:j])
		for _, op := range ops[i:j] {
			p, w := &op.Params, &op.Window
			charges = append(charges, fmt.Sprintf(`["%X","%X",%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d]`,
				op.Cell.Limit, op.Cell.Key, p.Kind, p.Anchor, p.Unit, p.Capacity, p.Step, p.Drain, p.Block, p.History,
				op.Cost, op.Ceiling, w[0], w[1], w[2], w[3], op.From, op.Until, max(op.Alternative, 1), fingerprint))
		}
	}
	verb := ops[0].Verb
	if verb == law.Extend {
		verb = 10 // of headgate_group
	}
	return mysql.WithRevision("headgate_group") + "(?,?,?,?,?,?)",
		[]any{verb, len(ops), "[" + strings.Join(charges, ",") + "]", ops[0].ID, ops[0].TTL, ops[0].Deferred}
}
