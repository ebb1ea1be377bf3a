package headgate

import (
	"math/bits"
	"strings"

	"github.com/headgate/headgate/law"
)

// Headroom is how much of a limit a charge leaves to others: the charge passes only if at
// least that much of the capacity is free after it. So work that can wait, such as a batch,
// stops before the limit is full, and work that cannot finds room. It is a share of the
// capacity, or an amount in units of the limit, and is rounded up to what the limit can count.
// The zero Headroom is none. A Headroom is a value; compare with ==.
type Headroom struct {
	amount Cost
	share  bool // amount is a percentage of the capacity
}

// Percent returns n hundredths of the capacity as headroom. Of an override that raises or
// lowers the limit it is the same share. An n below 1 or above 99 makes a Headroom that every
// use of it refuses.
func Percent(n int64) Headroom {
	if n < 1 || n > 99 {
		n = -1
	}
	return Headroom{Units(n), true}
}

// Keep returns an amount as headroom: for example Keep(Units(100)).
func Keep(c Cost) Headroom { return Headroom{amount: c} }

// ParseHeadroom parses a percentage such as "10%" or "2.5%", or an amount such as "100" or
// "0.5". Errors are ErrInvalid.
func ParseHeadroom(s string) (Headroom, error) {
	number, share := strings.CutSuffix(s, "%")
	amount, err := parseAmount("keep", number)
	if err != nil {
		return Headroom{}, err
	}
	h := Headroom{amount, share}
	return h, h.valid()
}

// MustHeadroom parses a constant. It panics where ParseHeadroom would fail.
func MustHeadroom(s string) Headroom { return must(ParseHeadroom(s)) }

// String returns what ParseHeadroom reads, and "" for none.
func (h Headroom) String() string {
	switch {
	case h.IsZero():
		return ""
	case h.share:
		return h.amount.String() + "%"
	}
	return h.amount.String()
}

// IsZero reports whether h is none.
func (h Headroom) IsZero() bool { return h == Headroom{} }

// MarshalText implements encoding.TextMarshaler: it returns String.
func (h Headroom) MarshalText() ([]byte, error) { return []byte(h.String()), h.valid() }

// UnmarshalText implements encoding.TextUnmarshaler: it reads what ParseHeadroom reads, and "" as
// none.
func (h *Headroom) UnmarshalText(text []byte) (err error) {
	*h = Headroom{}
	if len(text) > 0 {
		*h, err = ParseHeadroom(string(text))
	}
	return err
}

func (h Headroom) valid() error {
	switch c := h.amount; {
	case h.IsZero():
	case c.coef <= 0:
		return Invalid("keep", "must be above 0, and below 100%%")
	case h.share && c.coef >= 100*pow10[c.exp]:
		return Invalid("keep", "%s leaves nothing of a limit to take", h)
	}
	return nil
}

// ceiling returns the credits up to which a charge that leaves the headroom is admitted.
func (h Headroom) ceiling(p *law.Params) (int64, error) {
	if err := h.valid(); err != nil {
		return 0, err
	}
	if closed(p) {
		return p.Capacity, nil // which no cost fits below
	}
	by, den := p.Unit, uint64(pow10[h.amount.exp])
	if h.share {
		by, den = p.Capacity, 100*den
	}
	hi, lo := bits.Mul64(uint64(h.amount.coef), uint64(by))
	if hi < den {
		keep, r := bits.Div64(hi, lo, den)
		if r > 0 {
			keep++
		}
		if keep < uint64(p.Capacity) {
			return p.Capacity - int64(keep), nil
		}
	}
	most := costOf(p.Capacity, p, false)
	return 0, Invalid("keep", "%s leaves nothing to take of a limit of %s at once", h, most)
}

// leaves makes an op one that leaves the headroom of its charge. It does not block a key:
// others have room in it.
func (h Headroom) leaves(op *law.Op) (err error) {
	if h.IsZero() || op.Verb != law.Take && op.Verb != law.Check && op.Verb != law.Extend {
		return nil
	}
	op.Ceiling, err = h.ceiling(&op.Params)
	op.Params.Block = 0
	return err
}
