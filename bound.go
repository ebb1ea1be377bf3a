package headgate

import (
	"math/big"
	"strconv"
	"time"
)

// Bound is the most that a limit lets pass: the number that Headgate
// promises, in words with String and as arithmetic with In.
type Bound struct {
	notation string
	base     Cost          // passes at once
	amount   Cost          // and so much more per period
	period   time.Duration // of the limit
	word     string        // of the period, where it has a name of its own

	smooth bool // what passes grows evenly, else in steps
	log    bool // an exact window: open at one end
	less   Cost // a sliding window is this much below two windows: one step of a cost
	held   bool // counts what is held, not what passes

	lease time.Duration // for which a node may hold back what it has taken up front
}

// In returns the most that can pass within a closed interval of length d: one
// that contains both its first and its last microsecond.
func (b Bound) In(d time.Duration) Cost {
	if d < 0 {
		return Cost{}
	}
	base, amount := b.base.rat(), b.amount.rat()
	if b.held {
		return b.base
	}
	periods := new(big.Rat)
	micros := big.NewRat((d + b.lease).Microseconds(), b.period.Microseconds())
	switch {
	case b.smooth:
		periods = micros
	case b.log:
		periods.SetInt(new(big.Int).Quo(micros.Num(), micros.Denom()))
	default:
		periods.SetInt(ceilRat(micros))
	}
	most := base.Add(base, amount.Mul(amount, periods))
	if d > 0 {
		most.Sub(most, b.less.rat())
	}
	// Rounded down to a thousandth: less than that of a cost cannot pass.
	n := new(big.Int).Quo(new(big.Int).Mul(most.Num(), big.NewInt(1000)), most.Denom())
	if !n.IsInt64() {
		return Cost{coef: law53}
	}
	return Cost{coef: n.Int64(), exp: 3}.normal()
}

// String states the bound in one sentence.
func (b Bound) String() string {
	word := b.word
	if word == "" {
		word = wordPeriod(b.period)
	}
	switch {
	case b.held:
		return b.notation + " lets at most " + b.base.String() + " be held at the same time; one that is not renewed ends after " + formatPeriod(b.period)
	case b.log:
		return b.notation + " lets at most " + b.amount.String() + " pass in any " + word + " (what passed counts until it is exactly that old)"
	}
	most := b.In(b.period)
	s := b.notation + " lets at most " + most.String() + " pass in some " + word
	if whole := most.coef / pow10[most.exp]; !b.less.IsZero() && b.amount.exp == 0 {
		s += ", " + strconv.FormatInt(whole, 10) + " of a cost of 1"
	}
	return s
}

func ceilRat(r *big.Rat) *big.Int {
	q, m := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	if m.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return q
}
