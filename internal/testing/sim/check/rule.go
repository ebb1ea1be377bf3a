package check

import (
	"cmp"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/testing/history"
)

// shape is an algorithm as the checker sees it.
type shape int

const (
	bucketShape    shape = iota // a level that drains evenly
	intervalShape               // interval: a level that drains in steps from its first use
	windowShape                 // fixed windows from the epoch, or of a calendar
	fromFirstShape              // fixed windows from the first request
	slidingShape                // two counters
	logShape                    // the exact sliding window
	leaseShape                  // concurrency
)

var shapes = map[string]shape{
	history.TokenBucket: bucketShape, history.LeakyBucket: bucketShape, history.GCRA: bucketShape,
	history.Interval: intervalShape, history.FixedWindow: windowShape, history.SlidingWindow: slidingShape,
	history.SlidingLog: logShape, history.Concurrency: leaseShape,
}

// rule is a version of a limit, in numbers.
type rule struct {
	family   *family
	limit    *history.Limit
	shape    shape
	amount   num   // per period
	capacity num   // what can pass at once
	rate     num   // bucketShape: what drains in a microsecond
	period   int64 // microseconds; 0: windows of a calendar, or leases
	step     int64 // bucketShape: microseconds in which the level drains once
	life     int64 // of prefetched tokens, in microseconds
	zone     *time.Location
	term     term // of an override
}

func (r *rule) prefetching() bool { return r.limit.Prefetch != "" }

// family is a limit in all of its versions, and how its costs are counted.
type family struct {
	unit     *big.Int            // how much a cost of 1 counts
	amounts  map[string]*big.Rat // costs and headroom without percentages, by their texts in calls
	costs    map[string]num      // amounts, as counted
	limits   []*history.Limit
	versions map[int]*rule
	cells    map[string]*cell
	terms    map[int]term // of overrides, by their version
}

// millionths is how many parts a unit has when corrections and levels are rounded.
const millionths = 1_000_000

// addAmount adds a cost or headroom of a call to amounts, unless it is a percentage.
func (f *family) addAmount(text string) {
	if f.amounts[text] == nil && text != "" && !strings.HasSuffix(text, "%") {
		f.amounts[text] = parseRat(text)
	}
}

// parseRat returns the value of a decimal or fraction, as recorders write it.
func parseRat(text string) *big.Rat {
	n, _ := new(big.Rat).SetString(text)
	return n
}

// scale chooses the unit so that all amounts, costs and rates per microsecond are whole numbers, and sets what is
// counted in it: costs and versions. It panics if sums might not fit into a num.
func (f *family) scale() {
	f.unit = big.NewInt(millionths)
	for _, r := range f.amounts {
		lcm(f.unit, r.Denom())
	}
	for _, l := range f.limits {
		amount := parseRat(l.Amount)
		lcm(f.unit, amount.Denom())
		if l.Burst != "" {
			lcm(f.unit, parseRat(l.Burst).Denom())
		}
		if l.Period > 0 {
			lcm(f.unit, amount.Quo(amount, big.NewRat(l.Period, 1)).Denom())
		}
	}
	sum := new(big.Rat)
	f.costs = make(map[string]num, len(f.amounts))
	for text, r := range f.amounts {
		sum.Add(sum, r)
		f.costs[text] = f.count(r)
	}
	if f.unit.BitLen()+new(big.Int).Quo(sum.Num(), sum.Denom()).BitLen() > 85 { // with 2^42 events, sums take 127 bits
		panic(fmt.Sprintf("check: the numbers of limit %s are too fine to be added up", f.limits[0].Name))
	}
	f.versions = map[int]*rule{}
	for _, l := range f.limits {
		f.versions[l.Version] = f.newRule(l)
	}
}

// lcm sets a to the least common multiple of a and b.
func lcm(a, b *big.Int) {
	g := new(big.Int).GCD(nil, nil, a, b)
	a.Mul(a, new(big.Int).Quo(b, g))
}

// count returns how much an amount of r units counts, rounded down.
func (f *family) count(r *big.Rat) num {
	n := new(big.Int).Mul(r.Num(), f.unit)
	return fromBig(n.Quo(n, r.Denom()))
}

func (f *family) unitCost() num { return fromBig(f.unit) }

// roundingStep returns how far an answer may round an amount: a millionth of a unit.
func (f *family) roundingStep() num { return fromBig(new(big.Int).Quo(f.unit, big.NewInt(millionths))) }

// units returns n in whole units, rounded down; 0 if n is negative.
func (f *family) units(n num) int64 {
	q := maxNum(n, num{}).toBig()
	return q.Quo(q, f.unit).Int64()
}

func (f *family) text(n num) string { return new(big.Rat).SetFrac(n.toBig(), f.unit).RatString() }

func (f *family) newRule(l *history.Limit) *rule {
	amount := parseRat(l.Amount)
	capacity := new(big.Rat).Set(amount)
	r := &rule{family: f, limit: l, shape: shapes[l.Algorithm], period: l.Period, zone: time.UTC}
	r.term = f.terms[l.Version]
	switch r.shape {
	case bucketShape, intervalShape:
		if l.Burst != "" {
			capacity = parseRat(l.Burst)
		} else if capacity.Cmp(big.NewRat(1, 1)) < 0 {
			capacity.SetInt64(1) // docs/algorithms.md; TokenBucket.Burst: "zero: Amount, at least 1"
		}
		if r.prefetching() {
			r.life = cmp.Or(l.PrefetchLife, int64(time.Second/time.Microsecond))
		}
	case windowShape:
		if l.FromFirst {
			r.shape = fromFirstShape
		}
		if l.Calendar == "minute" {
			r.period = 60_000_000 // no zone cuts a minute
		}
		var err error
		if r.zone, err = time.LoadLocation(cmp.Or(l.Zone, "UTC")); err != nil {
			panic(err)
		}
	}
	r.amount, r.capacity = f.count(amount), f.count(capacity)
	if r.shape == bucketShape {
		perMicro := new(big.Rat).Quo(amount, big.NewRat(l.Period, 1))
		r.rate, r.step = f.count(perMicro), stepOf(perMicro, capacity, l.Period)
	}
	return r
}

// headroom returns the headroom that a charge names: an amount, or a percentage of the capacity, which is rounded down.
func (r *rule) headroom(text string) num {
	percentage, isPercentage := strings.CutSuffix(text, "%")
	switch {
	case text == "":
		return num{}
	case !isPercentage:
		return r.family.costs[text]
	}
	n := parseRat(percentage)
	n.Mul(n, big.NewRat(1, 100)).Mul(n, new(big.Rat).SetInt(r.capacity.toBig()))
	return fromBig(new(big.Int).Quo(n.Num(), n.Denom()))
}

// stepOf returns the step of a bucket in microseconds: the smallest power of ten for which credits that make the rate
// exact stay within 53 bits, or else the first above a tenth of the period. docs/algorithms.md, "Exactness".
func stepOf(perMicro, capacity *big.Rat, period int64) int64 {
	limit := new(big.Int).Lsh(big.NewInt(1), 53)
	step := int64(1)
	for ; step <= period/10; step *= 10 {
		perStep := new(big.Rat).Mul(perMicro, big.NewRat(step, 1))
		unit := new(big.Int).Set(perStep.Denom())
		lcm(unit, capacity.Denom())
		// Costs may have a decimal more than the rate and the capacity. Where they have none, this may choose the next
		// step, which only widens what is allowed.
		unit.Mul(unit, big.NewInt(10))
		drain := new(big.Rat).Mul(perStep, new(big.Rat).SetInt(unit))
		credits := new(big.Rat).Mul(capacity, new(big.Rat).SetInt(unit))
		if unit.Cmp(limit) < 0 && drain.Num().Cmp(limit) < 0 && credits.Num().Cmp(limit) < 0 {
			break
		}
	}
	return step
}
