package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// TestReservationsOverSlotsAreThoseOfPackageLaw reserves on random limits of two
// slots, with an ID or without, and asks again, at times after one of them was
// reset or its charge cancelled.
func TestReservationsOverSlotsAreThoseOfPackageLaw(t *testing.T) {
	s := openTest(t, dbtest.RedisCluster(t), nil)
	a, b := apart(t)
	seed := rand.Uint64()
	g := rand.New(rand.NewPCG(seed, 0))
	records := map[law.Cell]*law.Record{}
	now, rounds, admitted, apartAt, anew := testTime, 2000, 0, 0, 0
	if testing.Short() {
		rounds = 200
	}
	for n := range rounds {
		now += g.Int64N(300_000)
		ops, wait := make([]law.Op, 2), g.Int64N(4_000_000)
		var own [2]*law.Record
		for i, key := range []string{a, b} {
			p := law.Params{Kind: law.Bucket, Unit: 1_000_000, Step: 1, Drain: 1 + 2*g.Int64N(3)}
			p.Capacity = p.Unit * (1 + g.Int64N(3))
			op := takeOne(fmt.Sprint(n/100, p), key, p, now)
			op.Cost, op.Late, op.Ceiling = 1+g.Int64N(p.Capacity+p.Capacity/10), true, p.Ceiling(wait)
			ops[i] = op
			if records[op.Cell] == nil {
				records[op.Cell] = &law.Record{}
			}
			own[i] = records[op.Cell]
		}
		if g.IntN(2) == 0 {
			once60(fmt.Sprint(n), ops...)
		}
		prev := [2]int64{own[0].State.Prev, own[1].State.Prev}
		want := make([]law.Outcome, 2)
		law.Apply(ops, want, now, own[:])
		if want[0].StartAt > 0 {
			admitted++
			if own[0].State.Prev > prev[0] || own[1].State.Prev > prev[1] {
				apartAt++
			}
		}
		outs := apply(t, s, ops...)
		for again := false; ; again = true {
			for i, out := range outs {
				if out.Replayed = out.Replayed && !again; out != want[i] {
					t.Fatalf("round %d of seed %d, charge %d of %+v, asked again %v:\n got %+v\nwant %+v", n, seed, i, ops, again, out, want[i])
				}
			}
			if again || ops[0].ID == "" || want[0].StartAt == 0 {
				break
			}
			outs = apply(t, s, ops...)
		}
		if ops[0].ID != "" && want[0].StartAt > 0 && g.IntN(2) == 0 {
			k := g.IntN(2)
			lost := settling(ops[k], 0)
			if g.IntN(2) == 0 {
				lost.Verb = law.Reset
			}
			law.Apply([]law.Op{lost}, make([]law.Outcome, 1), now, own[k:k+1])
			apply(t, s, lost)
			now += g.Int64N(500_000)
			ops[0].Now, ops[1].Now = now, now
			law.Apply(ops, want, now, own[:])
			if want[0].StartAt > 0 {
				anew++
			}
			// Of a refused one, a slot that knows it says what was said then.
			for i, out := range apply(t, s, ops...) {
				if out != want[i] && (want[0].StartAt > 0 || !out.Replayed && out.Granted != want[i].Granted) {
					t.Fatalf("round %d of seed %d, charge %d of %+v, anew:\n got %+v\nwant %+v", n, seed, i, ops, out, want[i])
				}
			}
		}
		for i := range ops { // what is stored is what was said
			check := ops[i]
			check.Verb, check.Late, check.ID = law.Check, false, ""
			if out := apply(t, s, check)[0]; out.State != own[i].State {
				t.Fatalf("round %d of seed %d: charge %d: stored %+v, want %+v", n, seed, i, out.State, own[i].State)
			}
		}
	}
	if admitted < rounds/5 || admitted > rounds*9/10 || apartAt < rounds/10 || anew < rounds/20 {
		t.Errorf("%d of %d were admitted, %d anew, of %d one could have started earlier: the limits drawn say little", admitted, rounds, anew, apartAt)
	}
}

// TestReservationsOfAnySizeAreThoseOfPackageLaw draws limits from the whole range
// that is valid, and charges one of them twice at times.
func TestReservationsOfAnySizeAreThoseOfPackageLaw(t *testing.T) {
	s := openTest(t, dbtest.Redis(t), nil)
	seed := rand.Uint64()
	g := rand.New(rand.NewPCG(seed, 0))
	rounds, now := 6000, testTime
	if testing.Short() {
		rounds = 600
	}
	var limits [3]law.Params
	var records [3]*law.Record
	admitted, later, full := 0, 0, 0
	for n := range rounds {
		if n%8 == 0 {
			for i := range limits {
				records[i] = &law.Record{}
				for limits[i] = drawLimit(g); limits[i].Kind != law.Bucket || limits[i].Anchor != law.Own; {
					limits[i] = drawLimit(g)
				}
			}
		}
		ops, own := make([]law.Op, 1+g.IntN(4)), make([]*law.Record, 0, 4)
		now = min(now+g.Int64N(int64(1)<<(1+g.IntN(44))), 1<<51)
		for i := range ops {
			k := g.IntN(len(limits))
			p := limits[k]
			ops[i] = law.Op{
				Verb: law.Take, Cell: law.Cell{Limit: fmt.Sprint(k), Key: fmt.Sprint(n / 8)}, Params: p, Now: now,
				Cost: value(g, p.Capacity), Count: 1, Late: true, Ceiling: p.Ceiling(value(g, 1<<51)),
			}
			own = append(own, records[k])
		}
		want := make([]law.Outcome, len(ops))
		law.Apply(ops, want, now, own)
		for i, got := range outcomes(t, s, ops...) {
			if got != want[i] {
				t.Fatalf("round %d of seed %d, charge %d of %+v:\n got %+v\nwant %+v", n, seed, i, ops, got, want[i])
			}
		}
		for i := range want {
			switch {
			case want[i].StartAt > now:
				later++
			case want[i].StartAt > 0:
				admitted++
			case want[i].Granted == 0 && want[i].RetryAt != law.Never && want[i].Used <= law.Max-ops[i].Cost:
				full++
			}
		}
	}
	t.Logf("%d start at once, %d later, %d do not fit", admitted, later, full)
	if min(admitted, later, full) < rounds/50 {
		t.Error("the limits drawn say little")
	}
}

// TestAStartThatCannotBeWrittenDownIsRefused lets one slot start so late that the
// level of the other would have to be beyond 2^53.
func TestAStartThatCannotBeWrittenDownIsRefused(t *testing.T) {
	s := openTest(t, dbtest.RedisCluster(t), nil)
	a, b := apart(t)
	slow := law.Params{Kind: law.Bucket, Unit: 1, Capacity: 1, Step: 1 << 40, Drain: 1}
	quick := law.Params{Kind: law.Bucket, Unit: 1, Capacity: 1 << 50, Step: 1, Drain: 1 << 20}
	ops := once60("id", takeOne("slow", a, slow, testTime), takeOne("quick", b, quick, testTime))
	apply(t, s, takeOne("slow", a, slow, testTime))
	for i := range ops {
		ops[i].Late, ops[i].Ceiling = true, ops[i].Params.Ceiling(1<<41)
	}
	for range 2 {
		outs := apply(t, s, ops...)
		if outs[0].Granted != 1 || outs[1].Granted != 0 || outs[1].RetryAt != testTime+1<<40 || outs[0].StartAt+outs[1].StartAt != 0 || outs[1].State.Level != 0 {
			t.Errorf("%+v", outs)
		}
	}
	if n, _ := admin(t, s, "EXISTS", s.cellKey(ops[1].Cell)).AsInt64(); n != 0 {
		t.Error("the quick limit stays charged")
	}
}

// TestWhatOthersTookBeforeAStartWasCommonStays lets others ask between a trial and
// the common start, and between that and a return.
func TestWhatOthersTookBeforeAStartWasCommonStays(t *testing.T) {
	s := openTest(t, dbtest.Redis(t), nil)
	for when := range 3 {
		ops, outs := once60("id", takeOne("l", fmt.Sprint(when), perSecond, testTime)), make([]law.Outcome, 1)
		ops[0].Late, ops[0].Ceiling = true, perSecond.Capacity
		p := &part{call: &answered{s.encode(ops, []int{0}, onTrial), ops, outs}}
		list, err := s.send(context.Background(), []*call{p.call.call})[0].ToArray()
		if err == nil {
			err = p.read(ops, outs, list)
		}
		if err != nil {
			t.Fatal(err)
		}
		other := takeOne("l", fmt.Sprint(when), perSecond, testTime)
		if when == 1 {
			apply(t, s, other)
		}
		// Another slot starts 5 s later.
		both := []law.Outcome{outs[0], {Granted: 1, StartAt: testTime + 5_000_000, Clock: testTime}}
		if fits, err := s.startTogether(context.Background(), ops, both, []int{0, 1}, []*part{p}); !fits || err != nil {
			t.Fatal(fits, err)
		}
		if out := both[0]; out.StartAt != testTime+5_000_000 || out.Used != 6_000_000 || out.State.Level != 6_000_000 {
			t.Errorf("%+v", out)
		}
		if out := apply(t, s, ops...)[0]; !out.Replayed || out.StartAt != both[0].StartAt || out.State != both[0].State {
			t.Errorf("remembered: %+v", out)
		}
		if when == 2 {
			apply(t, s, other)
		}
		if err := s.giveAllBack(context.Background(), ops, both, []*call{s.giveBack(ops, both, p, true)}); err != nil {
			t.Fatal(err)
		}
		// What others took stays; so does the time until the start that is no more.
		if level := both[0].State.Level; level != []int64{0, 5_000_000, 6_000_000}[when] {
			t.Errorf("%d: level %d", when, level)
		}
	}
}

// TestARequestStandsBehindThoseWhoCameBeforeItsStartWasCommon lets another get a
// start between a trial and the common start: as if the request began at once.
func TestARequestStandsBehindThoseWhoCameBeforeItsStartWasCommon(t *testing.T) {
	s := openTest(t, dbtest.Redis(t), nil)
	for _, tt := range []struct {
		ceiling int64 // in seconds of waiting
		start   int64 // in seconds; 0: refused
	}{{30, 20}, {10, 0}} {
		key := fmt.Sprint(tt.ceiling)
		late := func() law.Op {
			op := takeOne("l", key, perSecond, testTime)
			op.Cost, op.Late, op.Ceiling = perSecond.Capacity, true, perSecond.Ceiling(tt.ceiling*1_000_000)
			return op
		}
		ops, outs := []law.Op{late()}, make([]law.Outcome, 1)
		p := &part{call: &answered{s.encode(ops, []int{0}, onTrial), ops, outs}}
		list, err := s.send(context.Background(), []*call{p.call.call})[0].ToArray()
		if err == nil {
			err = p.read(ops, outs, list)
		}
		if err != nil {
			t.Fatal(err)
		}
		other := apply(t, s, late())[0]
		// Another slot starts 10 s later: when the other does, too.
		both := []law.Outcome{outs[0], {Granted: 1, StartAt: testTime + 10_000_000, Clock: testTime}}
		fits, err := s.startTogether(context.Background(), append(ops, late()), both, []int{0, 1}, []*part{p})
		if err != nil || fits != (tt.start > 0) || other.StartAt != testTime+10_000_000 {
			t.Fatalf("%v, %v; the other starts after %d us", fits, err, other.StartAt-testTime)
		}
		if after := both[0].StartAt - testTime - tt.start*1_000_000; fits && (after < 0 || after > firstMargin) {
			t.Errorf("it starts %d us after %d s", after, tt.start)
		}
	}
}

// TestStartsOverSlotsKeepTheBound lets many reserve on one key or the other, and on
// both, at once.
func TestStartsOverSlotsKeepTheBound(t *testing.T) {
	s := openTest(t, dbtest.RedisCluster(t), nil)
	a, b := apart(t)
	const rate, burst = 500, 5
	p := law.Params{Kind: law.Bucket, Unit: 1_000_000, Capacity: burst * 1_000_000, Step: 1, Drain: rate}
	type begun struct{ start, cost int64 }
	var mu sync.Mutex
	starts := map[string][]begun{}
	conflicts, both := 0, 0
	var wg sync.WaitGroup
	for n := range 12 {
		wg.Go(func() {
			g := rand.New(rand.NewPCG(1, uint64(n)))
			for range 40 {
				keys := [][]string{{a}, {b}, {a, b}, {b, a}}[g.IntN(4)]
				var ops []law.Op
				for _, key := range keys {
					op := takeOne("busy", key, p, 0)
					op.Cost, op.Late, op.Ceiling = (1+g.Int64N(burst))*p.Unit, true, p.Ceiling(30_000_000)
					ops = append(ops, op)
				}
				outs := make([]law.Outcome, len(ops))
				err := s.Apply(context.Background(), ops, outs)
				mu.Lock()
				switch {
				case errors.Is(err, store.ErrConflict) || errors.Is(outs[0].Err, store.ErrConflict):
					conflicts++
				case err != nil || outs[0].Err != nil:
					t.Error(err, outs[0].Err)
				case outs[0].StartAt > 0:
					for i, key := range keys {
						starts[key] = append(starts[key], begun{outs[i].StartAt, ops[i].Cost})
					}
					if len(keys) == 2 {
						both++
						if outs[0].StartAt != outs[1].StartAt && max(outs[0].StartAt, outs[1].StartAt) > max(outs[0].Clock, outs[1].Clock) {
							t.Errorf("two starts of one request: %+v", outs)
						}
					}
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for key, list := range starts {
		slices.SortFunc(list, func(x, y begun) int { return cmp.Compare(x.start, y.start) })
		for i := range list {
			var sum int64
			for _, x := range list[i:] {
				if sum += x.cost; sum > p.Capacity+rate*(x.start-list[i].start) {
					t.Fatalf("key %s: %d credits start within %d us", key, sum, x.start-list[i].start)
				}
			}
		}
	}
	t.Logf("%d and %d start, %d of them on both; %d gave way", len(starts[a]), len(starts[b]), both, conflicts)
	if both < 100 {
		t.Error("too few start on both")
	}
}

// TestAStartThatWasCutOffIsFoundLater leaves a reservation as a store does that is cut
// off before its start is common, and asks again: where others have come after it, it
// is charged anew.
func TestAStartThatWasCutOffIsFoundLater(t *testing.T) {
	for _, touched := range []bool{false, true} {
		s := openTest(t, dbtest.RedisCluster(t), nil)
		a, b := apart(t)
		full := takeOne("l", b, perSecond, testTime)
		full.Count = 10
		apply(t, s, full)
		ops, outs := once60("id", takeOne("l", a, perSecond, testTime), takeOne("l", b, perSecond, testTime)), make([]law.Outcome, 2)
		for i := range ops {
			ops[i].Count, ops[i].Late, ops[i].Ceiling = 6, true, 3*perSecond.Capacity
		}
		s.ask(context.Background(), ops, outs, []*part{
			{call: &answered{s.encode(ops, []int{0}, onTrial), ops, outs}},
			{call: &answered{s.encode(ops, []int{1}, onTrial), ops, outs}},
		})
		if outs[0].StartAt != testTime || outs[1].StartAt != testTime+6_000_000 {
			t.Fatalf("%+v", outs)
		}
		start := testTime + 6_000_000
		if touched { // and waits until 6 s as well
			other := ops[0]
			other.ID, other.TTL, other.Count = "", 0, 10
			if out := apply(t, s, other)[0]; out.StartAt != start {
				t.Fatalf("%+v", out)
			}
			start = testTime + 12_000_000
		}
		for n := range 2 {
			outs = apply(t, s, ops...)
			if outs[0].Replayed == (touched && n == 0) || outs[0].StartAt != start || outs[1].StartAt != start {
				t.Errorf("touched %v: %+v, want a start at %d", touched, outs, start)
			}
		}
	}
}
