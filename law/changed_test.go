package law_test

import (
	"math/rand/v2"
	"testing"

	"github.com/headgate/headgate/law"
)

// TestReturnsUnderTwoDefinitionsAdmitNothingBeyondBoth uses two definitions of a token bucket in turn, as servers do
// while a change is rolled out. Charges are given back by the definition that made them. In no interval may more pass
// than the larger capacity and both rates allow together.
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
			var given int64
			for seed := range rounds(20000) {
				given += checkReturnsOfTwo(t, pair, rand.New(rand.NewPCG(seed, 2)))
			}
			if given == 0 {
				t.Error("nothing was given back in any history")
			}
		})
	}
}

func checkReturnsOfTwo(t *testing.T, pair [2]law.Params, rng *rand.Rand) (given int64) {
	t.Helper()
	cost := func(op *law.Op, credits int64) float64 { return float64(credits) / float64(op.Params.Unit) }
	charges, given := randomHistory(rng, 700_000, pair[0], pair[1])
	most, rate := 0.0, 0.0
	for _, p := range pair {
		most = max(most, float64(p.Capacity)/float64(p.Unit))
		rate += float64(p.Drain) / float64(p.Step) / float64(p.Unit)
	}
	for _, p := range pair {
		if p.Step > 10 { // a level that drains in steps has at most one more behind it
			most += float64(p.Drain) / float64(p.Unit)
		}
	}
	for i := range charges {
		var sum float64
		for j := i; j < len(charges); j++ {
			sum += cost(&charges[j].op, charges[j].kept)
			if took := float64(charges[j].at - charges[i].at); sum > most+rate*took+1e-3 {
				t.Fatalf("%v of %v passed in %v s", sum, most+rate*took, took/1e6)
			}
		}
	}
	return given
}

// perEpoch and the limits below are of 100 units, named as in the notation.
func perEpoch(window int64) law.Params { return aligned(100, window) }

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

// byDay returns a limit for each day of a zone.
func byDay() law.Params {
	return law.Params{
		Kind: law.Bucket, Anchor: law.Calendar, Unit: 1000, Capacity: 100_000, Step: 26 * hour,
		Drain: law.Max,
	}
}

// daysAround returns the day boundaries around now in a zone whose clocks are offset ahead of UTC.
func daysAround(now, offset int64) [4]int64 {
	b := now - (now+offset)%day
	return [4]int64{b - day, b, b + day, b + 2*day}
}

// TestALimitThatIsChangedForgetsNothing changes limits some seconds after their whole amount was used. The used amount
// must still count.
func TestALimitThatIsChangedForgetsNothing(t *testing.T) {
	t.Parallel()
	window, log := twoWindows(100, hour), exactLog(100, hour)
	const eight = start - start%day + 8*hour
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
		"sliding-window 1m to 1h":                       {from: withStep(window, minute), to: window},
		"sliding-window 1h to 1m":                       {from: window, to: withStep(window, minute)},
		"sliding-log 1h to 1m":                          {from: log, to: withStep(log, minute)},
		"fixed-window 1h to a tenth of it":              {from: perEpoch(hour), to: tenthOf(perEpoch(minute))},
		"token-bucket to a tenth of it in a log":        {from: smooth(hour), to: tenthOf(withStep(log, minute))},
		"fixed-window 1h to sliding-log":                {from: perEpoch(hour), to: log},
		"fixed-window 1h to sliding-window":             {from: perEpoch(hour), to: window},
		"sliding-log to fixed-window 1m":                {from: log, to: perEpoch(minute)},
		"sliding-log to token-bucket":                   {from: log, to: smooth(hour)},
		"sliding-window to token-bucket":                {from: window, to: smooth(hour)},
		"sliding-window to sliding-log":                 {from: window, to: log},
		"sliding-log of 100 to the same in finer units": {from: log, to: inFinerUnits(log)},
		"token-bucket to the same in finer units":       {from: smooth(hour), to: inFinerUnits(smooth(hour))},
	} {
		var c cell
		ask := func(p law.Params, units, now, offset int64) law.Outcome {
			op := take(p, units*p.Unit)
			op.Window = daysAround(now, offset)
			return c.apply(op, now)
		}
		eight := eight + tt.begin
		ask(tt.from, 1, eight, 0)
		if out := ask(tt.from, 99, eight+59*minute+55*second, 0); out.Granted != 1 && tt.from.Step > minute {
			t.Errorf("%s: %+v, want 99 more before the change", name, out)
		}
		passed, retry := int64(0), int64(0)
		for range 100 {
			out := ask(tt.to, 1, eight+59*minute+57*second, tt.offset)
			passed += out.Granted
			retry = out.RetryAt
		}
		if passed > 1 { // what drains in two seconds
			t.Errorf("%s: %d more pass two seconds after all was used", name, passed)
		}
		if out := ask(tt.to, 1, retry, tt.offset); out.Granted != 1 {
			t.Errorf("%s: not even one passes at the time that was told, %d s later: %+v", name,
				(retry-eight)/second-3597, out)
		}
	}
}

func withStep(p law.Params, step int64) law.Params {
	p.Step = step
	return p
}

func tenthOf(p law.Params) law.Params {
	p.Capacity /= 10
	if p.Kind == law.Bucket && p.Drain > 1 && p.Drain < law.Max {
		p.Drain /= 10
	}
	return p
}

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
	bucket := smooth(10 * second) // 10 a second
	bucket.Capacity = 10_000
	log, window := exactLog(10, second), twoWindows(10, second)
	fixed, slow := tenthOf(perEpoch(second)), smooth(hour)
	otherLog := inFinerUnits(log)
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
		"token-bucket in other units":    {bucket, inFinerUnits(bucket)},
		"token-bucket, fast and slow":    {bucket, slow},
		"interval, token-bucket":         {tenthOf(everyStep(second)), bucket},
		"fixed-window, of 1 s and 10 s":  {fixed, tenthOf(perEpoch(10 * second))},
		"fixed-window, small and large":  {fixed, large},
		"sliding-log, and a large one":   {log, large},
		"sliding-window, a large one":    {window, large},
		"from-first, and a large one":    {tenthOf(fromFirst(second)), large},
		"token-bucket, and a large one":  {bucket, large},
		"sliding-window, and a huge one": {wide, huge},
	} {
		for _, every := range []int64{500_000, 20_000} {
			const length = 20 * second
			var c cell
			passed := int64(0)
			for at, turn := every, 0; at <= length; at, turn = at+every, turn+1 {
				p := pair[turn%2]
				// First all of it, in half of the cases, then one by one.
				if every > 100_000 {
					passed += c.apply(take(p, p.Capacity), start+at).Granted * p.Capacity / p.Unit
				}
				for range min(12, every/20_000) {
					passed += c.apply(take(p, p.Unit), start+at).Granted
				}
			}
			most := int64(0)
			for _, p := range pair {
				most += maxUnits(p, length)
			}
			// Each definition alone lets at least 2.5 a second pass, but for the slow one.
			if passed > most || passed < length/second {
				t.Errorf("%s, each %d ms: %d pass in %d s, want %d to %d", name, every/1000, passed, length/second,
					length/second, most)
			}
		}
	}
}

// maxUnits returns how many units a limit lets pass at most in an interval of this length.
func maxUnits(p law.Params, length int64) int64 {
	switch {
	case p.Kind == law.Log:
		return p.Capacity / p.Unit * (length/p.Step + 1)
	case p.Kind == law.Window || p.Drain >= p.Capacity:
		return p.Capacity / p.Unit * (length/p.Step + 2)
	}
	return (p.Capacity + p.Drain*(length/p.Step+1)) / p.Unit
}
