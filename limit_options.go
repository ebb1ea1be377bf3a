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
	plainOptions  = "[block PERIOD] " + lastOptions
	refillOptions = "[block PERIOD] [prefetch N|N%[/PERIOD]] " + lastOptions
	lastOptions   = "[away share|allow] [deadline PERIOD] [scale N] [notify N%,N%]"
)

// Tail has the options that all algorithms but Closed and Unlimited share. They stand at the tail of a notation.
type Tail struct {
	// Block is how long a refusal blocks the key. Zero: not at all.
	Block time.Duration
	// Prefetch lets processes take tokens up front. Zero: they do not.
	Prefetch Prefetch
	// Away is the answer while the store cannot decide. Zero: an error.
	Away Away
	// Deadline is how long a take or a check may take. Zero: as long as the Limiter allows, see Config.Timeout. The
	// shortest deadline of the limits of one request applies.
	Deadline time.Duration
	// Scale is the number of decimal places in which costs are counted, from 4 to 9: 6 for money in millionths. Zero:
	// 3, or as many as the limit's own amounts have, or fewer if these are large. If the scale of a limit is changed,
	// earlier charges can no longer be settled or cancelled, since they were counted in other steps.
	Scale uint8
	// Notify are up to four percentages of the amount that passes at once, ascending, then zeros. A charge that takes
	// the level of a key from below one of them to it or above tells it: see [Crossing]. All zero: none. A limit with a
	// Prefetch has none.
	Notify [4]uint8
}

// applyOptions writes the options into p, or returns what is wrong with them.
func (t Tail) applyOptions(p *law.Params) error {
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
	if err := t.Prefetch.applyTo(p); err != nil {
		return err
	}
	p.Notify = t.Notify
	return validNotify(t.Notify, t.Prefetch)
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
	return s + notifySuffix(t.Notify)
}

// digitsOf returns how many decimal places a number of credits has as an amount, at most maxExp.
func digitsOf(credits, unit int64) (n uint8) {
	for remainder := credits % unit; remainder != 0 && n < maxExp; n++ {
		hi, lo := bits.Mul64(uint64(remainder), 10)
		_, r := bits.Div64(hi, lo, uint64(unit))
		remainder = int64(r)
	}
	return n
}

// minScale is the smallest Scale above 0. Without a scale, costs already have three decimal places.
const minScale = 4

// errScale returns the error for an invalid scale.
func errScale(s string) error {
	return Invalid("scale", "%.100q is not a number of digits from %d to %d; without it costs are counted in "+
		"thousandths", s, minScale, maxExp)
}

// Prefetch lets each process take a block of tokens up front and hand them out without the store. Tokens that are not
// handed out within Life are lost. So the bound of the limit grows by the tokens that flow in during one Life, for any
// number of processes. The tokens of a fixed window end with the window, and add nothing to its bound. With the zero
// Prefetch, processes take no tokens up front.
//
// Package internal/front/prefetch implements it. Its notation is "prefetch 100" or "prefetch 10%", and with a Life
// other than a second "prefetch 100/250ms".
type Prefetch struct {
	Amount  Cost          // the most tokens to take up front
	Percent bool          // Amount is a percentage of the amount that can pass at once
	Life    time.Duration // how long tokens taken up front are kept; zero: DefaultPrefetchLife
}

// DefaultPrefetchLife is the default Life of a Prefetch.
const DefaultPrefetchLife = time.Second

func (p Prefetch) life() time.Duration { return cmp.Or(p.Life, DefaultPrefetchLife) }

// applyTo writes the prefetch into params, or returns what is wrong with it.
func (p Prefetch) applyTo(params *law.Params) error {
	if p == (Prefetch{}) {
		return nil
	}
	if params.Kind != law.Bucket {
		return Invalid("prefetch", "only limits that refill have one: token-bucket, leaky-bucket, gcra, interval "+
			"and fixed-window")
	}
	if err := checkAmount("prefetch", p.Amount); err != nil {
		return err
	}
	amount := p.Amount.rat()
	if p.Percent {
		credits := amount.Mul(amount, big.NewRat(params.Capacity, 100))
		params.Prefetch = max(1, floorCredits(credits, 1))
	} else {
		params.Prefetch = floorCredits(amount, params.Unit)
	}
	if params.Prefetch > params.Capacity {
		return Invalid("prefetch", "%s is more than what passes at once", p.amountText())
	}
	var err error
	params.PrefetchLife, err = microsOf("prefetch", p.life())
	return err
}

// floorCredits returns a cost in credits, rounded down, and at most math.MaxInt64.
func floorCredits(cost *big.Rat, unit int64) int64 {
	n := new(big.Int).Mul(cost.Num(), big.NewInt(unit))
	if n.Quo(n, cost.Denom()); !n.IsInt64() {
		return math.MaxInt64
	}
	return n.Int64()
}

func (p Prefetch) amountText() string {
	if p.Percent {
		return p.Amount.String() + "%"
	}
	return p.Amount.String()
}

// suffix returns the prefetch as it stands in a notation.
func (p Prefetch) suffix() string {
	switch {
	case p == (Prefetch{}):
		return ""
	case p.life() == DefaultPrefetchLife:
		return " prefetch " + p.amountText()
	}
	return " prefetch " + p.amountText() + "/" + formatPeriod(p.Life)
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
