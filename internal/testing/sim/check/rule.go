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
	rated   shape = iota // a level that drains evenly
	refill               // interval: a level that drains in steps from its first use
	window               // fixed windows from the epoch, or of a calendar
	first                // fixed windows from the first request
	sliding              // two counters
	logged               // the exact sliding window
	held                 // leases
)

var shapes = map[string]shape{
	history.TokenBucket: rated, history.LeakyBucket: rated, history.GCRA: rated, history.Interval: refill,
	history.FixedWindow: window, history.SlidingWindow: sliding, history.SlidingLog: logged, history.Concurrency: held,
}

// rule is a version of a limit, in numbers.
type rule struct {
	of     *family
	limit  *history.Limit
	shape  shape
	amount num // in a period
	most   num // at once
	rate   num // rated: in a microsecond
	period int64
	step   int64 // rated: microseconds
	life   int64 // of a prefetch, microseconds
	zone   *time.Location
	term   term
}

// prefetching reports whether nodes take tokens of the limit up front.
func (r *rule) prefetching() bool { return r.limit.Prefetch != "" }

// family is a limit in all of its versions, and how its costs are counted.
type family struct {
	unit     *big.Int            // in which a cost of 1 is counted
	named    map[string]*big.Rat // costs and headroom, as calls name them
	costs    map[string]num      // the same in units
	limits   []*history.Limit
	versions map[int]*rule
	cells    map[string]*cell
	terms    map[int]term // of overrides, by version
}

// fine is the unit to which corrections and levels are rounded: a millionth.
const fine = 1_000_000

// name notes a cost or a headroom that a call names; a share is neither.
func (f *family) name(text string) {
	if f.named[text] == nil && text != "" && !strings.HasSuffix(text, "%") {
		f.named[text] = number(text)
	}
}

// number returns the value of a text, which is the recorder's: a decimal or a fraction.
func number(text string) *big.Rat {
	n, _ := new(big.Rat).SetString(text)
	return n
}

// scale chooses the unit: so that all amounts, all costs and what flows in a microsecond
// are whole.
func (f *family) scale() {
	f.unit = big.NewInt(fine)
	for _, r := range f.named {
		lcm(f.unit, r.Denom())
	}
	for _, l := range f.limits {
		amount := number(l.Amount)
		lcm(f.unit, amount.Denom())
		if l.Burst != "" {
			lcm(f.unit, number(l.Burst).Denom())
		}
		if l.Period > 0 {
			lcm(f.unit, amount.Quo(amount, big.NewRat(l.Period, 1)).Denom())
		}
	}
	sum := new(big.Rat)
	f.costs = make(map[string]num, len(f.named))
	for text, r := range f.named {
		sum.Add(sum, r)
		f.costs[text] = f.count(r)
	}
	if f.unit.BitLen()+new(big.Int).Quo(sum.Num(), sum.Denom()).BitLen() > 85 { // times the events, within 127
		panic(fmt.Sprintf("check: the numbers of limit %s are too fine to be added up", f.limits[0].Name))
	}
	f.versions = map[int]*rule{}
	for _, l := range f.limits {
		f.versions[l.Version] = f.rule(l)
	}
}

func lcm(a, b *big.Int) {
	g := new(big.Int).GCD(nil, nil, a, b)
	a.Mul(a, new(big.Int).Quo(b, g))
}

// count returns r in the family's unit, rounded down where it is no multiple of it.
func (f *family) count(r *big.Rat) num {
	n := new(big.Int).Mul(r.Num(), f.unit)
	return fromBig(n.Quo(n, r.Denom()))
}

func (f *family) one() num { return fromBig(f.unit) }

// least returns the rounding of what is written with six digits.
func (f *family) least() num { return fromBig(new(big.Int).Quo(f.unit, big.NewInt(fine))) }

// units returns how many whole units of cost n is, rounded down.
func (f *family) units(n num) int64 {
	q := atLeast(n, num{}).big()
	return q.Quo(q, f.unit).Int64()
}

func (f *family) text(n num) string {
	return new(big.Rat).SetFrac(n.big(), f.unit).RatString()
}

func (f *family) rule(l *history.Limit) *rule {
	amount := number(l.Amount)
	most := new(big.Rat).Set(amount)
	r := &rule{of: f, limit: l, shape: shapes[l.Algorithm], period: l.Period, zone: time.UTC, term: f.terms[l.Version]}
	switch r.shape {
	case rated, refill:
		if l.Burst != "" {
			most = number(l.Burst)
		} else if most.Cmp(big.NewRat(1, 1)) < 0 {
			most.SetInt64(1) // docs/algorithms.md; TokenBucket.Burst: "zero: Amount, at least 1"
		}
		if r.prefetching() {
			r.life = cmp.Or(l.PrefetchLife, int64(time.Second/time.Microsecond))
		}
	case window:
		if l.FromFirst {
			r.shape = first
		}
		if l.Calendar == "minute" {
			r.period = 60_000_000 // no zone cuts a minute
		}
		var err error
		if r.zone, err = time.LoadLocation(cmp.Or(l.Zone, "UTC")); err != nil {
			panic(err)
		}
	}
	r.amount, r.most = f.count(amount), f.count(most)
	if r.shape == rated {
		perMicro := new(big.Rat).Quo(amount, big.NewRat(l.Period, 1))
		r.rate, r.step = f.count(perMicro), stepOf(perMicro, most, l.Period)
	}
	return r
}

// keep returns how much has to be free after a charge that names this headroom, rounded down.
func (r *rule) keep(text string) num {
	share, percent := strings.CutSuffix(text, "%")
	switch {
	case text == "":
		return num{}
	case !percent:
		return r.of.costs[text]
	}
	n := number(share)
	n.Mul(n, big.NewRat(1, 100)).Mul(n, new(big.Rat).SetInt(r.most.big()))
	return fromBig(new(big.Int).Quo(n.Num(), n.Denom()))
}

// stepOf returns the steps in which tokens come: of a microsecond, or of the smallest
// power of ten of them for which credits that make the rate exact stay within 53 bits.
// docs/algorithms.md, "Exactness".
func stepOf(perMicro, most *big.Rat, period int64) int64 {
	limit := new(big.Int).Lsh(big.NewInt(1), 53)
	g := int64(1)
	for ; g <= period/10; g *= 10 {
		perStep := new(big.Rat).Mul(perMicro, big.NewRat(g, 1))
		unit := new(big.Int).Set(perStep.Denom())
		lcm(unit, most.Denom())
		// costs may be finer than these by decimals of the burst's text; what fits tightly is
		// given the next step too, which only widens what is allowed
		unit.Mul(unit, big.NewInt(10))
		drain := new(big.Rat).Mul(perStep, new(big.Rat).SetInt(unit))
		capacity := new(big.Rat).Mul(most, new(big.Rat).SetInt(unit))
		if unit.Cmp(limit) < 0 && drain.Num().Cmp(limit) < 0 && capacity.Num().Cmp(limit) < 0 {
			break
		}
	}
	return g
}
