package mysql_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/mysql"
	"github.com/headgate/headgate/store/storetest"
)

// TestRetryWithAnIDAfterALostAnswerChargesOnce checks that a request whose answer a proxy loses is charged once when it
// is sent again with its id. The server may still execute the lost text, so the test waits until no session is busy.
func TestRetryWithAnIDAfterALostAnswerChargesOnce(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	host, name, _ := strings.Cut(strings.TrimPrefix(url, "mysql://root@"), "/")
	proxy, db := dbtest.StartProxy(t, host, "COMMIT;"), openPlainDB(t, url)
	storetest.CutOff(t, openStore(t, url), openAndMigrate(t, "mysql://root@"+proxy.Addr+"/"+name), func(lose bool) {
		proxy.Lose(lose)
		for busy := 1; busy > 0 && !lose; {
			if err := db.QueryRowContext(t.Context(),
				"SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID() AND command <> 'Sleep'").Scan(&busy); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// year2100 is 2100-01-01 in microseconds: no charge at that time is swept.
const year2100 = int64(4_102_444_800_000_000)

// comparison applies the same ops to MySQL and to memory, and compares the outcomes. It keeps the last 20 charges, with
// both outcomes, since the two stores number their entries differently.
type comparison struct {
	mysql, memory store.Store
	charges       []chargeOutcomes
}

// chargeOutcomes are the outcomes of one charge in both stores.
type chargeOutcomes struct {
	op            law.Op
	mysql, memory law.Outcome
}

// apply applies a batch to both stores, and fails the test if the outcomes differ in more than the numbers of entries.
// mysqlEntries has the numbers that entries of memory have in MySQL, by the indices of the ops that name them.
func (c *comparison) apply(t *testing.T, ops []law.Op, mysqlEntries map[int]int64) {
	t.Helper()
	got, want := make([]law.Outcome, len(ops)), make([]law.Outcome, len(ops))
	if err := c.memory.Apply(t.Context(), ops, want); err != nil {
		t.Fatal(err)
	}
	for i, entry := range mysqlEntries {
		ops[i].EntryNumber = entry
	}
	if err := c.mysql.Apply(t.Context(), ops, got); err != nil {
		t.Fatalf("%v, of %+v", err, ops)
	}
	for i := range ops {
		g, w := got[i], want[i]
		sameErr := (g.EntryNumber != 0) == (w.EntryNumber != 0) && (g.Err == nil) == (w.Err == nil) &&
			(w.Err == nil || errors.Is(g.Err, errors.Unwrap(w.Err)) || errors.Is(g.Err, w.Err))
		g.EntryNumber, w.EntryNumber, g.Err, w.Err = 0, 0, nil, nil
		if !sameErr || g != w {
			t.Fatalf("op %d of %d %+v:\n got %+v\nwant %+v", i, len(ops), ops[i], got[i], want[i])
		}
		if ops[i].Verb == law.Take && g.Granted > 0 {
			c.charges = append(c.charges, chargeOutcomes{op: ops[i], mysql: got[i], memory: want[i]})
		}
	}
	c.charges = c.charges[max(0, len(c.charges)-20):]
}

// TestLargeBatchesWithIDsDecideAsMemory checks that 420 requests with ids, which are sent, repeated and settled in
// large batches, are decided as by the memory store. About half of them have the id of the first of their twenty.
func TestLargeBatchesWithIDsDecideAsMemory(t *testing.T) {
	t.Parallel()
	c := comparison{mysql: openMigrated(t), memory: memory.New(nil)}
	limits := []law.Params{
		{Kind: law.Bucket, Unit: 1000, Capacity: 9000, Step: 1000, Drain: 1},
		{Kind: law.Window, Unit: 1000, Capacity: 9000, Step: 60_000_000},
		{Kind: law.Log, Unit: 1000, Capacity: 9000, Step: 60_000_000, History: 90_000_000},
	}
	seed := tier.Seed()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var takes, settles []law.Op
	for group := range uint32(420) {
		size := 1 + rng.IntN(3)
		id, firstKey := fmt.Sprint("id ", group-group%20*uint32(rng.IntN(2))), rng.IntN(50)
		for k := range size {
			n := rng.IntN(len(limits))
			op := law.Op{
				Verb: law.Take, Group: group,
				Cell: law.Cell{Limit: fmt.Sprint("limit ", n), Key: fmt.Sprint((firstKey + k) % 50)}, Params: limits[n],
				Cost: 1000, Count: 1 + rng.Int64N(2), ID: id, TTL: 60_000_000, Now: year2100,
			}
			takes = append(takes, op)
			op.Verb, op.Cost, op.Count = law.Settle, rng.Int64N(3000), 1
			settles = append(settles, op)
		}
	}
	c.apply(t, takes, nil)
	c.apply(t, append(takes[:len(takes):len(takes)], settles...), nil)
	c.apply(t, settles, nil)
	c.apply(t, takes, nil)
}

// TestSettleAndReturnOfExtremeCostsDecideAsMemory checks that corrections are decided as by the memory store where
// numbers saturate, or where a start is so far ahead that its level cannot be stored.
func TestSettleAndReturnOfExtremeCostsDecideAsMemory(t *testing.T) {
	t.Parallel()
	c := comparison{mysql: openMigrated(t), memory: memory.New(nil)}
	limits := []law.Params{
		{Kind: law.Bucket, Unit: 1000, Capacity: 5000, Step: 3_600_000_000, Drain: 1000},
		{Kind: law.Bucket, Unit: 1000, Capacity: law.Max, Step: 1, Drain: 1 << 40},
		{Kind: law.Bucket, Unit: 1, Capacity: 1 << 52, Step: 7, Drain: 1 << 50},
		{Kind: law.Bucket, Unit: 1, Capacity: 5, Step: 1, Drain: law.Max, Block: 5000},
		{Kind: law.Bucket, Anchor: law.Epoch, Unit: 1000, Capacity: law.Max, Step: 1000, Drain: 1 << 44},
		{Kind: law.Window, Unit: 1000, Capacity: 1<<32 - 1, Step: 10_000},
		{Kind: law.Log, Unit: 1000, Capacity: law.Max, Step: 10_000},
	}
	seed := tier.Seed()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	now := year2100
	for round := range tier.Pick(120, 1500, 5000) {
		var ops []law.Op
		mysqlEntries := map[int]int64{}
		for group := range uint32(1 + rng.IntN(3)) {
			now += rng.Int64N(1 << (1 + rng.IntN(13)))
			if rng.IntN(3) == 0 && len(c.charges) > 0 { // correct a charge
				charge := c.charges[rng.IntN(len(c.charges))]
				op, cost := law.Back(&charge.op, &charge.memory, 1), charge.op.Cost*charge.op.Count
				op.Group, op.Now = group, now
				op.Cost = []int64{cost, -1, -law.Max, -1 - rng.Int64N(law.Max), -1000}[rng.IntN(5)]
				if charge.op.ID != "" {
					op.Verb, op.ID, op.Cost = law.Settle, charge.op.ID, max(op.Cost, -op.Cost)
				}
				mysqlEntries[len(ops)] = charge.mysql.EntryNumber
				ops = append(ops, op)
				continue
			}
			deferred, id := rng.IntN(3) > 0, ""
			if rng.IntN(3) == 0 {
				id = fmt.Sprint(round, " ", group)
			}
			firstKey := rng.IntN(4)
			for k := range 1 + rng.IntN(4) {
				n, key := rng.IntN(len(limits)), rng.IntN(2)
				if deferred {
					n = rng.IntN(4)
				}
				if id != "" {
					key = firstKey + k
				}
				key += round / 20 * 10 // new keys every 20 rounds, since some cells stay full for ever
				cost := 1 + rng.Int64N(limits[n].Capacity)>>rng.IntN(50)
				if rng.IntN(2) == 0 {
					cost = 1 + (limits[n].Capacity-1)>>rng.IntN(4)
				}
				op := law.Op{
					Verb: law.Take, Group: group, Cell: law.Cell{Limit: fmt.Sprint("limit ", n), Key: fmt.Sprint(key)},
					Params: limits[n],
					Cost:   cost, Count: 1, ID: id, TTL: 1 + rng.Int64N(1<<50), Now: now,
				}
				if op.Deferred = deferred; deferred {
					op.Ceiling = op.Params.Ceiling(rng.Int64N(1 << (10 + rng.IntN(36))))
				}
				ops = append(ops, op)
			}
		}
		c.apply(t, ops, mysqlEntries)
	}
}

// TestRepeatsOfPartlyCancelledRequestsDecideAsMemory checks that requests of three charges, of which one was cancelled
// or one cell reset, are repeated and settled as by the memory store. The batches insert many receipts together.
func TestRepeatsOfPartlyCancelledRequestsDecideAsMemory(t *testing.T) {
	t.Parallel()
	c := comparison{mysql: openMigrated(t), memory: memory.New(nil)}
	bucket := law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 5000, Step: 1000, Drain: 1}
	window := law.Params{Kind: law.Window, Unit: 1000, Capacity: 90_000, Step: 60_000_000}
	for _, deferred := range []bool{false, true} {
		var takes, cancels, resets, settles []law.Op
		for group := range uint32(8) {
			for k := range 3 {
				op := law.Op{
					Verb: law.Take, Group: group, Cell: law.Cell{Limit: "l", Key: fmt.Sprint(deferred, group, k)},
					Params: bucket,
					Cost:   1000, Count: 3, ID: "id", TTL: 60_000_000, Now: year2100 + int64(group), Deferred: deferred,
					Ceiling: 90_000,
				}
				if !deferred && group%2 == 0 {
					op.Params = window
				}
				takes = append(takes, op)
				op.Verb, op.Cost, op.Count, op.Group = law.Settle, 1000*int64(k), 1, uint32(len(takes))
				if settles = append(settles, op); k == 0 {
					op.Cost = law.Cancelled
					cancels = append(cancels, op)
				} else if k == 1 {
					op.Verb = law.Reset
					resets = append(resets, op)
				}
			}
		}
		for i := range resets {
			resets[i] = law.Op{
				Verb: law.Reset, Group: uint32(i), Cell: resets[i].Cell, Params: resets[i].Params,
				Now: resets[i].Now,
			}
		}
		for _, removals := range [][]law.Op{nil, cancels[:4], resets[2:6], cancels, resets} {
			c.apply(t, slices.Concat(takes, removals), nil)
			c.apply(t, takes, nil)
		}
		c.apply(t, slices.Concat(resets, takes), nil)
		rescaled := slices.Clone(takes) // the same costs in finer credits: replays, so no cell is rescaled
		for i := range rescaled {
			op := &rescaled[i]
			op.Cost, op.Ceiling, op.Params.Unit, op.Params.Capacity = 2*op.Cost, 2*op.Ceiling, 2*op.Params.Unit,
				2*op.Params.Capacity
		}
		c.apply(t, rescaled, nil)
		for i := range settles { // two of five have other parameters than the charge
			p := &settles[i].Params
			switch i % 5 {
			case 1:
				p.Step++
			case 2:
				p.Drain++ // a window does not use it, but it differs
			}
		}
		c.apply(t, settles, nil)
		c.apply(t, settles, nil)
		c.apply(t, takes, nil)
		for i := range takes { // the receipts have expired, unless a charge starts later
			takes[i].Now += takes[i].TTL
		}
		c.apply(t, takes, nil)
	}
}

// TestSweepRemovesExpiredReceipts checks that Sweep removes expired receipts, at most as many as it may, and no others.
func TestSweepRemovesExpiredReceipts(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	s, db := openStore(t, url), openMultiDB(t, url)
	op := takeOp("l", "k", hourlyBucket)
	op.Params.Capacity, op.TTL = 1_000_000, 3_600_000_000
	clock := apply(t, s, op)[0].Clock
	var ops []law.Op
	for i := range 1300 {
		op.Group, op.ID, op.Cost, op.Now = uint32(i), fmt.Sprint("old ", i), 1, clock-op.TTL
		if i%100 == 0 {
			op.ID, op.Now = fmt.Sprint("new ", i), 0
		}
		ops = append(ops, op)
	}
	apply(t, s, ops...)
	// 586 is 1300 less 13 new and 701 that were swept before.
	for _, tt := range []struct{ maxRows, want int }{{1, 1}, {700, 700}, {10_000, 586}, {10_000, 0}} {
		if n, err := s.Sweep(t.Context(), tt.maxRows); err != nil || n != tt.want {
			t.Errorf("Sweep(%d): got %d, %v; want %d", tt.maxRows, n, err, tt.want)
		}
	}
	var newReceipts int
	if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM headgate_admissions WHERE id LIKE 'new %'").Scan(
		&newReceipts); err != nil || newReceipts != 13 {
		t.Errorf("got %d receipts that have not expired, %v; want 13", newReceipts, err)
	}
}

// TestInTxReplaysRequestsNewerThanItsSnapshot checks that a transaction replays and settles a request that was admitted
// after the transaction's snapshot.
func TestInTxReplaysRequestsNewerThanItsSnapshot(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	s, db := openStore(t, url), openMultiDB(t, url)
	tx := beginTxWithOldSnapshot(t, db, "headgate_admissions")
	inTx := mysql.New(db, nil).InTx(tx)
	for _, p := range []law.Params{hourlyBucket, hourlyLog} {
		op := takeOp("l", fmt.Sprint(p.Kind), p)
		op.ID, op.TTL = "id", 3_600_000_000
		want := apply(t, s, op)[0]
		got := apply(t, inTx, op)[0]
		if want.Clock, want.Replayed = got.Clock, true; got != want {
			t.Errorf("replay:\n got %+v\nwant %+v", got, want)
		}
		op.Verb, op.Cost = law.Settle, 100
		if got := apply(t, inTx, op)[0]; got.Granted != 900 || got.Used != 100 {
			t.Errorf("settle: got %+v, want granted 900, used 100", got)
		}
	}
}

// TestResetByCallForgetsRequests checks that headgate_reset removes a key's receipts, so that an id is charged again.
func TestResetByCallForgetsRequests(t *testing.T) {
	t.Parallel()
	db, s := openDBAndStore(t)
	op := takeOp("token-bucket 1/1h burst 5", "k", hourlyBucket)
	op.ID, op.TTL = "id", 3_600_000_000
	apply(t, s, op)
	var existed int
	if err := db.QueryRowContext(t.Context(), "CALL headgate_reset('token-bucket 1/1h burst 5', 'k')").Scan(
		&existed); err != nil || existed != 1 {
		t.Fatalf("headgate_reset: got existed %d, %v; want 1", existed, err)
	}
	if out := apply(t, s, op)[0]; out.Replayed || out.Granted != 1 {
		t.Errorf("the id after the reset: got %+v, want a new charge", out)
	}
}
