package headgate

import (
	"math/big"
	"time"

	"github.com/headgate/headgate/law"
)

// Bound is the most that a limit lets pass: the number that Headgate
// promises, in words with String and as arithmetic with In.
type Bound struct {
	notation string
	intent   string        // what should pass: "60 pass each minute, 20 at once"
	period   time.Duration // that worst speaks of
	amount   Cost          // that should pass in each period; zero where a sliding log cannot do the same
	long     string        // period in words: "in one minute"; empty where there is no worst case
	lease    time.Duration // for which a node may hold back what it has taken up front

	away Away // what the limit answers while its store cannot decide

	params   law.Params
	calendar *calendar // nil unless windows are the calendar's
}

// In returns the most that can pass within a closed interval of length d: one
// that contains both its first and its last microsecond. It is exact, to the
// credit in which the limit counts.
//
// Of windows of the calendar it is the most from 1970 on, by the time zones that
// this machine knows. A change of a zone's offset can make a window shorter than
// its name says.
//
// With AwayShare it is twice that of the limit: the store may admit all of it, and the processes that do
// not reach the store as much by their shares. With AwayAllow it is what passes by the store; what passes while
// that is away has no bound.
func (b Bound) In(d time.Duration) Amount {
	p := &b.params
	if d < 0 || p.Unit == 0 || closed(p) {
		return Amount{}
	}
	micros := d.Microseconds()
	most, more, times := big.NewInt(p.Capacity), p.Capacity, int64(0)
	switch {
	case p.Leased:
	case p.Kind == law.Log: // open at one end
		times = micros / p.Step
	case b.calendar != nil:
		times = b.calendar.most(micros) - 1
	default:
		if p.Kind == law.Bucket {
			more = min(p.Drain, p.Capacity)
		}
		// Steps come at some moment, which may be just after the first microsecond.
		micros += b.lease.Microseconds()
		times = micros / p.Step
		if micros%p.Step > 0 {
			times++
		}
	}
	most.Add(most, new(big.Int).Mul(big.NewInt(more), big.NewInt(times)))
	if p.Kind == law.Window && micros > 0 {
		most.Sub(most, big.NewInt(1)) // the older window still counts a credit
	}
	if b.away == AwayShare {
		most.Lsh(most, 1)
	}
	return amountOf(most, p.Unit)
}

// String returns what the limit shall let pass, and the most that it lets pass where requests are timed against
// it: "token-bucket 60/1m burst 20 lets 60 pass each minute, 20 at once; at worst 80 in one minute".
func (b Bound) String() string {
	s := b.notation + " lets " + b.intent
	if worst := b.worst(); worst != "" {
		s += "; at worst " + worst
	}
	if b.away == AwayAllow {
		s += "; everything passes while the store is away"
	}
	return s
}

// worst says the most that passes in a period; empty where that is what shall pass.
func (b Bound) worst() string {
	p := &b.params
	most := b.In(b.period)
	if p.Leased || p.Kind == law.Log {
		if b.away != AwayShare {
			return ""
		}
		most = b.In(0)
	}
	if b.long == "" {
		return ""
	}
	s := most.String() + " " + b.long
	if b.calendar != nil && b.calendar.unit == Month { // whose February others reach across
		s += ", " + b.In(31*24*time.Hour).String() + " in 31 days"
	}
	if p.Kind == law.Window && p.Capacity%p.Unit == 0 {
		s += ", " + new(big.Int).Quo(most.Rat().Num(), most.Rat().Denom()).String() + " of a cost of 1"
	}
	if b.away == AwayShare {
		s += ", half of that by processes that do not reach the store"
	}
	return s
}

// Amount is a sum of costs. It is exact, and may be larger than a [Cost] can be. The
// zero Amount is nothing.
type Amount struct{ r *big.Rat }

func amountOf(credits *big.Int, unit int64) Amount {
	return Amount{new(big.Rat).SetFrac(credits, big.NewInt(unit))}
}

// Rat returns the exact value.
func (a Amount) Rat() *big.Rat {
	if a.r == nil {
		return new(big.Rat)
	}
	return new(big.Rat).Set(a.r)
}

// Float64 returns the nearest float, for pictures.
func (a Amount) Float64() float64 {
	f, _ := a.Rat().Float64()
	return f
}

// String returns the shortest decimal. One with more than nine digits after the
// point, as a third has, is rounded up.
func (a Amount) String() string {
	r := a.Rat()
	return decimalOf(ceilRat(r.Mul(r, big.NewRat(pow10[maxExp], 1))).String(), maxExp)
}
