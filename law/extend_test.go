package law_test

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/headgate/headgate/law"
)

// part is what a request was charged at a time.
type part struct{ at, credits int64 }

// TestExtensionsAdmitNothingBeyondTheLimit lets random requests be charged, extended up to four
// times, and settled. What was used of them, of the first parts first, passes the limit's bound in no
// interval.
func TestExtensionsAdmitNothingBeyondTheLimit(t *testing.T) {
	t.Parallel()
	for _, p := range []law.Params{
		{Kind: law.Bucket, Unit: 1000, Capacity: 5000, Step: 1, Drain: 1},
		{Kind: law.Bucket, Unit: 1000, Capacity: 5000, Step: 700, Drain: 900},
		{Kind: law.Bucket, Unit: 1000, Capacity: 5000, Step: 4000, Drain: 2000},
		{Kind: law.Bucket, Anchor: law.Epoch, Unit: 1000, Capacity: 5000, Step: 2000, Drain: 2000},
		{Kind: law.Bucket, Anchor: law.Epoch, Unit: 1000, Capacity: 5000, Step: 4000, Drain: law.Max},
		{Kind: law.Log, Unit: 1000, Capacity: 5000, Step: 4000},
	} {
		given, extended := int64(0), 0
		for seed := range rounds(3000) {
			g, e := checkExtensions(t, p, rand.New(rand.NewPCG(seed, 3)))
			given, extended = given+g, extended+e
		}
		if given == 0 || extended == 0 {
			t.Errorf("%+v: %d credits given back, %d extensions", p, given, extended)
		}
	}
}

func checkExtensions(t *testing.T, p law.Params, rng *rand.Rand) (given int64, extended int) {
	var c cell
	var used []part
	open := map[string][]part{}
	var names []string // of those that are open
	now := start
	for n := range 50 {
		now += rng.Int64N(1200)
		if len(names) == 0 || rng.IntN(3) == 0 {
			op := take(p, 1+rng.Int64N(2500))
			op.ID, op.TTL = strconv.Itoa(n), 1<<40
			if out := c.apply(op, now); out.Granted == 1 {
				open[op.ID], names = []part{{now, op.Cost}}, append(names, op.ID)
			}
			continue
		}
		i := rng.IntN(len(names))
		id := names[i]
		parts := open[id]
		var total int64
		for _, part := range parts {
			total += part.credits
		}
		op := take(p, total+1+rng.Int64N(1500))
		op.ID, op.TTL, op.Verb = id, 1<<40, law.Extend
		if len(parts) < 5 && rng.IntN(2) == 0 {
			if out := c.apply(op, now); out.Granted == op.Cost {
				open[id], extended = append(parts, part{now, op.Cost - total}), extended+1
			} else if out.Granted != total || out.RetryAt == 0 {
				t.Fatalf("%+v: extended from %d to %d: %+v", p, total, op.Cost, out)
			}
			continue
		}
		op.Verb, op.Cost = law.Settle, rng.Int64N(total+1)
		out := c.apply(op, now)
		if out.Err != nil || out.Granted < 0 || out.Granted > total-op.Cost {
			t.Fatalf("%+v: settled %d at %d: %+v", p, total, op.Cost, out)
		}
		given += out.Granted
		for _, part := range parts {
			part.credits = min(part.credits, op.Cost)
			used, op.Cost = append(used, part), op.Cost-part.credits
		}
		names = append(names[:i], names[i+1:]...)
	}
	for _, id := range names {
		used = append(used, open[id]...)
	}
	for _, first := range used {
		for _, last := range used {
			var sum int64
			for _, u := range used {
				if u.at >= first.at && u.at <= last.at {
					sum += u.credits
				}
			}
			if last.at >= first.at && sum > maxCredits(p, first.at, last.at) {
				t.Fatalf("%+v: %d credits pass in %d us, %d may", p, sum, last.at-first.at, maxCredits(p, first.at, last.at))
			}
		}
	}
	return given, extended
}

// TestGiveBackExtensions settles charges that were extended at other times than they were made.
func TestGiveBackExtensions(t *testing.T) {
	t.Parallel()
	const from = start - start%(100*second) // so that windows by the epoch begin there
	b, l := bucket(1, 10), exactLog(20, 100*second)
	w, fixed := twoWindows(20, 10*second), aligned(20, 10*second)
	faster := b
	faster.Drain = 2
	for _, tt := range []struct {
		name    string
		p       law.Params
		first   int64      // units at the start
		more    [][2]int64 // how many units, after how many seconds
		actual  int64      // units
		after   int64      // seconds
		changed int64      // units
	}{
		{"what has drained of the first stays", b, 4, [][2]int64{{8, 4}}, 0, 4, 4},
		{"a part of the last", b, 4, [][2]int64{{8, 2}}, 5, 2, 3},
		{"all of the last and a part of the first", b, 6, [][2]int64{{8, 2}}, 0, 2, 6},
		{"the last has drained", b, 4, [][2]int64{{8, 4}}, 0, 8, 0},
		{"the second of three parts counts as one of the first", b, 2, [][2]int64{{4, 0}, {6, 0}}, 1, 0, 4},
		{"three parts, of which the first has drained", b, 2, [][2]int64{{4, 2}, {6, 2}}, 1, 2, 2},
		{"more than all parts", b, 4, [][2]int64{{8, 2}}, 12, 2, -4},
		{"by another rule", faster, 4, [][2]int64{{8, 2}}, 0, 2, 0},
		{"of a log", l, 4, [][2]int64{{8, 5}}, 1, 6, 7},
		{"of a log, all counts from the last", l, 4, [][2]int64{{8, 50}}, 1, 149, 7},
		{"of a log, the first expired before", l, 4, [][2]int64{{8, 100}}, 1, 100, 4},
		{"of a log, more", l, 4, [][2]int64{{8, 50}}, 11, 100, -3},
		{"of a log, all of three parts", l, 4, [][2]int64{{8, 5}, {9, 6}}, 0, 7, 9},
		{"of windows", w, 4, [][2]int64{{8, 5}}, 1, 6, 7},
		{"of windows, the first is over", w, 4, [][2]int64{{8, 10}}, 1, 11, 4},
		{"of fixed windows", fixed, 4, [][2]int64{{8, 5}}, 1, 6, 7},
		{"of fixed windows, all of three parts", fixed, 2, [][2]int64{{8, 5}, {9, 6}}, 0, 7, 9},
		{"of fixed windows, the first is over", fixed, 4, [][2]int64{{8, 10}}, 1, 11, 4},
		{"of fixed windows, more", fixed, 4, [][2]int64{{8, 10}}, 9, 11, -1},
		{"less of a fixed window", fixed, 3, nil, 1, 1, 2},
		{"more of a fixed window", fixed, 3, nil, 4, 1, -1},
		{"less of a fixed window that is over", fixed, 3, nil, 1, 11, 0},
		{"more of a fixed window that is over", fixed, 3, nil, 4, 11, 0},
	} {
		var c cell
		op := take(tt.p, tt.first*tt.p.Unit)
		op.ID, op.TTL = "id", 1000*second
		if tt.p == faster {
			op.Params = b
		}
		c.apply(op, from)
		for _, m := range tt.more {
			more := op
			more.Verb, more.Params, more.Cost = law.Extend, tt.p, m[0]*tt.p.Unit
			if out := c.apply(more, from+m[1]*second); out.RetryAt != 0 || out.Granted != m[0]*tt.p.Unit {
				t.Errorf("%s: extended to %d: %+v", tt.name, m[0], out)
			}
		}
		op.Verb, op.Params, op.Cost = law.Settle, tt.p, tt.actual*tt.p.Unit
		if out := c.apply(op, from+tt.after*second); out.Err != nil || out.Granted != tt.changed*tt.p.Unit {
			t.Errorf("%s: %+v, want %d units", tt.name, out, tt.changed)
		}
	}
}

// TestNothingIsSettledUnderOtherTerms settles charges that were made under other terms: nothing is corrected.
func TestNothingIsSettledUnderOtherTerms(t *testing.T) {
	t.Parallel()
	for i, change := range []func(p *law.Params){
		func(p *law.Params) { p.Drain = 2 },
		func(p *law.Params) { p.Capacity *= 2 },
		func(p *law.Params) { p.Unit *= 2; p.Capacity *= 2 },
		func(p *law.Params) { p.Anchor, p.Step, p.Drain = law.Epoch, 10*second, law.Max },
	} {
		var c cell
		op := take(bucket(1, 10), 4_000_000)
		op.ID, op.TTL = "id", minute
		c.apply(op, start)
		op.Verb, op.Cost = law.Settle, 1_000_000
		change(&op.Params)
		for _, replayed := range []bool{false, true} {
			if out := c.apply(op, start); out.Err != nil || out.Granted != 0 || out.Replayed != replayed ||
				replayed && out.State.Level != 4_000_000 {
				t.Errorf("after change %d, replayed %v: %+v", i, replayed, out)
			}
		}
	}
}

func TestReceiptsAreReadBack(t *testing.T) {
	t.Parallel()
	for _, e := range []law.Extension{{}, {Cost: 1, Level: 2, At: 3, Returned: 4}} {
		a := law.Receipt{Outcome: law.Outcome{Granted: 1, Used: 8, Clock: 9}, Extension: e}
		var b law.Receipt
		if err := b.SetCharged(a.Charged()); err != nil || b != a {
			t.Errorf("%+v, %v; want %+v", b, err, a)
		}
		for _, bad := range []string{"", "1 2", a.Charged() + " 1", a.Charged() + " x 1 2 3"} {
			if err := b.SetCharged(bad); err == nil {
				t.Errorf("%q is read as a charge", bad)
			}
		}
	}
}
