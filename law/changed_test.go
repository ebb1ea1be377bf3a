package law_test

import (
	"math/rand/v2"
	"testing"

	"github.com/headgate/headgate/law"
)

// TestReturnsUnderTwoDefinitionsAdmitNothingBeyondBoth charges a bucket by two definitions in random order, as
// servers do while a change is rolled out. Charges are given back by the definition that made them. In no interval may
// more pass than the larger capacity and both rates allow together.
func TestReturnsUnderTwoDefinitionsAdmitNothingBeyondBoth(t *testing.T) {
	t.Parallel()
	for name, pair := range map[string][2]law.Params{
		"7 a minute, and 7 a second": {
			{Kind: law.Bucket, Unit: 6_000_000, Capacity: 18_000_000, Step: 10, Drain: 7},
			{Kind: law.Bucket, Unit: 1_000_000, Capacity: 3_000_000, Step: 1, Drain: 7},
		},
		"1 a second, and 20 a second": { // with the same step
			{Kind: law.Bucket, Unit: 1_000_000, Capacity: 3_000_000, Step: 1, Drain: 1},
			{Kind: law.Bucket, Unit: 50_000, Capacity: 150_000, Step: 1, Drain: 1},
		},
		"2 each four seconds, and 10 a second": {
			{Kind: law.Bucket, Unit: 1000, Capacity: 5000, Step: 4 * second, Drain: 2000},
			{Kind: law.Bucket, Unit: 1000, Capacity: 3000, Step: 1000, Drain: 10},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var returned int64
			for seed := range rounds(20000) {
				returned += checkReturnsOfTwo(t, pair, rand.New(rand.NewPCG(seed, 2)))
			}
			if returned == 0 {
				t.Error("nothing was given back in any history")
			}
		})
	}
}

// checkReturnsOfTwo checks one random history, and returns how many credits were given back in it.
func checkReturnsOfTwo(t *testing.T, pair [2]law.Params, rng *rand.Rand) (returned int64) {
	t.Helper()
	units := func(op *law.Op, credits int64) float64 { return float64(credits) / float64(op.Params.Unit) }
	charges, returned := randomHistory(rng, 700_000, pair[0], pair[1])
	burst, rate := 0.0, 0.0
	for _, p := range pair {
		burst = max(burst, float64(p.Capacity)/float64(p.Unit))
		rate += float64(p.Drain) / float64(p.Step) / float64(p.Unit)
	}
	for _, p := range pair {
		if p.Step > 10 { // an interval can contain one step more than its length says
			burst += float64(p.Drain) / float64(p.Unit)
		}
	}
	for i := range charges {
		var sum float64
		for j := i; j < len(charges); j++ {
			sum += units(&charges[j].op, charges[j].remaining)
			if length := float64(charges[j].at - charges[i].at); sum > burst+rate*length+1e-3 {
				t.Fatalf("%v passed in %v s, want at most %v", sum, length/1e6, burst+rate*length)
			}
		}
	}
	return returned
}

// epochWindow, firstUseWindow, intervalBucket, smoothBucket and dayWindow return limits of 100 units.
func epochWindow(window int64) law.Params { return fixedWindowOf(100, window) }

func firstUseWindow(window int64) law.Params {
	p := epochWindow(window)
	p.Anchor = law.Own
	return p
}

func intervalBucket(step int64) law.Params {
	return law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 100_000, Step: step, Drain: 100_000}
}

// smoothBucket returns a bucket that refills 100 units in a period, a credit at a time.
func smoothBucket(period int64) law.Params {
	return law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 100_000, Step: period / 100_000, Drain: 1}
}

// dayWindow returns a fixed window whose windows are calendar days, which last up to 26 hours.
func dayWindow() law.Params {
	return law.Params{
		Kind: law.Bucket, Anchor: law.Calendar, Unit: 1000, Capacity: 100_000, Step: 26 * hour,
		Drain: law.Max,
	}
}

// daysAround returns the day boundaries around now in a zone whose clocks are offset ahead of UTC.
func daysAround(now, offset int64) [4]int64 {
	dayStart := now - (now+offset)%day
	return [4]int64{dayStart - day, dayStart, dayStart + day, dayStart + 2*day}
}

// TestAChangedLimitForgetsNoUsage uses 1 of 100 units, 99 about an hour later, and two seconds after that it changes
// the limit. The 99 must still count, and RetryAt must be a time at which one unit passes.
func TestAChangedLimitForgetsNoUsage(t *testing.T) {
	t.Parallel()
	window, log := twoWindows(100, hour), exactLog(100, hour)
	const eightOClock = start - start%day + 8*hour
	for name, tt := range map[string]struct {
		from, to law.Params
		offset   int64 // the offset of the new limit's zone
		delay    int64 // the test begins so long after eight o'clock
	}{
		"fixed-window 1h to 1m":                         {from: epochWindow(hour), to: epochWindow(minute)},
		"fixed-window 1m to 1h":                         {from: epochWindow(minute), to: epochWindow(hour)},
		"fixed-window 1h to token-bucket":               {from: epochWindow(hour), to: smoothBucket(hour)},
		"from-first 1h to 1m":                           {from: firstUseWindow(hour), to: firstUseWindow(minute)},
		"from-first 1h to token-bucket":                 {from: firstUseWindow(hour), to: smoothBucket(hour)},
		"interval 1h to token-bucket":                   {from: intervalBucket(hour), to: smoothBucket(hour)},
		"interval 1h to interval 1m":                    {from: intervalBucket(hour), to: intervalBucket(minute)},
		"fixed-window day to token-bucket 1d":           {from: dayWindow(), to: smoothBucket(day)},
		"fixed-window day to a day of another zone":     {from: dayWindow(), to: dayWindow(), offset: 15*hour + 10*minute},
		"fixed-window day to fixed-window 1m":           {from: dayWindow(), to: epochWindow(minute)},
		"token-bucket 1d to 1h":                         {from: smoothBucket(day), to: smoothBucket(hour)},
		"from-first 1h to fixed-window 1h":              {from: firstUseWindow(hour), to: epochWindow(hour), delay: 30 * minute},
		"interval 1h to fixed-window 1h":                {from: intervalBucket(hour), to: epochWindow(hour), delay: 30 * minute},
		"sliding-window 1m to 1h":                       {from: withStep(window, minute), to: window},
		"sliding-window 1h to 1m":                       {from: window, to: withStep(window, minute)},
		"sliding-log 1h to 1m":                          {from: log, to: withStep(log, minute)},
		"fixed-window 1h to a tenth of it":              {from: epochWindow(hour), to: tenthOf(epochWindow(minute))},
		"token-bucket to a tenth of it in a log":        {from: smoothBucket(hour), to: tenthOf(withStep(log, minute))},
		"fixed-window 1h to sliding-log":                {from: epochWindow(hour), to: log},
		"fixed-window 1h to sliding-window":             {from: epochWindow(hour), to: window},
		"sliding-log to fixed-window 1m":                {from: log, to: epochWindow(minute)},
		"sliding-log to token-bucket":                   {from: log, to: smoothBucket(hour)},
		"sliding-window to token-bucket":                {from: window, to: smoothBucket(hour)},
		"sliding-window to sliding-log":                 {from: window, to: log},
		"sliding-log of 100 to the same in finer units": {from: log, to: inFinerUnits(log)},
		"token-bucket to the same in finer units":       {from: smoothBucket(hour), to: inFinerUnits(smoothBucket(hour))},
	} {
		var c cell
		takeUnits := func(p law.Params, units, now, offset int64) law.Outcome {
			op := take(p, units*p.Unit)
			op.Window = daysAround(now, offset)
			return c.apply(op, now)
		}
		begin := eightOClock + tt.delay
		takeUnits(tt.from, 1, begin, 0)
		if out := takeUnits(tt.from, 99, begin+59*minute+55*second, 0); out.Granted != 1 && tt.from.Step > minute {
			t.Errorf("%s: %+v, want 99 more before the change", name, out)
		}
		passed, retryAt := int64(0), int64(0)
		for range 100 {
			out := takeUnits(tt.to, 1, begin+59*minute+57*second, tt.offset)
			passed += out.Granted
			retryAt = out.RetryAt
		}
		if passed > 1 { // the first unit may have drained, and less than one in the two seconds
			t.Errorf("%s: %d pass two seconds after 99 were used, want at most 1", name, passed)
		}
		if out := takeUnits(tt.to, 1, retryAt, tt.offset); out.Granted != 1 {
			t.Errorf("%s: got %+v at RetryAt, %d s later; want 1 granted", name, out,
				(retryAt-begin)/second-3597) // 59 min 57 s are 3597 s
		}
	}
}

func withStep(p law.Params, step int64) law.Params {
	p.Step = step
	return p
}

// tenthOf returns p with a tenth of its amount.
func tenthOf(p law.Params) law.Params {
	p.Capacity /= 10
	if p.Kind == law.Bucket && p.Drain > 1 && p.Drain < law.Max {
		p.Drain /= 10
	}
	return p
}

// inFinerUnits returns the same limit, counted in credits of half the size.
func inFinerUnits(p law.Params) law.Params {
	p.Unit, p.Capacity = 2*p.Unit, 2*p.Capacity
	if p.Kind == law.Bucket {
		p.Drain *= 2
	}
	return p
}

// TestTwoDefinitionsInTurnStarveNoKey charges in turn by two definitions of one limit, as two processes do during a
// rolling deployment: no key starves, and no more passes than both bounds together allow.
func TestTwoDefinitionsInTurnStarveNoKey(t *testing.T) {
	t.Parallel()
	tenPerSecond := smoothBucket(10 * second)
	tenPerSecond.Capacity = 10_000
	log, window := exactLog(10, second), twoWindows(10, second)
	fixed, hundredPerHour := tenthOf(epochWindow(second)), smoothBucket(hour)
	otherLog := inFinerUnits(log)
	otherLog.Capacity++
	large := epochWindow(hour)
	large.Capacity *= 10 // 1000 units; the others let about 200 pass in a test
	// A window counts up to 2^32 credits: hugeBucket has more, and hugeWindow almost as many.
	hugeBucket := law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 1e10, Step: 360, Drain: 1000}
	hugeWindow := law.Params{Kind: law.Window, Unit: 1000, Capacity: 4e9, Step: minute}
	for name, pair := range map[string][2]law.Params{
		"token-bucket, sliding-log":      {tenPerSecond, log},
		"token-bucket, sliding-window":   {tenPerSecond, window},
		"token-bucket, fixed-window":     {tenPerSecond, fixed},
		"sliding-log, sliding-window":    {log, window},
		"sliding-log in other units":     {log, otherLog},
		"sliding-window, fixed-window":   {window, fixed},
		"token-bucket in other units":    {tenPerSecond, inFinerUnits(tenPerSecond)},
		"token-bucket, fast and slow":    {tenPerSecond, hundredPerHour},
		"interval, token-bucket":         {tenthOf(intervalBucket(second)), tenPerSecond},
		"fixed-window, of 1 s and 10 s":  {fixed, tenthOf(epochWindow(10 * second))},
		"fixed-window, small and large":  {fixed, large},
		"sliding-log, and a large one":   {log, large},
		"sliding-window, a large one":    {window, large},
		"from-first, and a large one":    {tenthOf(firstUseWindow(second)), large},
		"token-bucket, and a large one":  {tenPerSecond, large},
		"sliding-window, and a huge one": {hugeWindow, hugeBucket},
	} {
		for _, pause := range []int64{500_000, 20_000} {
			const length = 20 * second
			var c cell
			passed := int64(0)
			for at, round := pause, 0; at <= length; at, round = at+pause, round+1 {
				p := pair[round%2]
				// With the longer pause, one take of the whole capacity comes first. Then units are taken one by one.
				if pause > 100_000 {
					passed += c.apply(take(p, p.Capacity), start+at).Granted * p.Capacity / p.Unit
				}
				for range min(12, pause/20_000) {
					passed += c.apply(take(p, p.Unit), start+at).Granted
				}
			}
			maxPassed := int64(0)
			for _, p := range pair {
				maxPassed += maxUnits(p, length)
			}
			// Each definition alone lets at least one unit a second pass in this time.
			if passed > maxPassed || passed < length/second {
				t.Errorf("%s, each %d ms: %d pass in %d s, want %d to %d", name, pause/1000, passed, length/second,
					length/second, maxPassed)
			}
		}
	}
}

// maxUnits returns an upper bound of the units that a limit lets pass in an interval of this length.
func maxUnits(p law.Params, length int64) int64 {
	switch {
	case p.Kind == law.Log:
		return p.Capacity / p.Unit * (length/p.Step + 1)
	case p.Kind == law.Window || p.Drain >= p.Capacity:
		return p.Capacity / p.Unit * (length/p.Step + 2)
	}
	return (p.Capacity + p.Drain*(length/p.Step+1)) / p.Unit
}
