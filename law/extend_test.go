package law_test

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/headgate/headgate/law"
)

// part is what a request was charged at one time, when it was made or extended.
type part struct{ at, credits int64 }

// TestExtensionsAdmitNothingBeyondTheLimit charges random requests, extends them up to four times, and settles them. In
// no interval may the used credits exceed the bound. A request uses its first parts first.
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
		returned, extensions := int64(0), 0
		for seed := range rounds(3000) {
			r, e := checkExtensions(t, p, rand.New(rand.NewPCG(seed, 3)))
			returned, extensions = returned+r, extensions+e
		}
		if returned == 0 || extensions == 0 {
			t.Errorf("%+v: %d credits given back, %d extensions; want some", p, returned, extensions)
		}
	}
}

// checkExtensions checks one random history, and returns how many credits were given back, and how many extensions were
// admitted in it.
func checkExtensions(t *testing.T, p law.Params, rng *rand.Rand) (returned int64, extensions int) {
	var c cell
	var used []part
	open := map[string][]part{} // the parts of requests that are not settled, by their ids
	var ids []string            // the keys of open
	now := start
	for n := range 50 {
		now += rng.Int64N(1200)
		if len(ids) == 0 || rng.IntN(3) == 0 {
			op := take(p, 1+rng.Int64N(2500))
			op.ID, op.TTL = strconv.Itoa(n), 1<<40 // 13 days
			if out := c.apply(op, now); out.Granted == 1 {
				open[op.ID], ids = []part{{now, op.Cost}}, append(ids, op.ID)
			}
			continue
		}
		i := rng.IntN(len(ids))
		id := ids[i]
		parts := open[id]
		var total int64
		for _, part := range parts {
			total += part.credits
		}
		op := take(p, total+1+rng.Int64N(1500))
		op.ID, op.TTL, op.Verb = id, 1<<40, law.Extend
		if len(parts) < 5 && rng.IntN(2) == 0 {
			if out := c.apply(op, now); out.Granted == op.Cost {
				open[id], extensions = append(parts, part{now, op.Cost - total}), extensions+1
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
		returned += out.Granted
		for _, part := range parts {
			part.credits = min(part.credits, op.Cost)
			used, op.Cost = append(used, part), op.Cost-part.credits
		}
		ids = append(ids[:i], ids[i+1:]...)
	}
	for _, id := range ids {
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
				t.Fatalf("%+v: %d credits passed in %d us, want at most %d", p, sum, last.at-first.at,
					maxCredits(p, first.at, last.at))
			}
		}
	}
	return returned, extensions
}

// TestSettleOfExtendedCharges settles charges, most of them extended before, and checks how much is given back.
func TestSettleOfExtendedCharges(t *testing.T) {
	t.Parallel()
	const from = start - start%(100*second) // the begin of a window by the epoch
	tokenBucketOf10, log := bucket(1, 10), exactLog(20, 100*second)
	window, fixed := twoWindows(20, 10*second), fixedWindowOf(20, 10*second)
	faster := tokenBucketOf10
	faster.Drain = 2
	for _, tt := range []struct {
		name       string
		p          law.Params
		firstUnits int64      // the charge at the start
		extensions [][2]int64 // each: the new sum in units, and the seconds since the start
		actual     int64      // the units of the settlement
		settledAt  int64      // seconds since the start
		want       int64      // units given back; below 0: charged in addition
	}{
		{"what has drained of the first stays", tokenBucketOf10, 4, [][2]int64{{8, 4}}, 0, 4, 4},
		{"a part of the last", tokenBucketOf10, 4, [][2]int64{{8, 2}}, 5, 2, 3},
		{"all of the last and a part of the first", tokenBucketOf10, 6, [][2]int64{{8, 2}}, 0, 2, 6},
		{"the last has drained", tokenBucketOf10, 4, [][2]int64{{8, 4}}, 0, 8, 0},
		{"the second of three parts counts as one of the first", tokenBucketOf10, 2, [][2]int64{{4, 0}, {6, 0}}, 1, 0, 4},
		{"three parts, of which the first has drained", tokenBucketOf10, 2, [][2]int64{{4, 2}, {6, 2}}, 1, 2, 2},
		{"more than all parts", tokenBucketOf10, 4, [][2]int64{{8, 2}}, 12, 2, -4},
		{"by another rule", faster, 4, [][2]int64{{8, 2}}, 0, 2, 0},
		{"of a log", log, 4, [][2]int64{{8, 5}}, 1, 6, 7},
		{"of a log, all counts from the last", log, 4, [][2]int64{{8, 50}}, 1, 149, 7},
		{"of a log, the first expired before", log, 4, [][2]int64{{8, 100}}, 1, 100, 4},
		{"of a log, more", log, 4, [][2]int64{{8, 50}}, 11, 100, -3},
		{"of a log, all of three parts", log, 4, [][2]int64{{8, 5}, {9, 6}}, 0, 7, 9},
		{"of windows", window, 4, [][2]int64{{8, 5}}, 1, 6, 7},
		{"of windows, the first is over", window, 4, [][2]int64{{8, 10}}, 1, 11, 4},
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
		op := take(tt.p, tt.firstUnits*tt.p.Unit)
		op.ID, op.TTL = "id", 1000*second
		if tt.p == faster { // the first charge is by the slower rule
			op.Params = tokenBucketOf10
		}
		c.apply(op, from)
		for _, e := range tt.extensions {
			extend := op
			extend.Verb, extend.Params, extend.Cost = law.Extend, tt.p, e[0]*tt.p.Unit
			if out := c.apply(extend, from+e[1]*second); out.RetryAt != 0 || out.Granted != e[0]*tt.p.Unit {
				t.Errorf("%s: extended to %d: %+v, want it admitted", tt.name, e[0], out)
			}
		}
		op.Verb, op.Params, op.Cost = law.Settle, tt.p, tt.actual*tt.p.Unit
		if out := c.apply(op, from+tt.settledAt*second); out.Err != nil || out.Granted != tt.want*tt.p.Unit {
			t.Errorf("%s: %+v, want %d units", tt.name, out, tt.want)
		}
	}
}

// TestSettleUnderOtherTermsCorrectsNothing changes the limit between a charge and its settlement, and settles twice.
func TestSettleUnderOtherTermsCorrectsNothing(t *testing.T) {
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
				t.Errorf("change %d: %+v; want nothing granted, replayed %v", i, out, replayed)
			}
		}
	}
}

// TestReceiptChargedRoundTrips checks that SetCharged reads the text of Charged back, and refuses other texts.
func TestReceiptChargedRoundTrips(t *testing.T) {
	t.Parallel()
	for _, e := range []law.Extension{{}, {Cost: 1, Level: 2, At: 3, Returned: 4}} {
		want := law.Receipt{Outcome: law.Outcome{Granted: 1, Used: 8, Clock: 9}, Extension: e}
		var got law.Receipt
		if err := got.SetCharged(want.Charged()); err != nil || got != want {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
		for _, text := range []string{"", "1 2", want.Charged() + " 1", want.Charged() + " x 1 2 3"} {
			if err := got.SetCharged(text); err == nil {
				t.Errorf("SetCharged(%q) returned nil, want an error", text)
			}
		}
	}
}
