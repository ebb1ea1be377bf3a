package headgate

import (
	"math"
	"math/big"
	"time"

	"github.com/headgate/headgate/law"
)

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
	if u.Life == 0 {
		return DefaultPrefetchLife
	}
	return u.Life
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
	if err := checkPeriod("prefetch", u.life()); err != nil {
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
		return Invalid("prefetch", "%s is more than what passes at once", u.amount())
	}
	p.PrefetchLife = u.life().Microseconds()
	return nil
}

// ratCredits returns a cost in credits, rounded down.
func ratCredits(cost *big.Rat, unit int64) int64 {
	n := new(big.Int).Mul(cost.Num(), big.NewInt(unit))
	if n.Quo(n, cost.Denom()); !n.IsInt64() {
		return math.MaxInt64
	}
	return n.Int64()
}

func (u Prefetch) amount() string {
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
		return " prefetch " + u.amount()
	}
	return " prefetch " + u.amount() + "/" + formatPeriod(u.Life)
}
