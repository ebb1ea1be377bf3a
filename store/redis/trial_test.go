package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
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

// apart returns two keys in different slots.
func apart(*testing.T) (a, b string) {
	keys := keysApart(2)
	return keys[0], keys[1]
}

// interposed is a client that does something before it hands over commands.
type interposed struct {
	rueidis.Client
	before func(multi []rueidis.Completed)
}

func (c *interposed) DoMulti(ctx context.Context, multi ...rueidis.Completed) []rueidis.RedisResult {
	c.before(multi)
	return c.Client.DoMulti(ctx, multi...)
}

// interrupted returns the store; others do something before it first gives a part back.
func interrupted(s *Store, others func()) *Store {
	others = sync.OnceFunc(others)
	s.client = &interposed{s.client, func(multi []rueidis.Completed) {
		if multi[0].Commands()[1] == giveBackScript.sha {
			others()
		}
	}}
	return s
}

func TestSlotsAreThoseOfTheServer(t *testing.T) {
	s := openTest(t, dbtest.RedisCluster(t), nil)
	for _, key := range []string{"", "a", "{a}", "a}{b", "%", "é", "user:42"} {
		c := law.Cell{Limit: "l{x}", Key: key}
		for _, name := range []string{s.cellKey(c), s.logKey(c)} {
			if slot, err := admin(t, s, "CLUSTER", "KEYSLOT", name).AsInt64(); err != nil || slot != int64(s.slotOf(c)) {
				t.Errorf("%s is in slot %d (%v), not in %d", name, slot, err, s.slotOf(c))
			}
		}
	}
}

var (
	perSecond = law.Params{Kind: law.Bucket, Unit: 1_000_000, Capacity: 10_000_000, Step: 1, Drain: 1}
	windowed  = law.Params{Kind: law.Window, Unit: 1000, Capacity: 10_000, Step: 10_000_000}
	logged    = law.Params{Kind: law.Log, Unit: 1000, Capacity: 10_000, Step: 10_000_000}
	recorded  = law.Params{Kind: law.Log, Unit: 1000, Capacity: 10_000, Step: 10_000_000, History: 60_000_000}
	allLaws   = []law.Params{perSecond, windowed, logged, recorded}
)

// refusedBy returns a request for three of a limit and for what a full cell in
// another slot refuses.
func refusedBy(t *testing.T, s *Store, p law.Params, now int64) []law.Op {
	t.Helper()
	a, b := apart(t)
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

func TestARequestOverSlotsIsAdmittedAsAWhole(t *testing.T) {
	s := openTest(t, dbtest.RedisCluster(t), nil)
	a, b := apart(t)
	for _, p := range allLaws {
		limit := fmt.Sprint(p)
		outs := apply(t, s, takeOne(limit, a, p, testTime), takeOne(limit, b, p, testTime))
		for i := range outs {
			if outs[i].Granted != 1 || outs[i].State.Level != p.Unit || outs[i].RetryAt != 0 {
				t.Errorf("%+v: %+v", p, outs[i])
			}
		}
	}
}

func TestARefusedRequestOverSlotsLeavesTheOthersAsTheyWere(t *testing.T) {
	for _, used := range []bool{false, true} {
		for _, p := range allLaws {
			s := openTest(t, dbtest.RedisCluster(t), nil)
			ops := refusedBy(t, s, p, testTime)
			cell := ops[0].Cell
			var before law.State
			if used {
				op := takeOne("l", cell.Key, p, testTime-3_000_000)
				before = apply(t, s, op)[0].State
			}
			value, _ := admin(t, s, "GET", s.cellKey(cell)).ToString()
			count, _ := admin(t, s, "ZCARD", s.logKey(cell)).AsInt64()

			outs := apply(t, s, ops...)
			if outs[0].Granted != 3 || outs[1].Granted != 0 || outs[1].RetryAt != testTime+10_000_000 || outs[0].State != before {
				t.Errorf("used %v, %+v: %+v", used, p, outs)
			}
			after, _ := admin(t, s, "GET", s.cellKey(cell)).ToString()
			if _, reason, _ := parseCell(value); reason != "" || !sameButSeq(value, after) {
				t.Errorf("used %v, %+v: the cell was %q, is %q", used, p, value, after)
			}
			left, err := s.Entries(context.Background(), cell, 10)
			if p.History > 0 {
				count++
				if len(left) == 0 || left[0].Granted || left[0].ExpiresAt != 0 || left[0].ID != "request" || outs[0].EntryNumber != left[0].Number {
					t.Errorf("used %v: want a refused attempt first, have %+v", used, left)
				}
			}
			if err != nil || len(left) != int(count) {
				t.Errorf("used %v, %+v: %d entries, want %d: %+v, %v", used, p, len(left), count, left, err)
			}
		}
	}
}

// sameButSeq compares two cells but for the number that their logs go on from.
func sameButSeq(a, b string) bool {
	sa, _, oka := parseCell(a)
	sb, _, okb := parseCell(b)
	return oka == okb && sa == sb
}

// TestWhatOthersTookMeanwhileStays lets others ask between a request on trial
// and its return.
func TestWhatOthersTookMeanwhileStays(t *testing.T) {
	const second = 1_000_000
	for _, tt := range []struct {
		name    string
		p       law.Params
		later   int64 // when the others take 2
		back    int64 // when it is given back
		level   int64 // in units, afterwards
		prev    int64
		entries int
	}{
		{"at once, all is given back", perSecond, 0, 0, 2, 3, 0},
		{"what has drained is not given back", perSecond, 2 * second, 0, 2, 1, 0},
		{"when all has drained, nothing is", perSecond, 4 * second, 0, 2, 0, 0},
		{"within the window", windowed, second, 0, 2, 0, 0},
		{"in the next window nothing is", windowed, 10 * second, 0, 2, 3, 0},
		{"an entry that counts", logged, second, 0, 2, 0, 1},
		{"an entry that counts no more", logged, 11 * second, 0, 2, 0, 1},
		{"an entry that expires meanwhile", logged, second, 10*second + second/2, 5, 0, 2},
		{"an entry with a history", recorded, second, 0, 2, 0, 2},
		{"an entry with a history that expires meanwhile", recorded, second, 10*second + second/2, 5, 0, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := openTest(t, dbtest.Redis(t), nil)
			now := testTime - testTime%(10*second)
			op := takeOne("l", "k", tt.p, now)
			op.Count = 3
			ops, outs := []law.Op{op}, make([]law.Outcome, 1)
			p := &part{call: &answered{s.encode(ops, []int{0}, onTrial), ops, outs}}
			list, err := s.send(context.Background(), []*call{p.call.call})[0].ToArray()
			if err == nil {
				err = p.read(ops, outs, list)
			}
			if err != nil || !p.admitted {
				t.Fatalf("%+v, %v", outs, err)
			}
			other := takeOne("l", "k", tt.p, now+tt.later)
			other.Count = 2
			apply(t, s, other)
			ops[0].Now = now + tt.back
			numbers, err := s.send(context.Background(), []*call{s.giveBack(ops, outs, p, false)})[0].AsIntSlice()
			if err != nil {
				t.Fatal(err)
			}
			got := decodeState(numbers)
			if got.Level != tt.level*tt.p.Unit || got.Prev != tt.prev*tt.p.Unit || got.At != now+tt.later {
				t.Errorf("got %+v, want level %d and prev %d", got, tt.level, tt.prev)
			}
			value, _ := admin(t, s, "GET", s.cellKey(op.Cell)).ToString()
			if stored, _, _ := parseCell(value); stored != got {
				t.Errorf("stored is %+v, answered was %+v", stored, got)
			}
			left, err := s.Entries(context.Background(), op.Cell, 10)
			if err != nil || len(left) != tt.entries {
				t.Errorf("%d entries, want %d: %+v, %v", len(left), tt.entries, left, err)
			}
			if tt.p.History > 0 && (left[0].Granted == left[1].Granted || left[1].Cost != 3*tt.p.Unit) {
				t.Errorf("want a refused attempt for 3 and one that passed: %+v", left)
			}
			// The level and the log still fit each other: when all has expired,
			// all can be taken.
			all := takeOne("l", "k", tt.p, now+tt.later+30*second)
			all.Count = 10
			if out := apply(t, s, all)[0]; out.Granted != 10 {
				t.Errorf("later: %+v, want all ten", out)
			}
		})
	}
}

// TestReturnsOverSlotsStandAlone returns to a cell in use, to one whose window
// is another, and to one that does not exist, in three slots or fewer.
func TestReturnsOverSlotsStandAlone(t *testing.T) {
	s := openTest(t, dbtest.RedisCluster(t), nil)
	a, b := apart(t)
	op := takeOne("l", a, perSecond, testTime)
	op.Count = 3
	out := apply(t, s, op)[0]
	monthly := law.Params{Kind: law.Bucket, Anchor: law.Calendar, Unit: 1000, Capacity: 5000, Step: 1000, Drain: law.Max}
	stale, none := takeOne("month", b, monthly, testTime), takeOne("log", b, logged, testTime)
	stale.Window = [4]int64{1, 2, 3, 4}
	outs := apply(t, s, law.Back(&op, &out, 2*perSecond.Unit), law.Back(&stale, &law.Outcome{}, 1), law.Back(&none, &law.Outcome{EntryNumber: 1}, 1))
	if outs[0].Granted != 2*perSecond.Unit || outs[0].Used != perSecond.Unit || outs[0].Stale || outs[0].State.Prev != 2*perSecond.Unit {
		t.Errorf("in use: %+v", outs[0])
	}
	if !outs[1].Stale || outs[1].Granted != 0 {
		t.Errorf("of another window: %+v", outs[1])
	}
	if outs[2] != (law.Outcome{Clock: testTime}) {
		t.Errorf("that does not exist: %+v", outs[2])
	}
	for _, cell := range []law.Cell{stale.Cell, none.Cell} {
		if n, err := admin(t, s, "EXISTS", s.cellKey(cell), s.logKey(cell)).AsInt64(); n != 0 || err != nil {
			t.Errorf("a return made %v, %v", cell, err)
		}
	}
}

// TestALoweredEntryKeepsItsNumber gives back to entries of a log, charged at the
// server's time, where they are found at once, and at a test's.
func TestALoweredEntryKeepsItsNumber(t *testing.T) {
	s := openTest(t, dbtest.Redis(t), nil)
	for _, p := range []law.Params{logged, recorded} {
		p.Capacity = 200 * p.Unit
		for _, now := range []int64{0, testTime} {
			many := make([]law.Op, 200)
			for i := range many {
				many[i] = takeOne(fmt.Sprint(now, p), "k", p, now)
				many[i].Group, many[i].ID, many[i].TTL = uint32(i), fmt.Sprintf("%%1 of %d", i), 1000
			}
			outs := apply(t, s, many...)
			was, err := s.Entries(context.Background(), many[0].Cell, 1000)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range []int{0, 100, 199} { // of the newest first
				i := 199 - n
				for _, want := range []int64{700, 300, 0} {
					if got := apply(t, s, law.Back(&many[i], &outs[i], 700))[0]; got.Granted != want {
						t.Errorf("entry %d: %+v, want %d", i, got, want)
					}
				}
				was[n].Cost, was[n].ExpiresAt = 0, 0
			}
			if got := apply(t, s, law.Back(&many[49], &outs[49], 400))[0]; got.Granted != 400 || got.Used != 196_600 {
				t.Errorf("in part: %+v", got)
			}
			was[150].Cost -= 400
			if p.History == 0 {
				was = slices.DeleteFunc(was, func(e law.Entry) bool { return e.ExpiresAt == 0 })
			}
			if list, err := s.Entries(context.Background(), many[0].Cell, 1000); err != nil || !slices.Equal(list, was) {
				t.Errorf("have %+v\nwant %+v, %v", list, was, err)
			}
		}
	}
}

// TestALogOfOneEntryKeepsItsTime is for a log that is empty while its only
// entry is replaced.
func TestALogOfOneEntryKeepsItsTime(t *testing.T) {
	s := openTest(t, dbtest.Redis(t), nil)
	op := takeOne("l", "k", recorded, 0)
	out := apply(t, s, op)[0]
	for _, credits := range []int64{400, 600} {
		back := law.Back(&op, &out, credits)
		if got := apply(t, s, back)[0]; got.Granted != credits {
			t.Errorf("%+v, want %d", got, credits)
		}
		if ms, err := admin(t, s, "PTTL", s.logKey(op.Cell)).AsInt64(); err != nil || ms < 1000 {
			t.Errorf("%d ms, %v", ms, err)
		}
	}
}

func TestACheckOverSlotsWritesNothing(t *testing.T) {
	s := openTest(t, dbtest.RedisCluster(t), nil)
	ops := refusedBy(t, s, perSecond, testTime)
	for i := range ops {
		ops[i].Verb, ops[i].ID = law.Check, ""
	}
	if outs := apply(t, s, ops...); outs[0].Granted != 3 || outs[1].Granted != 0 || outs[0].State.Kind != 0 {
		t.Errorf("%+v", outs)
	}
	if n, _ := admin(t, s, "EXISTS", s.cellKey(ops[0].Cell)).AsInt64(); n != 0 {
		t.Error("a check wrote a cell")
	}
}

func TestAStaleRequestOverSlotsIsStaleAsAWhole(t *testing.T) {
	s := openTest(t, dbtest.RedisCluster(t), nil)
	a, b := apart(t)
	monthly := law.Params{Kind: law.Bucket, Anchor: law.Calendar, Unit: 1000, Capacity: 5000, Step: 1000, Drain: law.Max}
	stale := takeOne("month", b, monthly, testTime)
	stale.Window = [4]int64{1, 2, 3, 4}
	outs := apply(t, s, takeOne("l", a, perSecond, testTime), stale)
	if !outs[0].Stale || !outs[1].Stale || outs[0].State.Level != 0 {
		t.Errorf("%+v", outs)
	}
	if out := apply(t, s, takeOne("l", a, perSecond, testTime))[0]; out.Used != perSecond.Unit {
		t.Errorf("used %d, want one unit: a stale request was charged", out.Used)
	}
}

func TestABatchWithRequestsOverSlotsKeepsItsOrder(t *testing.T) {
	s := openTest(t, dbtest.RedisCluster(t), nil)
	a, b := apart(t)
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
			t.Errorf("op %d: %+v, want %d used", i, out, used[ops[i].Cell.Key])
		}
	}
}

// TestAnUndoneRequestIsNotInTheHistory: one that is stale was not refused.
func TestAnUndoneRequestIsNotInTheHistory(t *testing.T) {
	s := openTest(t, dbtest.RedisCluster(t), nil)
	a, b := apart(t)
	monthly := law.Params{Kind: law.Bucket, Anchor: law.Calendar, Unit: 1000, Capacity: 5000, Step: 1000, Drain: law.Max}
	stale := takeOne("month", b, monthly, testTime)
	stale.Window = [4]int64{1, 2, 3, 4}
	op := takeOne("l", a, recorded, testTime)
	outs := apply(t, s, op, stale)
	left, err := s.Entries(context.Background(), op.Cell, 10)
	if err != nil || len(left) > 0 || outs[0].EntryNumber != 0 {
		t.Errorf("a stale request, of which nothing was done, is in the history: %+v, %v", left, err)
	}
}

// TestAReservationOverSlotsIsRefusedBeforeAnythingIsSent, with what is wrong and what to do.
func TestAReservationOverSlotsIsRefusedBeforeAnythingIsSent(t *testing.T) {
	s := openTest(t, dbtest.RedisCluster(t), nil)
	sent := 0
	s.client = &interposed{s.client, func([]rueidis.Completed) { sent++ }}
	a, b := apart(t)
	ops := []law.Op{takeOne("l", a, perSecond, testTime), takeOne("l", b, perSecond, testTime)}
	for i := range ops {
		ops[i].Deferred, ops[i].Ceiling = true, perSecond.Ceiling(1_000_000)
	}
	for _, out := range outcomes(t, s, ops...) {
		if !errors.Is(out.Err, store.ErrUnsupported) || !strings.Contains(fmt.Sprint(out.Err), "redis.Config.Slot") {
			t.Errorf("%+v", out)
		}
	}
	if sent > 0 {
		t.Errorf("it was sent in %d round trips", sent)
	}
	s.cfg.Slot = func(string) string { return "both" }
	for _, out := range outcomes(t, s, ops...) {
		if out.Err != nil || out.Granted != 1 || out.StartAt != testTime {
			t.Errorf("with one tag: %+v", out)
		}
	}
	if sent == 0 {
		t.Error("what is sent is not seen")
	}
}

// TestWhatOthersDoBetweenTheRoundTripsStays: a block, and what is charged after a reset.
func TestWhatOthersDoBetweenTheRoundTripsStays(t *testing.T) {
	url := dbtest.RedisCluster(t)
	s := openTest(t, url, nil)
	for _, verb := range []law.Verb{law.Block, law.Reset} {
		for _, id := range []string{"", "id"} {
			ops := refusedBy(t, s, perSecond, testTime)
			for i := range ops {
				if ops[i].Cell.Limit = fmt.Sprint(ops[i].Cell.Limit, verb, id); id == "" {
					ops[i].ID, ops[i].TTL = "", 0
				}
			}
			full := ops[1]
			full.ID, full.TTL = "", 0
			apply(t, s, full)
			other := takeOne(ops[0].Cell.Limit, ops[0].Cell.Key, perSecond, testTime)
			act := other
			if act.Verb = verb; verb == law.Block {
				act.TTL, act.Reason = 3600_000_000, "abuse"
			}
			outs := apply(t, interrupted(openTest(t, url, nil), func() {
				if apply(t, s, act); verb == law.Reset {
					apply(t, s, other)
				}
			}), ops...)
			check := other
			check.Verb = law.Check
			level := int64(0)
			if verb == law.Reset {
				level = perSecond.Unit
			}
			out := apply(t, s, check)[0]
			if outs[1].Granted != 0 || out.State.Level != level || (out.State.BlockedUntil > 0) != (verb == law.Block) {
				t.Errorf("verb %v, id %q: %+v, then %+v", verb, id, outs, out.State)
			}
		}
	}
}
