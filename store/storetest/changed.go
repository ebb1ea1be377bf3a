package storetest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// perEpoch is of 100 units, as those after it, by the notation that makes them.
func perEpoch(window int64) law.Params { return fixedWindow(100, window) }

func fromFirst(window int64) law.Params {
	p := perEpoch(window)
	p.Anchor = law.Own
	return p
}

func everyStep(step int64) law.Params {
	return law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 100_000, Step: step, Drain: 100_000}
}

// smooth refills 100 units in a period, a credit at a time.
func smooth(period int64) law.Params {
	return law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 100_000, Step: period / 100_000, Drain: 1}
}

// byDay is a limit for each day of a zone.
func byDay() law.Params {
	return law.Params{
		Kind: law.Bucket, Anchor: law.Calendar, Unit: 1000, Capacity: 100_000, Step: 26 * hour,
		Drain: law.Max,
	}
}

// daysAround returns the boundaries of the ops of a zone whose clocks are so far ahead of UTC.
func daysAround(now, offset int64) [4]int64 {
	b := now - (now+offset)%day
	return [4]int64{b - day, b, b + day, b + 2*day}
}

// changed changes limits some seconds after all of them was used: what was used
// still counts.
func changed(t *testing.T, s store.Store) {
	window, log := slidingWindow(100, hour), slidingLog(100, hour)
	const eight = T0 - T0%day + 8*hour
	for name, tt := range map[string]struct {
		from, to law.Params
		offset   int64 // of the zone that the limit is changed to
		begin    int64 // later than at a full hour
	}{
		"fixed-window 1h to 1m":                         {from: perEpoch(hour), to: perEpoch(minute)},
		"fixed-window 1m to 1h":                         {from: perEpoch(minute), to: perEpoch(hour)},
		"fixed-window 1h to token-bucket":               {from: perEpoch(hour), to: smooth(hour)},
		"from-first 1h to 1m":                           {from: fromFirst(hour), to: fromFirst(minute)},
		"from-first 1h to token-bucket":                 {from: fromFirst(hour), to: smooth(hour)},
		"interval 1h to token-bucket":                   {from: everyStep(hour), to: smooth(hour)},
		"interval 1h to interval 1m":                    {from: everyStep(hour), to: everyStep(minute)},
		"fixed-window day to token-bucket 1d":           {from: byDay(), to: smooth(day)},
		"fixed-window day to a day of another zone":     {from: byDay(), to: byDay(), offset: 15*hour + 10*minute},
		"fixed-window day to fixed-window 1m":           {from: byDay(), to: perEpoch(minute)},
		"token-bucket 1d to 1h":                         {from: smooth(day), to: smooth(hour)},
		"from-first 1h to fixed-window 1h":              {from: fromFirst(hour), to: perEpoch(hour), begin: 30 * minute},
		"interval 1h to fixed-window 1h":                {from: everyStep(hour), to: perEpoch(hour), begin: 30 * minute},
		"sliding-window 1m to 1h":                       {from: inSteps(window, minute), to: window},
		"sliding-window 1h to 1m":                       {from: window, to: inSteps(window, minute)},
		"sliding-log 1h to 1m":                          {from: log, to: inSteps(log, minute)},
		"fixed-window 1h to a tenth of it":              {from: perEpoch(hour), to: tenth(perEpoch(minute))},
		"token-bucket to a tenth of it in a log":        {from: smooth(hour), to: tenth(inSteps(log, minute))},
		"fixed-window 1h to sliding-log":                {from: perEpoch(hour), to: log},
		"fixed-window 1h to sliding-window":             {from: perEpoch(hour), to: window},
		"sliding-log to fixed-window 1m":                {from: log, to: perEpoch(minute)},
		"sliding-log to token-bucket":                   {from: log, to: smooth(hour)},
		"sliding-window to token-bucket":                {from: window, to: smooth(hour)},
		"sliding-window to sliding-log":                 {from: window, to: log},
		"sliding-log of 100 to the same in finer units": {from: log, to: finer(log)},
		"token-bucket to the same in finer units":       {from: smooth(hour), to: finer(smooth(hour))},
	} {
		ask := func(p law.Params, units, now, offset int64) law.Outcome {
			op := take("changed", name, p, units, now)
			op.Window = daysAround(now, offset)
			return one(t, s, op)
		}
		eight := eight + tt.begin
		ask(tt.from, 1, eight, 0)
		if out := ask(tt.from, 99, eight+59*minute+55*sec, 0); out.Granted != 1 && tt.from.Step > minute {
			t.Errorf("%s: %+v, want 99 more before the change", name, out)
		}
		passed, retry := int64(0), int64(0)
		for range tier.Pick(20, 100, 100) {
			out := ask(tt.to, 1, eight+59*minute+57*sec, tt.offset)
			passed += out.Granted
			retry = out.RetryAt
		}
		if passed > 1 { // what drains in two seconds
			t.Errorf("%s: %d more pass two seconds after all was used", name, passed)
		}
		if out := ask(tt.to, 1, retry, tt.offset); out.Granted != 1 {
			t.Errorf("%s: not even one passes at the time that was told, %d s later: %+v", name,
				(retry-eight)/sec-3597, out)
		}
	}
}

func inSteps(p law.Params, step int64) law.Params {
	p.Step = step
	return p
}

func tenth(p law.Params) law.Params {
	p.Capacity /= 10
	if p.Kind == law.Bucket && p.Drain > 1 && p.Drain < law.Max {
		p.Drain /= 10
	}
	return p
}

func finer(p law.Params) law.Params {
	p.Unit, p.Capacity = 2*p.Unit, 2*p.Capacity
	if p.Kind == law.Bucket {
		p.Drain *= 2
	}
	return p
}

// disagree asks in turn by two definitions of one limit, as two processes do during
// a rolling deployment: no key starves, and no more passes than both bounds together
// allow.
func disagree(t *testing.T, s store.Store) {
	bucket := smooth(10 * sec) // 10 a second
	bucket.Capacity = 10_000
	log, window := slidingLog(10, sec), slidingWindow(10, sec)
	fixed, slow := tenth(perEpoch(sec)), smooth(hour)
	otherLog := finer(log)
	otherLog.Capacity++
	large := perEpoch(hour)
	// ten times what the others let pass in all of a test
	large.Capacity *= 10
	// more than a window can count
	huge := law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 1e10, Step: 360, Drain: 1000}
	wide := law.Params{Kind: law.Window, Unit: 1000, Capacity: 4e9, Step: minute}
	for name, pair := range map[string][2]law.Params{
		"token-bucket, sliding-log":      {bucket, log},
		"token-bucket, sliding-window":   {bucket, window},
		"token-bucket, fixed-window":     {bucket, fixed},
		"sliding-log, sliding-window":    {log, window},
		"sliding-log in other units":     {log, otherLog},
		"sliding-window, fixed-window":   {window, fixed},
		"token-bucket in other units":    {bucket, finer(bucket)},
		"token-bucket, fast and slow":    {bucket, slow},
		"interval, token-bucket":         {tenth(everyStep(sec)), bucket},
		"fixed-window, of 1 s and 10 s":  {fixed, tenth(perEpoch(10 * sec))},
		"fixed-window, small and large":  {fixed, large},
		"sliding-log, and a large one":   {log, large},
		"sliding-window, a large one":    {window, large},
		"from-first, and a large one":    {tenth(fromFirst(sec)), large},
		"token-bucket, and a large one":  {bucket, large},
		"sliding-window, and a huge one": {wide, huge},
	} {
		for _, every := range []int64{500_000, 20_000} {
			length := tier.Pick[int64](5, 20, 20) * sec
			passed, key := int64(0), fmt.Sprint(name, every)
			var ops []law.Op
			for at, turn := every, 0; at <= length; at, turn = at+every, turn+1 {
				p := pair[turn%2]
				// First all of it, in half of the cases, then one by one.
				if every > 100_000 {
					ops = append(ops, take("disagree", key, p, p.Capacity/p.Unit, T0+at))
				}
				for range min(12, every/20_000) {
					ops = append(ops, take("disagree", key, p, 1, T0+at))
				}
				if len(ops) > 200 || at+every > length {
					for i := range ops {
						ops[i].Group = uint32(i + 1)
					}
					for i, out := range apply(t, s, ops...) {
						passed += out.Granted * ops[i].Cost / ops[i].Params.Unit
					}
					ops = ops[:0]
				}
			}
			most := int64(0)
			for _, p := range pair {
				most += passes(p, length)
			}
			// Each definition alone lets at least 2.5 a second pass, but for the slow one.
			if passed > most || passed < length/sec {
				t.Errorf("%s, each %d ms: %d pass in %d s, want %d to %d", name, every/1000, passed, length/sec, length/sec, most)
			}
		}
	}
}

// passes returns how many units a limit lets pass at most in some interval.
func passes(p law.Params, length int64) int64 {
	switch {
	case p.Kind == law.Log:
		return p.Capacity / p.Unit * (length/p.Step + 1)
	case p.Kind == law.Window || p.Drain >= p.Capacity:
		return p.Capacity / p.Unit * (length/p.Step + 2)
	}
	return (p.Capacity + p.Drain*(length/p.Step+1)) / p.Unit
}

// steppingBack sets the clock back by less than 2 s, again and again: counted by the times
// that were reported, no interval has more than the bound.
func steppingBack(t *testing.T, s store.Store) {
	rng := rand.New(rand.NewPCG(1, uint64(T0)))
	for name, p := range map[string]law.Params{
		"token-bucket": bucket(10, 5), "sliding-log": slidingLog(5, 2*sec), "fixed-window": perEpoch(2 * sec),
	} {
		type charge struct{ at, units int64 }
		var passed []charge
		now, latest := T0, T0
		for range 60 {
			if now += rng.Int64N(600_000); rng.IntN(4) == 0 {
				now = max(now-rng.Int64N(1_900_000), latest-1_900_000) // by 2 s in all it would be healed
			}
			latest = max(latest, now)
			op := take("stepping back", name, p, 1+rng.Int64N(3), now)
			out := one(t, s, op)
			look := check(op)
			if again := one(t, s, look); look.DecidedAt(&again) < op.DecidedAt(&out) {
				t.Errorf("%s: a check is decided for %d, before %d", name, look.DecidedAt(&again), op.DecidedAt(&out))
			}
			if out.Granted == 1 {
				passed = append(passed, charge{op.DecidedAt(&out), op.Cost / p.Unit})
			}
		}
		for _, first := range passed {
			for _, last := range passed {
				sum := int64(0)
				for _, c := range passed {
					if c.at >= first.at && c.at <= last.at {
						sum += c.units
					}
				}
				length := last.at - first.at
				most := p.Capacity * (length/p.Step + 1) // credits
				switch {
				case p.Anchor == law.Epoch:
					most = p.Capacity * (last.at/p.Step - first.at/p.Step + 1)
				case p.Kind == law.Bucket:
					most = p.Capacity + p.Drain*length/p.Step
				}
				if length >= 0 && sum*p.Unit > most {
					t.Fatalf("%s: %d units of %d credits pass within %d us, at most %d credits may", name, sum, p.Unit,
						length, most)
				}
			}
		}
	}
}

// roundTimes asks a sliding window at the times at which people look: half way
// through the next window, half of the last one counts.
func roundTimes(t *testing.T, s store.Store) {
	for _, step := range []int64{sec, minute, hour, day, 30 * day} {
		p := slidingWindow(20, step)
		start := T0 - T0%(30*day)
		key := fmt.Sprint(step)
		one(t, s, take("round times", key, p, 20, start))
		if out := one(t, s, take("round times", key, p, 10, start+step+step/2)); out.Granted != 1 {
			t.Errorf("a window of %d s: 10 of 20 do not pass half way through the next: %+v", step/sec, out)
		}
		if out := one(t, s, take("round times", key, p, 5, start+step+step*3/4)); out.Granted != 1 {
			t.Errorf("a window of %d s: 5 more do not pass at three quarters: %+v", step/sec, out)
		}
	}
}

// afterReset charges a cell that was reset in a batch behind another op: one charge is made of it.
func afterReset(t *testing.T, s store.Store) {
	p := bucket(1, 10)
	one(t, s, take("reset", "a", p, 3, T0))
	one(t, s, take("reset", "b", p, 4, T0))
	b := take("reset", "b", p, 1, 0) // as callers charge
	emptied := reset(b, T0)
	emptied.Group = 2
	apply(t, s, check(take("reset", "a", p, 1, T0)), emptied)
	for i, want := range []int64{1, 2} {
		if out := one(t, s, b); out.Granted != 1 || i == 0 && out.Used > want*p.Unit {
			t.Errorf("charge %d after the reset: %+v; want at most %d units in use", i+1, out, want)
		}
	}
}

// elsewhere gives back what was charged under one limit to a cell that another one has made since, with
// as high a level as there may be: the arithmetic of the first must not be done on it.
func elsewhere(t *testing.T, s store.Store) {
	made := map[string]law.Params{
		"bucket": {Kind: law.Bucket, Unit: 1, Capacity: law.Max / 2, Step: hour, Drain: law.Max / 4},
		"fixed":  {Kind: law.Bucket, Anchor: law.Epoch, Unit: 1, Capacity: law.Max / 2, Step: hour, Drain: law.Max},
		"window": {Kind: law.Window, Unit: 1, Capacity: 1<<32 - 2, Step: hour},
		"log":    slidingLog(law.Max/2000, hour),
	}
	// A bit over one step of all, so that the window counts what it takes for the window before.
	o, at := newOracle(), int64(1_700_000_000_000_000)/hour*hour+hour-1
	for name, p := range made {
		for other, q := range made {
			key := name + " by " + other
			charge := take("elsewhere", key, p, p.Capacity/p.Unit, at)
			for _, after := range []int64{at, at + 2} {
				back := take("elsewhere", key, q, 1, after)
				back.Verb, back.At, back.Level = law.Return, at-1, q.Unit
				ops := []law.Op{charge, back}
				ops[1].Group = 2
				want := make([]law.Outcome, len(ops))
				o.apply(ops, want)
				compare(t, ops, apply(t, s, ops...), want)
			}
		}
	}
}
