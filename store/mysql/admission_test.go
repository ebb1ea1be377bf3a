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

// TestLostAnswersAreRepeatedByID loses answers and repeats the requests with their IDs. The server has
// not reached the end of a text when the answer to its first statement is lost, so the next request has to wait for it.
func TestLostAnswersAreRepeatedByID(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	host, name, _ := strings.Cut(strings.TrimPrefix(url, "mysql://root@"), "/")
	s, db := dbtest.Swallow(t, host, "COMMIT;"), plainDB(t, url)
	storetest.CutOff(t, openUnmigrated(t, url), openAt(t, "mysql://root@"+s.Addr+"/"+name), func(lose bool) {
		s.Lose(lose)
		for busy := 1; busy > 0 && !lose; {
			if err := db.QueryRowContext(t.Context(),
				"SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID() AND command <> 'Sleep'").Scan(&busy); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// in2100 is a time so far ahead that no charge of it is swept.
const in2100 = int64(4_102_444_800_000_000)

// pair applies the same ops to MySQL and to memory, and compares. It keeps the receipts of both for later, since the
// numbers of their entries differ.
type pair struct {
	s, m    store.Store
	charged []charge
}

type charge struct {
	op        law.Op
	out, mine law.Outcome
}

func (p *pair) ask(t *testing.T, ops []law.Op, entries map[int]int64) {
	t.Helper()
	got, want := make([]law.Outcome, len(ops)), make([]law.Outcome, len(ops))
	if err := p.m.Apply(t.Context(), ops, want); err != nil {
		t.Fatal(err)
	}
	for i, entry := range entries {
		ops[i].EntryNumber = entry
	}
	if err := p.s.Apply(t.Context(), ops, got); err != nil {
		t.Fatalf("%v, of %+v", err, ops)
	}
	for i := range ops {
		g, w := got[i], want[i]
		same := (g.EntryNumber != 0) == (w.EntryNumber != 0) && (g.Err == nil) == (w.Err == nil) &&
			(w.Err == nil || errors.Is(g.Err, errors.Unwrap(w.Err)) || errors.Is(g.Err, w.Err))
		g.EntryNumber, w.EntryNumber, g.Err, w.Err = 0, 0, nil, nil
		if !same || g != w {
			t.Fatalf("op %d of %d %+v:\n got %+v\nwant %+v", i, len(ops), ops[i], got[i], want[i])
		}
		if ops[i].Verb == law.Take && g.Granted > 0 {
			p.charged = append(p.charged, charge{ops[i], want[i], got[i]})
		}
	}
	p.charged = p.charged[max(0, len(p.charged)-20):]
}

// TestLargeBatchesOfNamedRequests sends, repeats and settles more requests than one statement decides, with cells and
// IDs that occur several times in a batch.
func TestLargeBatchesOfNamedRequests(t *testing.T) {
	t.Parallel()
	p := pair{s: open(t), m: memory.New(nil)}
	laws := []law.Params{
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
		id, from := fmt.Sprint("id ", group-group%20*uint32(rng.IntN(2))), rng.IntN(50)
		for k := range size {
			n := rng.IntN(len(laws))
			op := law.Op{
				Verb: law.Take, Group: group,
				Cell: law.Cell{Limit: fmt.Sprint("limit ", n), Key: fmt.Sprint((from + k) % 50)}, Params: laws[n],
				Cost: 1000, Count: 1 + rng.Int64N(2), ID: id, TTL: 60_000_000, Now: in2100,
			}
			takes = append(takes, op)
			op.Verb, op.Cost, op.Count = law.Settle, rng.Int64N(3000), 1
			settles = append(settles, op)
		}
	}
	p.ask(t, takes, nil)
	p.ask(t, append(takes[:len(takes):len(takes)], settles...), nil)
	p.ask(t, settles, nil)
	p.ask(t, takes, nil)
}

// TestExtremesOfCorrections compares the store with memory where numbers saturate, or where a start is so far ahead
// that its level cannot be stored.
func TestExtremesOfCorrections(t *testing.T) {
	t.Parallel()
	p := pair{s: open(t), m: memory.New(nil)}
	laws := []law.Params{
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
	now := in2100
	for round := range tier.Pick(120, 1500, 5000) {
		var ops []law.Op
		entries := map[int]int64{}
		for group := range uint32(1 + rng.IntN(3)) {
			now += rng.Int64N(1 << (1 + rng.IntN(13)))
			if rng.IntN(3) == 0 && len(p.charged) > 0 { // correct a charge
				c := p.charged[rng.IntN(len(p.charged))]
				op := law.Back(&c.op, &c.out, 1)
				op.Group, op.Now = group, now
				op.Cost = []int64{c.op.Cost * c.op.Count, -1, -law.Max, -1 - rng.Int64N(law.Max), -1000}[rng.IntN(5)]
				if c.op.ID != "" {
					op.Verb, op.ID, op.Cost = law.Settle, c.op.ID, max(op.Cost, -op.Cost)
				}
				entries[len(ops)] = c.mine.EntryNumber
				ops = append(ops, op)
				continue
			}
			isLate, id := rng.IntN(3) > 0, ""
			if rng.IntN(3) == 0 {
				id = fmt.Sprint(round, " ", group)
			}
			from := rng.IntN(4)
			for k := range 1 + rng.IntN(4) {
				n, key := rng.IntN(len(laws)), rng.IntN(2)
				if isLate {
					n = rng.IntN(4)
				}
				if id != "" {
					key = from + k
				}
				key += round / 20 * 10 // some are full for ever
				cost := 1 + rng.Int64N(laws[n].Capacity)>>rng.IntN(50)
				if rng.IntN(2) == 0 {
					cost = 1 + (laws[n].Capacity-1)>>rng.IntN(4)
				}
				op := law.Op{
					Verb: law.Take, Group: group, Cell: law.Cell{Limit: fmt.Sprint("limit ", n), Key: fmt.Sprint(key)},
					Params: laws[n],
					Cost:   cost, Count: 1, ID: id, TTL: 1 + rng.Int64N(1<<50), Now: now,
				}
				if op.Deferred = isLate; isLate {
					op.Ceiling = op.Params.Ceiling(rng.Int64N(1 << (10 + rng.IntN(36))))
				}
				ops = append(ops, op)
			}
		}
		p.ask(t, ops, entries)
	}
}

// TestRequestsRememberedInPart repeats requests of which one charge was cancelled, or one cell reset, among so many
// others that receipts are inserted together.
func TestRequestsRememberedInPart(t *testing.T) {
	t.Parallel()
	p := pair{s: open(t), m: memory.New(nil)}
	slow := law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 5000, Step: 1000, Drain: 1}
	window := law.Params{Kind: law.Window, Unit: 1000, Capacity: 90_000, Step: 60_000_000}
	for _, late := range []bool{false, true} {
		var takes, cancels, resets, settles []law.Op
		for group := range uint32(8) {
			for k := range 3 {
				op := law.Op{
					Verb: law.Take, Group: group, Cell: law.Cell{Limit: "l", Key: fmt.Sprint(late, group, k)},
					Params: slow,
					Cost:   1000, Count: 3, ID: "id", TTL: 60_000_000, Now: in2100 + int64(group), Deferred: late,
					Ceiling: 90_000,
				}
				if !late && group%2 == 0 {
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
		for _, between := range [][]law.Op{nil, cancels[:4], resets[2:6], cancels, resets} {
			p.ask(t, slices.Concat(takes, between), nil)
			p.ask(t, takes, nil)
		}
		p.ask(t, slices.Concat(resets, takes), nil)
		finer := slices.Clone(takes) // the same cost: known, so no cell is rescaled
		for i := range finer {
			op := &finer[i]
			op.Cost, op.Ceiling, op.Params.Unit, op.Params.Capacity = 2*op.Cost, 2*op.Ceiling, 2*op.Params.Unit,
				2*op.Params.Capacity
		}
		p.ask(t, finer, nil)
		for i := range settles { // some by another rule
			rule := &settles[i].Params
			switch i % 5 {
			case 1:
				rule.Step++
			case 2:
				rule.Drain++ // of a window that means nothing, but differs
			}
		}
		p.ask(t, settles, nil)
		p.ask(t, settles, nil)
		p.ask(t, takes, nil)
		for i := range takes { // forgotten, unless it starts so much later
			takes[i].Now += takes[i].TTL
		}
		p.ask(t, takes, nil)
	}
}

func TestSweepForgetsRequests(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	s, db := openUnmigrated(t, url), pool(t, url)
	op := takeOne("l", "k", hourly)
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
	for _, tt := range []struct{ most, want int }{{1, 1}, {700, 700}, {10_000, 586}, {10_000, 0}} {
		if n, err := s.Sweep(t.Context(), tt.most); err != nil || n != tt.want {
			t.Errorf("swept %d of at most %d, %v; want %d", n, tt.most, err, tt.want)
		}
	}
	var left int
	if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM headgate_admissions WHERE id LIKE 'new %'").Scan(
		&left); err != nil || left != 13 {
		t.Errorf("%d are left, %v; want 13", left, err)
	}
}

// TestInTxKnowsWhatWasAdmittedSinceItBegan repeats a request in a transaction whose snapshot is older than the request.
func TestInTxKnowsWhatWasAdmittedSinceItBegan(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	s, db := openUnmigrated(t, url), pool(t, url)
	tx := beginTx(t, db)
	var n int
	if err := tx.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM headgate_admissions").Scan(&n); err != nil {
		t.Fatal(err)
	}
	in := mysql.New(db, nil).InTx(tx)
	for _, p := range []law.Params{hourly, logged} {
		op := takeOne("l", fmt.Sprint(p.Kind), p)
		op.ID, op.TTL = "id", 3_600_000_000
		want := apply(t, s, op)[0]
		got := apply(t, in, op)[0]
		if want.Clock, want.Replayed = got.Clock, true; got != want {
			t.Errorf(" got %+v\nwant %+v", got, want)
		}
		op.Verb, op.Cost = law.Settle, 100
		if got := apply(t, in, op)[0]; got.Granted != 900 || got.Used != 100 {
			t.Errorf("settled: %+v", got)
		}
	}
}

// TestResetByCallForgetsRequests resets a key by SQL: it must be like a new key.
func TestResetByCallForgetsRequests(t *testing.T) {
	t.Parallel()
	db, s := client(t)
	op := takeOne("token-bucket 1/1h burst 5", "k", hourly)
	op.ID, op.TTL = "id", 3_600_000_000
	apply(t, s, op)
	var existed int
	if err := db.QueryRowContext(t.Context(), "CALL headgate_reset('token-bucket 1/1h burst 5', 'k')").Scan(
		&existed); err != nil || existed != 1 {
		t.Fatalf("%d, %v", existed, err)
	}
	if out := apply(t, s, op)[0]; out.Replayed || out.Granted != 1 {
		t.Errorf("%+v", out)
	}
}
