package headgate

import (
	"math"
	"math/big"
	"strings"
	"time"

	"github.com/headgate/headgate/law"
)

// Upfront lets each node take a block of tokens up front and hand them out
// without the store. What is not handed out within Life is lost: so the bound
// is that of the limit, plus what flows in a Life, for any number of nodes. A
// fixed window's tokens end with it, and add nothing. The zero Upfront is none.
//
// What is taken up front is called a lease in notation, and by store/lease; it has
// nothing to do with a [Lease], which is of a concurrency limit.
//
// Only store/lease looks at it; in notation "lease 100", "lease 10%" and, with
// a life other than a second, "lease 100/250ms".
type Upfront struct {
	Amount  Cost          // tokens at most
	Percent bool          // Amount is per cent of what passes at once
	Life    time.Duration // zero: a second
}

// DefaultLeaseLife is the life of an Upfront that names none.
const DefaultLeaseLife = time.Second

func (u Upfront) life() time.Duration {
	if u.Life == 0 {
		return DefaultLeaseLife
	}
	return u.Life
}

// compile writes the lease into p.
func (u Upfront) compile(p *law.Params) error {
	if u == (Upfront{}) {
		return nil
	}
	if p.Kind != law.Bucket {
		return Invalid("lease", "only limits that refill have one: token-bucket, leaky-bucket, gcra, interval and fixed-window")
	}
	if err := checkAmount("lease", u.Amount); err != nil {
		return err
	}
	if err := checkPeriod("lease", u.life()); err != nil {
		return err
	}
	share := u.Amount.rat()
	if u.Percent {
		share.Mul(share, big.NewRat(p.Capacity, 100))
		p.Lease = max(1, ratCredits(share, 1))
	} else {
		p.Lease = ratCredits(share, p.Unit)
	}
	if p.Lease > p.Capacity {
		return Invalid("lease", "%s is more than what passes at once", u.amount())
	}
	p.LeaseLife = u.life().Microseconds()
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

func (u Upfront) amount() string {
	if u.Percent {
		return u.Amount.String() + "%"
	}
	return u.Amount.String()
}

// suffix writes the lease at the end of a notation.
func (u Upfront) suffix() string {
	switch {
	case u == (Upfront{}):
		return ""
	case u.life() == DefaultLeaseLife:
		return " lease " + u.amount()
	}
	return " lease " + u.amount() + "/" + formatPeriod(u.Life)
}

// leaseOption takes the option from a notation.
func (n *notation) leaseOption() (u Upfront, err error) {
	f, ok := n.options["lease"]
	if !ok {
		return u, nil
	}
	delete(n.options, "lease")
	amount, life, timed := strings.Cut(f.text, "/")
	amount, u.Percent = strings.CutSuffix(amount, "%")
	if u.Amount, err = parseAmount("lease", amount); err != nil {
		return u, n.wrap("lease", f.at, err)
	}
	if timed {
		if u.Life, err = parsePeriod("lease", life); err != nil {
			return u, n.wrap("lease", f.at+len(f.text)-len(life), err)
		}
		if u.Life == DefaultLeaseLife {
			u.Life = 0
		}
	}
	return u, nil
}
