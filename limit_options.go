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

// How the options of a Tail are written, of limits that refill and of others.
const (
	plainOptions  = "[block PERIOD] [away share|allow] [deadline PERIOD] [scale N]"
	refillOptions = "[block PERIOD] [prefetch N|N%[/PERIOD]] [away share|allow] [deadline PERIOD] [scale N]"
)

// Tail are the options that every algorithm shares.
type Tail struct {
	// Block refuses a key for this long once it has been refused. Zero: not.
	Block time.Duration
	// Prefetch lets nodes take tokens up front. Zero: not.
	Prefetch Prefetch
	// Away is the answer while the store cannot decide. Zero: an error.
	Away Away
	// Deadline is how long a decision may take. Zero: as long as the Limiter lets it, see
	// Config.Timeout. Of the limits of one request the shortest holds.
	Deadline time.Duration
	// Scale is how many digits after the point costs are counted in, from 4 to 9: 6 for money in
	// millionths. Zero: 3, thousandths, or as many as the limit's own amounts have, or fewer where these are
	// large. A limit that gets another scale starts to count in other steps: what was charged before can
	// then not be settled or cancelled.
	Scale uint8
}

// setOptions writes the options into p, or says what is wrong with them.
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

// suffix writes the options at the end of a notation.
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

// digitsOf returns how many digits a number of credits has after the point, in units.
func digitsOf(credits, unit int64) (n uint8) {
	for rest := credits % unit; rest != 0 && n < maxExp; n++ {
		hi, lo := bits.Mul64(uint64(rest), 10)
		_, r := bits.Div64(hi, lo, uint64(unit))
		rest = int64(r)
	}
	return n
}

// minScale is the least scale that can be said: without one costs are counted in thousandths.
const minScale = 4

// errScale returns the error of a scale that is none.
func errScale(s string) error {
	return Invalid("scale", "%.100q is not a number of digits from %d to %d; without it costs are counted in "+
		"thousandths", s, minScale, maxExp)
}

// Prefetch lets each node take a block of tokens up front and hand them out
// without the store. What is not handed out within Life is lost: so the bound
// is that of the limit, plus what flows in a Life, for any number of nodes. A
// fixed window's tokens end with it, and add nothing. The zero Prefetch is none.
//
// Only internal/front/prefetch looks at it; in notation "prefetch 100", "prefetch 10%" and, with
// a life other than a second, "prefetch 100/250ms".
type Prefetch struct {
	Amount  Cost          // tokens at most
	Percent bool          // Amount is per cent of what passes at once
	Life    time.Duration // zero: a second
}

// DefaultPrefetchLife is the life of a Prefetch that names none.
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
	share := u.Amount.rat()
	if u.Percent {
		share.Mul(share, big.NewRat(p.Capacity, 100))
		p.Prefetch = max(1, ratCredits(share, 1))
	} else {
		p.Prefetch = ratCredits(share, p.Unit)
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

// suffix writes the prefetch at the end of a notation.
func (u Prefetch) suffix() string {
	switch {
	case u == (Prefetch{}):
		return ""
	case u.life() == DefaultPrefetchLife:
		return " prefetch " + u.amountText()
	}
	return " prefetch " + u.amountText() + "/" + formatPeriod(u.Life)
}

// Away says what a limit answers while its store cannot decide: while it cannot be reached, takes no
// writes, or does not answer within the deadline. Package internal/front/guard, which store/front contains,
// carries it out. Such a decision has Via == [ViaFallback]. What stands in the store is not changed.
//
// It is for requests that take and check. Everything else fails with the store's error, and so
// do requests with an id, reservations and leases, which the store would have to know later. Where the
// limits of one request differ, the strictest holds: AwayDeny before AwayShare before AwayAllow.
type Away = law.Away

// What a limit answers while its store cannot decide. In notation, "away share" and "away allow".
const (
	// AwayDeny is the zero Away: the store's error, and nothing is admitted.
	AwayDeny = law.AwayDeny
	// AwayShare divides the limit by the processes that use the store, and each decides by
	// its part in memory. The parts of all processes are never more than the limit, also when some of them
	// reach the store and others do not: see [Bound].
	AwayShare = law.AwayShare
	// AwayAllow admits everything. The limit has no bound then.
	AwayAllow = law.AwayAllow
)
