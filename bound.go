package headgate

import (
	"math/big"
	"time"

	"github.com/headgate/headgate/law"
)

// Bound is the most that a limit lets pass, as Headgate promises it: String returns it in words, In as an amount.
type Bound struct {
	notation   string
	intent     string        // what should pass: "60 pass each minute, 20 at once"
	period     time.Duration // the period of the worst case in String
	amount     Cost          // amount that should pass in each period; zero if no sliding log does the same
	periodText string        // period in words, such as "in one minute"; empty if there is no worst case

	prefetchLife time.Duration // how long a process may keep prefetched tokens

	away Away // what the limit answers while its store cannot decide

	params   law.Params
	calendar *calendar // nil unless windows are the calendar's
}

// In returns the most that can pass within a closed interval of length d: one that contains both its first and its last
// microsecond. It is exact to the credit. For concurrency it is the most that is held at a time.
//
// For calendar windows it is the maximum over all times from 1970 on, by the time zones that this machine knows. A
// change of a zone's offset can make a window shorter than its name says.
//
// With AwayShare the bound is doubled: the store may admit all of the limit, and the processes that do not reach the
// store may admit as much by their shares. With AwayAllow it covers only charges that the store decides; there is no
// bound on the rest.
func (b Bound) In(d time.Duration) Amount {
	p := &b.params
	if d < 0 || p.Unit == 0 || isClosed(p) {
		return Amount{}
	}
	micros := d.Microseconds()
	credits, perStep, steps := big.NewInt(p.Capacity), p.Capacity, int64(0)
	switch {
	case p.Leased:
	case p.Kind == law.Log: // an entry counts for a half-open interval
		steps = micros / p.Step
	case b.calendar != nil:
		steps = b.calendar.maxWindows(micros) - 1
	default:
		if p.Kind == law.Bucket {
			perStep = min(p.Drain, p.Capacity)
		}
		// The first step may come just after the first microsecond.
		micros += b.prefetchLife.Microseconds()
		steps = micros / p.Step
		if micros%p.Step > 0 {
			steps++
		}
	}
	credits.Add(credits, new(big.Int).Mul(big.NewInt(perStep), big.NewInt(steps)))
	if p.Kind == law.Window && micros > 0 {
		credits.Sub(credits, big.NewInt(1)) // the older window still counts a credit
	}
	if b.away == AwayShare {
		credits.Lsh(credits, 1)
	}
	return amountOf(credits, p.Unit)
}

// String returns what the limit should let pass, and the most that it can let pass if requests are timed to exceed it:
// "token-bucket 60/1m burst 20 lets 60 pass each minute, 20 at once; at worst 80 in one minute".
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

// worst returns the most that passes in a period, in words; "" if that is the intended amount.
func (b Bound) worst() string {
	p := &b.params
	amount := b.In(b.period)
	if p.Leased || p.Kind == law.Log {
		if b.away != AwayShare {
			return ""
		}
		amount = b.In(0) // the words are about a half-open interval, In about a closed one
	}
	if b.periodText == "" {
		return ""
	}
	s := amount.String() + " " + b.periodText
	if b.calendar != nil && b.calendar.unit == Month { // the shortest month, 28 days, is not the usual one
		s += ", " + b.In(31*24*time.Hour).String() + " in 31 days"
	}
	if p.Kind == law.Window && p.Capacity%p.Unit == 0 {
		s += ", " + new(big.Int).Quo(amount.Rat().Num(), amount.Rat().Denom()).String() + " of a cost of 1"
	}
	if b.away == AwayShare {
		s += ", half of that by processes that do not reach the store"
	}
	return s
}

// Amount is an exact sum of costs, which may be larger than a [Cost] can be. The zero Amount is 0.
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

// Float64 returns the nearest float, for charts.
func (a Amount) Float64() float64 {
	f, _ := a.Rat().Float64()
	return f
}

// String returns the shortest decimal. An amount with more than nine decimal places, such as a third, is rounded up.
func (a Amount) String() string {
	r := a.Rat()
	return formatDecimal(ceilRat(r.Mul(r, big.NewRat(pow10[maxExp], 1))).String(), maxExp)
}
