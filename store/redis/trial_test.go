package redis

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
)

// keysApart returns n keys in n slots.
func keysApart(n int) (keys []string) {
	seen := map[uint16]bool{}
	for i := 0; len(keys) < n; i++ {
		k := fmt.Sprint("k", i)
		if slot := (&Store{}).slotOf(law.Cell{Key: k}); !seen[slot] {
			seen[slot] = true
			keys = append(keys, k)
		}
	}
	return keys
}

// twoKeysApart returns two keys in different slots.
func twoKeysApart(*testing.T) (a, b string) {
	keys := keysApart(2)
	return keys[0], keys[1]
}

// slotsURL returns the URL of a Cluster, or of a single server under make test, which starts no Cluster.
func slotsURL(tb testing.TB) string {
	tb.Helper()
	return tier.Pick(dbtest.Redis, dbtest.RedisCluster, dbtest.RedisCluster)(tb)
}

// openSlots opens a store that decides each slot by itself as on a Cluster, also if url is a single server.
func openSlots(tb testing.TB, url string) *Store {
	tb.Helper()
	s := openTest(tb, url, nil)
	s.cluster, s.lane.client = true, nil
	return s
}

// hookClient is a client that calls a function before each DoMulti.
type hookClient struct {
	rueidis.Client
	before func(multi []rueidis.Completed)
}

func (c *hookClient) DoMulti(ctx context.Context, multi ...rueidis.Completed) []rueidis.RedisResult {
	c.before(multi)
	return c.Client.DoMulti(ctx, multi...)
}

// withHook makes s call hook before it first gives a part back, and returns s.
func withHook(s *Store, hook func()) *Store {
	hook = sync.OnceFunc(hook)
	s.client = &hookClient{s.client, func(multi []rueidis.Completed) {
		if multi[0].Commands()[1] == giveBackScript.sha {
			hook()
		}
	}}
	return s
}

func TestSlotOfMatchesTheServer(t *testing.T) {
	tier.Engines(t)
	s := openTest(t, dbtest.RedisCluster(t), nil)
	for _, key := range []string{"", "a", "{a}", "a}{b", "%", "é", "user:42"} {
		c := law.Cell{Limit: "l{x}", Key: key}
		for _, name := range []string{s.cellKey(c), s.logKey(c)} {
			if slot, err := admin(t, s, "CLUSTER", "KEYSLOT", name).AsInt64(); err != nil ||
				slot != int64(s.slotOf(c)) {
				t.Errorf("%s: got slot %d, want %d (%v)", name, s.slotOf(c), slot, err)
			}
		}
	}
}

// Limits of ten units: of a bucket a unit drains each second, windows and logs take ten seconds.
var (
	perSecond    = law.Params{Kind: law.Bucket, Unit: 1_000_000, Capacity: 10_000_000, Step: 1, Drain: 1}
	windowLimit  = law.Params{Kind: law.Window, Unit: 1000, Capacity: 10_000, Step: 10_000_000}
	logLimit     = law.Params{Kind: law.Log, Unit: 1000, Capacity: 10_000, Step: 10_000_000}
	historyLimit = law.Params{Kind: law.Log, Unit: 1000, Capacity: 10_000, Step: 10_000_000, History: 60_000_000}
	allLaws      = []law.Params{perSecond, windowLimit, logLimit, historyLimit}
)

// fillAndRequest fills a cell, and returns a request that this cell refuses. The request has an ID. It takes three
// units of a limit with the parameters p in another slot, and all ten units of the full cell.
func fillAndRequest(t *testing.T, s *Store, p law.Params, now int64) []law.Op {
	t.Helper()
	a, b := twoKeysApart(t)
	full := takeOne("full", b, perSecond, now)
	full.Count = 10
	apply(t, s, full)
	op := takeOne("l", a, p, now)
	op.Count = 3
	ops := []law.Op{op, full}
	for i := range ops {
		ops[i].ID, ops[i].TTL = "request", 60_000_000
	}
	return ops
}

func TestARequestOverSlotsIsChargedInAllSlots(t *testing.T) {
	s := openSlots(t, slotsURL(t))
	a, b := twoKeysApart(t)
	for _, p := range allLaws {
		limit := fmt.Sprint(p)
		outs := apply(t, s, takeOne(limit, a, p, testTime), takeOne(limit, b, p, testTime))
		for i := range outs {
			if outs[i].Granted != 1 || outs[i].State.Level != p.Unit || outs[i].RetryAt != 0 {
				t.Errorf("%+v: got %+v, want one unit charged", p, outs[i])
			}
		}
	}
}

func TestARefusedRequestOverSlotsChargesNothing(t *testing.T) {
	for _, hasCell := range []bool{false, true} {
		for _, p := range allLaws {
			s := openSlots(t, slotsURL(t))
			ops := fillAndRequest(t, s, p, testTime)
			cell := ops[0].Cell
			var before law.State
			if hasCell {
				op := takeOne("l", cell.Key, p, testTime-3_000_000)
				before = apply(t, s, op)[0].State
			}
			value, _ := admin(t, s, "GET", s.cellKey(cell)).ToString()
			wantEntries, _ := admin(t, s, "ZCARD", s.logKey(cell)).AsInt64()

			outs := apply(t, s, ops...)
			if outs[0].Granted != 3 || outs[1].Granted != 0 || outs[1].RetryAt != testTime+10_000_000 ||
				outs[0].State != before {
				t.Errorf("cell in use %v, %+v: got %+v", hasCell, p, outs)
			}
			after, _ := admin(t, s, "GET", s.cellKey(cell)).ToString()
			if _, reason, _ := parseCell(value); reason != "" || !sameState(value, after) {
				t.Errorf("cell in use %v, %+v: got the cell %q, want %q", hasCell, p, after, value)
			}
			entries, err := s.Entries(context.Background(), cell, 10)
			if p.History > 0 {
				wantEntries++
				if len(entries) == 0 || entries[0].Granted || entries[0].ExpiresAt != 0 || entries[0].ID != "request" ||
					outs[0].EntryNumber != entries[0].Number {
					t.Errorf("cell in use %v: got %+v, want a refused attempt first", hasCell, entries)
				}
			}
			if err != nil || len(entries) != int(wantEntries) {
				t.Errorf("cell in use %v, %+v: got %+v, %v; want %d entries", hasCell, p, entries, err,
					wantEntries)
			}
		}
	}
}

// sameState reports whether two cells have the same state. It ignores the numbers of their last log entries.
func sameState(a, b string) bool {
	stateA, _, okA := parseCell(a)
	stateB, _, okB := parseCell(b)
	return okA == okB && stateA == stateB
}

// TestReturnsOverSlotsAreDecidedOneByOne checks three returns in two slots: to a cell in use, by a stale window, and
// to a missing cell.
func TestReturnsOverSlotsAreDecidedOneByOne(t *testing.T) {
	s := openSlots(t, slotsURL(t))
	a, b := twoKeysApart(t)
	op := takeOne("l", a, perSecond, testTime)
	op.Count = 3
	out := apply(t, s, op)[0]
	monthly := law.Params{
		Kind: law.Bucket, Anchor: law.Calendar, Unit: 1000, Capacity: 5000, Step: 1000, Drain: law.Max,
	}
	stale, missing := takeOne("month", b, monthly, testTime), takeOne("log", b, logLimit, testTime)
	stale.Window = [4]int64{1, 2, 3, 4}
	outs := apply(t, s, law.Back(&op, &out, 2*perSecond.Unit), law.Back(&stale, &law.Outcome{}, 1),
		law.Back(&missing, &law.Outcome{EntryNumber: 1}, 1))
	if outs[0].Granted != 2*perSecond.Unit || outs[0].Used != perSecond.Unit || outs[0].Stale ||
		outs[0].State.Prev != 2*perSecond.Unit {
		t.Errorf("a cell in use: got %+v", outs[0])
	}
	if !outs[1].Stale || outs[1].Granted != 0 {
		t.Errorf("a stale window: got %+v", outs[1])
	}
	if outs[2] != (law.Outcome{Clock: testTime}) {
		t.Errorf("a missing cell: got %+v, want only the clock", outs[2])
	}
	for _, cell := range []law.Cell{stale.Cell, missing.Cell} {
		if n, err := admin(t, s, "EXISTS", s.cellKey(cell), s.logKey(cell)).AsInt64(); n != 0 || err != nil {
			t.Errorf("got %d keys of %v, %v; want none", n, cell, err)
		}
	}
}

// TestReturnsKeepTheNumbersOfLogEntries gives back parts of the entries of a log. They were charged at the server's
// time, by which the script finds them at once, or at testTime.
func TestReturnsKeepTheNumbersOfLogEntries(t *testing.T) {
	s := openTest(t, dbtest.Redis(t), nil)
	for _, p := range []law.Params{logLimit, historyLimit} {
		p.Capacity = 200 * p.Unit
		for _, now := range []int64{0, testTime} {
			takes := make([]law.Op, 200)
			for i := range takes {
				takes[i] = takeOne(fmt.Sprint(now, p), "k", p, now)
				takes[i].Group, takes[i].ID, takes[i].TTL = uint32(i), fmt.Sprintf("%%1 of %d", i), 1000
			}
			outs := apply(t, s, takes...)
			want, err := s.Entries(context.Background(), takes[0].Cell, 1000)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range []int{0, 100, 199} { // counted from the newest entry
				i := 199 - n
				for _, credits := range []int64{700, 300, 0} { // of 1000 credits
					if got := apply(t, s, law.Back(&takes[i], &outs[i], 700))[0]; got.Granted != credits {
						t.Errorf("entry %d: got %+v, want %d given back", i, got, credits)
					}
				}
				want[n].Cost, want[n].ExpiresAt = 0, 0
			}
			got := apply(t, s, law.Back(&takes[49], &outs[49], 400))[0]
			if got.Granted != 400 || got.Used != 196_600 { // 200,000 less 3*1000 and 400
				t.Errorf("entry 49: got %+v, want 400 given back and 196,600 used", got)
			}
			want[150].Cost -= 400
			if p.History == 0 {
				want = slices.DeleteFunc(want, func(e law.Entry) bool { return e.ExpiresAt == 0 })
			}
			list, err := s.Entries(context.Background(), takes[0].Cell, 1000)
			if err != nil || !slices.Equal(list, want) {
				t.Errorf("got %+v, %v\nwant %+v", list, err, want)
			}
		}
	}
}

// TestAReturnKeepsTheExpiryOfALogWithOneEntry checks a log that is empty for a moment, while its entry is replaced.
func TestAReturnKeepsTheExpiryOfALogWithOneEntry(t *testing.T) {
	s := openTest(t, dbtest.Redis(t), nil)
	op := takeOne("l", "k", historyLimit, 0)
	out := apply(t, s, op)[0]
	for _, credits := range []int64{400, 600} {
		back := law.Back(&op, &out, credits)
		if got := apply(t, s, back)[0]; got.Granted != credits {
			t.Errorf("got %+v, want %d given back", got, credits)
		}
		if ms, err := admin(t, s, "PTTL", s.logKey(op.Cell)).AsInt64(); err != nil || ms < 1000 {
			t.Errorf("the log expires in %d ms, %v; want 1 s at least", ms, err)
		}
	}
}

func TestACheckOverSlotsWritesNothing(t *testing.T) {
	s := openSlots(t, slotsURL(t))
	ops := fillAndRequest(t, s, perSecond, testTime)
	for i := range ops {
		ops[i].Verb, ops[i].ID = law.Check, ""
	}
	if outs := apply(t, s, ops...); outs[0].Granted != 3 || outs[1].Granted != 0 || outs[0].State.Kind != 0 {
		t.Errorf("got %+v, want three units to fit, and ten not", outs)
	}
	if n, _ := admin(t, s, "EXISTS", s.cellKey(ops[0].Cell)).AsInt64(); n != 0 {
		t.Errorf("got %d keys after a check, want none", n)
	}
}

func TestAStaleRequestOverSlotsIsStaleInAllSlots(t *testing.T) {
	s := openSlots(t, slotsURL(t))
	a, b := twoKeysApart(t)
	monthly := law.Params{
		Kind: law.Bucket, Anchor: law.Calendar, Unit: 1000, Capacity: 5000, Step: 1000, Drain: law.Max,
	}
	stale := takeOne("month", b, monthly, testTime)
	stale.Window = [4]int64{1, 2, 3, 4}
	outs := apply(t, s, takeOne("l", a, perSecond, testTime), stale)
	if !outs[0].Stale || !outs[1].Stale || outs[0].State.Level != 0 {
		t.Errorf("got %+v, want both stale, and nothing charged", outs)
	}
	if out := apply(t, s, takeOne("l", a, perSecond, testTime))[0]; out.Used != perSecond.Unit {
		t.Errorf("got used %d, want one unit: the stale request charges nothing", out.Used)
	}
}

func TestABatchWithRequestsOverSlotsKeepsItsOrder(t *testing.T) {
	s := openSlots(t, slotsURL(t))
	a, b := twoKeysApart(t)
	var ops []law.Op
	for group := range uint32(8) {
		keys := []string{a, b}
		switch group % 4 {
		case 1:
			keys = []string{a}
		case 2:
			keys = []string{b, b}
		}
		for _, key := range keys {
			op := takeOne("l", key, perSecond, testTime)
			op.Group = group
			ops = append(ops, op)
		}
	}
	used := map[string]int64{}
	for i, out := range apply(t, s, ops...) {
		if used[ops[i].Cell.Key] += perSecond.Unit; out.Used != used[ops[i].Cell.Key] || out.Granted != 1 {
			t.Errorf("op %d: got %+v, want %d used", i, out, used[ops[i].Cell.Key])
		}
	}
}

// TestAStaleRequestOverSlotsIsNotInTheHistory checks that the history shows no refused attempt.
func TestAStaleRequestOverSlotsIsNotInTheHistory(t *testing.T) {
	s := openSlots(t, slotsURL(t))
	a, b := twoKeysApart(t)
	monthly := law.Params{
		Kind: law.Bucket, Anchor: law.Calendar, Unit: 1000, Capacity: 5000, Step: 1000, Drain: law.Max,
	}
	stale := takeOne("month", b, monthly, testTime)
	stale.Window = [4]int64{1, 2, 3, 4}
	op := takeOne("l", a, historyLimit, testTime)
	outs := apply(t, s, op, stale)
	entries, err := s.Entries(context.Background(), op.Cell, 10)
	if err != nil || len(entries) > 0 || outs[0].EntryNumber != 0 {
		t.Errorf("got the history %+v, %v; want none", entries, err)
	}
}
