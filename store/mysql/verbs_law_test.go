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

// TestOneOfManyCallsWithAnIDCharges calls at once with a few ids, each of which must be charged once.
func TestOneOfManyCallsWithAnIDCharges(t *testing.T) {
	t.Parallel()
	db, _ := client(t)
	oneOfManyCharges(t, db)
}

// TestGaleraVerbsByCall calls on two nodes at once: with a few ids, for starts one second apart, and for three leases.
func TestGaleraVerbsByCall(t *testing.T) {
	urls := dbtest.Galera(t)
	openAt(t, urls[0])
	const causal = "wsrep_sync_wait=15"
	nodes := []*sql.DB{plainDB(t, urls[0], causal), plainDB(t, urls[1], causal)}
	var one int // a read waits for what the other node has, a call for its procedure does not
	if err := nodes[1].QueryRowContext(t.Context(), "SELECT 1").Scan(&one); err != nil {
		t.Fatal(err)
	}
	oneOfManyCharges(t, nodes...)

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
				t.Errorf("allowed %d, %v", allowed, err)
			}
			got := answerOf(t, nodes[i%2], "CALL headgate_acquire('concurrency 3 ttl 60s', 'c', 1)")
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
		t.Errorf("%d acquired one of three", acquired)
	}
	slices.SortFunc(starts, time.Time.Compare)
	for i := 1; i < len(starts); i++ {
		if d := starts[i].Sub(starts[i-1]); d < time.Second || i > 1 && d > 1100*time.Millisecond {
			t.Errorf("starts %d and %d are %v apart", i-1, i, d)
		}
	}
}

func oneOfManyCharges(t *testing.T, dbs ...*sql.DB) {
	t.Helper()
	db := dbs[0]
	var fresh atomic.Int64
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			id := string(rune('a' + i%4))
			got := answerOf(t, dbs[i%len(dbs)], "CALL headgate_take_once('"+id+"', 'sliding-log 100/1h', 'k', 2, 0)")
			if !strings.HasPrefix(got, "allowed=1 ") {
				t.Errorf("%s: %s", id, got)
			}
			if strings.HasSuffix(got, "replayed=0") {
				fresh.Add(1)
			}
		})
	}
	wg.Wait()
	if fresh.Load() != 4 {
		t.Errorf("%d calls were not replayed, want 4", fresh.Load())
	}
	if got := answerOf(t, db, "CALL headgate_check('sliding-log 100/1h', 'k', 1)"); !strings.HasPrefix(
		got, "allowed=1 remaining=92 ") {
		t.Errorf("then: %s; want 8 used", got)
	}
}

// bothLogs lists the entries of a cell that count after a time, here and in memory.
func bothLogs(t *testing.T, conn *sql.Conn, m *memory.Store, cell law.Cell, after int64) string {
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
		fmt.Fprintf(&b, "here  : at %d expires %d cost %d granted %d\n", at, expires, cost, granted)
	}
	if err := rows.Err(); err != nil {
		return err.Error()
	}
	entries, err := m.Entries(t.Context(), cell, 1000)
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

// TestVerbsByCallDecideAsTheLawsDo calls what the procedures for people call, and
// asks memory the same at the time at which the server decided.
//
// Another session has a transaction open all the time that began before. So nothing is
// purged, the index of entries still holds what they were before they were renewed or
// settled, and the server has to look up which of it is true.
func TestVerbsByCallDecideAsTheLawsDo(t *testing.T) {
	t.Parallel()
	db, _ := client(t)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	old, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	for _, statement := range []string{
		"START TRANSACTION WITH CONSISTENT SNAPSHOT",
		"INSERT INTO headgate_limits (name, rule) VALUES ('not-committed', 'token-bucket 1/s')",
	} {
		if _, err := old.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	m := memory.New(&memory.Config{Names: true})
	laws := []law.Params{
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
	mine := map[int64]int64{} // the number of an entry here to that in memory
	var entries []int64
	corrected, extended, alone := map[law.Kind]int{}, map[law.Kind]int{}, map[law.Kind]int{}
	direct := 0
	all := func(count map[law.Kind]int) bool {
		return count[law.Bucket] > 0 && count[law.Window] > 0 && count[law.Log] > 0
	}
	// An extension of a log is rare.
	rounds := tier.Pick(300, 3500, 10_000)
	enough := func() bool { return all(corrected) && all(extended) && all(alone) && direct >= 20 }
	for round := 0; round < rounds || round < 10_000 && !enough(); round++ {
		n := rng.IntN(len(laws))
		p := laws[n]
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
		name := func() {
			id := rng.Int64N(6)
			if op.ID, op.TTL = fmt.Sprint("№ ", id), 1+rng.Int64N(400_000); rng.IntN(12) > 0 {
				op.Cost = 1000 * (1 + id%3) // as the others of the name
			}
		}
		var entry int64
		var text string
		var args []any
		switch kind := rng.IntN(4); {
		case p.Leased && kind > 1 && len(entries) > 0:
			entry = entries[rng.IntN(len(entries))]
			op.Verb, op.EntryNumber = law.Renew, mine[entry]
			p.Step /= 1 + rng.Int64N(3) // the limit may have another time to live by now
			op.Params = p
			if kind == 3 {
				op.Verb, op.Cost = law.Return, law.Max
			}
			text, args = mysql.Numbered("headgate_ask")+"(?,?,?,3,0,?,0,?,0,0,0,0,0,?,'',0,0,0,0,0,0)",
				[]any{op.Verb, op.Cell.Limit, op.Cell.Key, p.Unit, p.Step, entry}
		case kind == 0:
			name()
			op.Verb, op.Cost, op.TTL = law.Settle, rng.Int64N(4000), 0
			text, args = groupOfOne(&op)
		case kind == 1 && rng.IntN(2) == 0:
			if name(); rng.IntN(6) == 0 {
				op.Ceiling = 1 + rng.Int64N(p.Capacity)
			}
			op.Verb, op.Cost = law.Extend, op.Cost+rng.Int64N(3000)
			text, args = groupOfOne(&op)
		default:
			if n < 3 && rng.IntN(2) == 0 {
				op.Deferred, op.Ceiling = true, p.Ceiling(rng.Int64N(400_000))
			}
			if !op.Deferred && rng.IntN(2) == 0 || rng.IntN(3) > 0 {
				name()
			}
			if text, args = groupOfOne(&op); op.Alone() && rng.IntN(2) == 0 {
				text = mysql.Numbered("headgate_ask") + "(1,?,?,?,?,?,?,?,?,?,?,?,0,0,'',0,0,0,0,0,0)"
				args = []any{
					op.Cell.Limit, op.Cell.Key, p.Kind, p.Anchor, p.Unit, p.Capacity, p.Step, p.Drain, p.Block,
					p.History, op.Cost,
				}
				alone[p.Kind]++
			}
		}
		if _, err := conn.ExecContext(t.Context(), "SET @hg_how = 0, @hg_when = 0, @hg_charged = 0"); err != nil {
			t.Fatal(err)
		}
		if op.Verb == law.Take && op.Alone() && p.Block == 0 && p.Kind == law.Bucket && p.Anchor != law.Calendar &&
			op.Ceiling == 0 && callDirect(t, conn, &op) {
			direct++
		} else if _, err := conn.ExecContext(t.Context(), "CALL "+text, args...); err != nil {
			t.Fatalf("%s %v: %v", text, args, err)
		}
		var g, x, clock, retry, how, when, entered, charged, level, prev, at, empty, block int64
		if err := conn.QueryRowContext(t.Context(),
			"SELECT @hg_g, @hg_x, @hg_clk, @hg_retry, @hg_how, @hg_when, COALESCE(@hg_entry, 0), COALESCE(@hg_charged, 0)").
			Scan(&g, &x, &clock, &retry, &how, &when, &entered, &charged); err != nil {
			t.Fatal(err)
		}
		if op.Verb == law.Extend {
			g = charged
		}
		err := conn.QueryRowContext(t.Context(),
			"SELECT level, prev, at, empty_at, blocked_until FROM headgate_cells WHERE limit_name = ? AND cell_key = ?",
			op.Cell.Limit, op.Cell.Key).
			Scan(&level, &prev, &at, &empty, &block)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			t.Fatal(err)
		}
		op.Now = clock
		out := make([]law.Outcome, 1)
		if err := m.Apply(t.Context(), []law.Op{op}, out); err != nil {
			t.Fatal(err)
		}
		w := out[0]
		says := [...]error{3: law.ErrReused, 4: law.ErrUnknownID, 5: law.ErrSettled}
		if w.Err != nil || how > 2 && op.Verb != law.Renew && op.Verb != law.Return {
			if how < 3 || !errors.Is(w.Err, says[how]) {
				t.Fatalf("round %d %+v: fault %d, want %v", round, op, how, w.Err)
			}
			continue
		}
		if g != w.Granted || x != w.Used && op.Verb != law.Renew || retry != w.RetryAt || op.Verb <= law.Settle &&
			op.Verb != law.Return && (when != w.StartAt || (how == 2) != w.Replayed) {
			t.Fatalf("round %d %+v:\n got granted %d used %d retry %d how %d start %d\nwant %+v\n%s", round, op, g, x,
				retry, how, when, w, bothLogs(t, conn, m, op.Cell, clock))
		}
		if s := w.State; !w.Replayed && (level != s.Level || prev != s.Prev || at != s.At || empty != s.EmptyAt ||
			block != s.BlockedUntil) {
			t.Fatalf("round %d %+v:\n got level %d prev %d at %d empty %d block %d\nwant %+v", round, op, level, prev,
				at, empty, block, s)
		}
		if op.Verb == law.Settle && g != 0 {
			corrected[p.Kind]++
		}
		if op.Verb == law.Extend && !w.Replayed && retry == 0 {
			extended[p.Kind]++
		}
		if p.Leased && w.EntryNumber > 0 && !w.Replayed && w.Granted > 0 {
			if mine[entered] != 0 {
				t.Fatalf("round %d: entry %d again", round, entered)
			}
			mine[entered] = w.EntryNumber
			if entries = append(entries, entered); len(entries) > 8 {
				entries = entries[1:]
			}
		}
	}
	for kind := law.Bucket; kind <= law.Log; kind++ {
		if corrected[kind] == 0 {
			t.Errorf("law %d: no charge was corrected", kind)
		}
		if extended[kind] == 0 {
			t.Errorf("law %d: no charge was extended", kind)
		}
		if alone[kind] == 0 {
			t.Errorf("law %d: no charge stood alone", kind)
		}
	}
	if direct < 20 {
		t.Errorf("%d charges of plain cells", direct)
	}
}

// callDirect calls headgate_direct for a charge, and reports whether it has decided.
func callDirect(t *testing.T, conn *sql.Conn, op *law.Op) (plain bool) {
	t.Helper()
	p := &op.Params
	call := "CALL " + mysql.Numbered("headgate_direct") + "(?,?,?,?,?,?,?,?)"
	if _, err := conn.ExecContext(t.Context(), call, op.Cell.Limit, op.Cell.Key, p.Anchor, p.Unit,
		p.Capacity, p.Step, p.Drain, op.Cost); err != nil {
		t.Fatalf("%+v: %v", *op, err)
	}
	if err := conn.QueryRowContext(t.Context(), "SELECT @hg_count").Scan(&plain); err != nil {
		t.Fatal(err)
	}
	return plain
}

// groupOfOne returns a call of headgate_group for a request of one charge.
func groupOfOne(op *law.Op) (call string, args []any) {
	p := &op.Params
	verb := op.Verb
	if verb == law.Extend {
		verb = 10
	}
	asked := fmt.Sprintf(`[["%X","%X",%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,0,0,0,0,0,0]]`, op.Cell.Limit, op.Cell.Key, p.Kind, p.Anchor, p.Unit,
		p.Capacity, p.Step, p.Drain, p.Block, p.History, op.Cost, op.Ceiling)
	return mysql.Numbered("headgate_group") + "(?,1,?,?,?,?,?)",
		[]any{verb, asked, op.ID, op.TTL, op.Deferred, law.Fingerprint([]law.Op{*op})}
}
