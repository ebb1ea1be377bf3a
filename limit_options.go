package headgate

import (
	"cmp"
	"math"
	"math/big"
	"math/bits"
	"strconv"
	"time"

	"github.com/headgate/headgate/law"
)

// The syntax of the options of a Tail, for limits that do not refill and for limits that do.
const (
	plainOptions  = "[block PERIOD] [away share|allow] [deadline PERIOD] [scale N]"
	refillOptions = "[block PERIOD] [prefetch N|N%[/PERIOD]] [away share|allow] [deadline PERIOD] [scale N]"
)

// Tail are the options that every algorithm shares.
type Tail struct {
	// Block is how long a refusal blocks the key. Zero: not at all.
	Block time.Duration
	// Prefetch lets nodes take tokens up front. Zero: they do not.
	Prefetch Prefetch
	// Away is the answer while the store cannot decide. Zero: an error.
	Away Away
	// Deadline is how long a decision may take. Zero: as long as the Limiter allows, see Config.Timeout. The shortest
	// deadline of the limits of one request applies.
	Deadline time.Duration
	// Scale is the number of decimal places in which costs are counted, from 4 to 9: 6 for money in millionths. Zero:
	// 3, or as many as the limit's own amounts have, or fewer if these are large. If the scale of a limit is changed,
	// earlier charges can no longer be settled or cancelled, since they were counted in other steps.
	Scale uint8
}

// setOptions writes the options into p, or returns what is wrong with them.
func (t Tail) setOptions(p *law.Params) error {
	if t.Scale != 0 && (t.Scale < minScale || t.Scale > maxExp) {
		return errScale(strconv.Itoa(int(t.Scale)))
	}
	p.Digits = max(t.Scale, digitsOf(p.Capacity, p.Unit))
	switch {
	case t.Away > AwayAllow:
		return Invalid("away", "%d is not a policy", t.Away)
	case t.Away != AwayDeny && p.Leased:
		return Invalid("away", "a lease cannot be had without the store; leave %q out", "away "+t.Away.String())
	}
	p.Away = t.Away
	var err error
	if t.Block != 0 {
		if p.Block, err = microsOf("block", t.Block); err != nil {
			return err
		}
	}
	if t.Deadline != 0 {
		if p.Deadline, err = microsOf("deadline", t.Deadline); err != nil {
			return err
		}
	}
	return t.Prefetch.compile(p)
}

// suffix returns the options as they stand at the end of a notation.
func (t Tail) suffix() string {
	s := ""
	if t.Block != 0 {
		s = " block " + formatPeriod(t.Block)
	}
	if t.Scale != 0 {
		s += " scale " + strconv.Itoa(int(t.Scale))
	}
	s += t.Prefetch.suffix()
	if t.Away != AwayDeny {
		s += " away " + t.Away.String()
	}
	if t.Deadline != 0 {
		s += " deadline " + formatPeriod(t.Deadline)
	}
	return s
}

// digitsOf returns how many decimal places a number of credits has as an amount, at most maxExp.
func digitsOf(credits, unit int64) (n uint8) {
	for rest := credits % unit; rest != 0 && n < maxExp; n++ {
		hi, lo := bits.Mul64(uint64(rest), 10)
		_, r := bits.Div64(hi, lo, uint64(unit))
		rest = int64(r)
	}
	return n
}

// minScale is the smallest scale that a limit can have: without a scale costs are counted in thousandths.
const minScale = 4

// errScale returns the error for an invalid scale.
func errScale(s string) error {
	return Invalid("scale", "%.100q is not a number of digits from %d to %d; without it costs are counted in "+
		"thousandths", s, minScale, maxExp)
}

// Prefetch lets each node take a block of tokens up front and hand them out without the store. Tokens that are not
// handed out within Life are lost. So the bound of the limit grows by the tokens that flow in during one Life, for any
// number of nodes. The tokens of a fixed window end with the window, and add nothing to its bound. The zero Prefetch is
// none.
//
// Package internal/front/prefetch carries it out. In notation it is "prefetch 100", "prefetch 10%" and, with a life
// other than a second, "prefetch 100/250ms".
type Prefetch struct {
	Amount  Cost          // the most tokens to take up front
	Percent bool          // Amount is a percentage of the amount that can pass at once
	Life    time.Duration // how long tokens taken up front are kept; zero: DefaultPrefetchLife
}

// DefaultPrefetchLife is the default Life of a Prefetch.
const DefaultPrefetchLife = time.Second

func (u Prefetch) life() time.Duration {
	return cmp.Or(u.Life, DefaultPrefetchLife)
}

// compile writes the prefetch into p.
func (u Prefetch) compile(p *law.Params) error {
	if u == (Prefetch{}) {
		return nil
	}
	if p.Kind != law.Bucket {
		return Invalid("prefetch", "only limits that refill have one: token-bucket, leaky-bucket, gcra, interval "+
			"and fixed-window")
	}
	if err := checkAmount("prefetch", u.Amount); err != nil {
		return err
	}
	amount := u.Amount.rat()
	if u.Percent {
		credits := amount.Mul(amount, big.NewRat(p.Capacity, 100))
		p.Prefetch = max(1, ratCredits(credits, 1))
	} else {
		p.Prefetch = ratCredits(amount, p.Unit)
	}
	if p.Prefetch > p.Capacity {
		return Invalid("prefetch", "%s is more than what passes at once", u.amountText())
	}
	var err error
	p.PrefetchLife, err = microsOf("prefetch", u.life())
	return err
}

// ratCredits returns a cost in credits, rounded down.
func ratCredits(cost *big.Rat, unit int64) int64 {
	n := new(big.Int).Mul(cost.Num(), big.NewInt(unit))
	if n.Quo(n, cost.Denom()); !n.IsInt64() {
		return math.MaxInt64
	}
	return n.Int64()
}

func (u Prefetch) amountText() string {
	if u.Percent {
		return u.Amount.String() + "%"
	}
	return u.Amount.String()
}

// suffix returns the prefetch as it stands at the end of a notation.
func (u Prefetch) suffix() string {
	switch {
	case u == (Prefetch{}):
		return ""
	case u.life() == DefaultPrefetchLife:
		return " prefetch " + u.amountText()
	}
	return " prefetch " + u.amountText() + "/" + formatPeriod(u.Life)
}

// Away is the policy of a limit while its store cannot decide: while the store cannot be reached, accepts no writes, or
// does not answer within the deadline. Package internal/front/guard, which store/front contains, carries it out. Such a
// decision has Via == [ViaFallback], and changes nothing in the store.
//
// The policy is for requests that take and check. All others fail with the store's error, and so do requests with an
// id, reservations and leases, which the store would have to know later. If the policies of the limits of one request
// differ, the strictest applies: AwayDeny before AwayShare before AwayAllow.
type Away = law.Away

// The policies while a store cannot decide. In notation, "away share" and "away allow".
const (
	// AwayDeny is the zero Away: requests fail with the store's error, and nothing is admitted.
	AwayDeny = law.AwayDeny
	// AwayShare divides the limit by the number of processes that use the store, and each process decides by its share
	// in memory. The shares of all processes together never exceed the limit, but processes that reach the store may
	// use the limit besides: see [Bound.In].
	AwayShare = law.AwayShare
	// AwayAllow admits everything. The limit has no bound then.
	AwayAllow = law.AwayAllow
)
