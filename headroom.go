package headgate

import (
	"math/bits"
	"strings"

	"github.com/headgate/headgate/law"
)

// Headroom is how much of a limit a charge leaves to others: the charge passes only if at least that much of the
// capacity is free after it. So work that can wait, such as a batch, stops before the limit is full, and urgent work
// finds room. A Headroom is a percentage of the capacity, or an amount, and is rounded up to the step in which the
// limit counts. The zero Headroom is none. A Headroom is a value; compare with ==.
type Headroom struct {
	amount    Cost
	isPercent bool // amount is a percentage of the capacity
}

// Percent returns n percent of the capacity as headroom. If an override raises or lowers the limit, it is n percent of
// the new capacity. Every use of a Headroom from an n below 1 or above 99 is an error.
func Percent(n int64) Headroom {
	if n < 1 || n > 99 {
		n = -1
	}
	return Headroom{Units(n), true}
}

// Keep returns an amount as headroom: for example Keep(Units(100)).
func Keep(c Cost) Headroom { return Headroom{amount: c} }

// ParseHeadroom parses a percentage such as "2.5%", or an amount such as "100" or "0.5". Errors are ErrInvalid.
func ParseHeadroom(s string) (Headroom, error) {
	number, isPercent := strings.CutSuffix(s, "%")
	amount, err := parseAmount("keep", number)
	if err != nil {
		return Headroom{}, err
	}
	h := Headroom{amount, isPercent}
	return h, h.valid()
}

// MustHeadroom parses a constant. It panics where ParseHeadroom would fail.
func MustHeadroom(s string) Headroom { return must(ParseHeadroom(s)) }

// String returns the text that ParseHeadroom reads, or "" for the zero Headroom.
func (h Headroom) String() string {
	switch {
	case h.IsZero():
		return ""
	case h.isPercent:
		return h.amount.String() + "%"
	}
	return h.amount.String()
}

// IsZero reports whether h is the zero Headroom.
func (h Headroom) IsZero() bool { return h == Headroom{} }

// MarshalText implements encoding.TextMarshaler: it returns String, or ErrInvalid for an invalid Headroom.
func (h Headroom) MarshalText() ([]byte, error) { return []byte(h.String()), h.valid() }

// UnmarshalText implements encoding.TextUnmarshaler: it reads what ParseHeadroom reads, and "" as the zero Headroom. An
// error leaves h as it was.
func (h *Headroom) UnmarshalText(text []byte) (err error) {
	var parsed Headroom
	if len(text) > 0 {
		parsed, err = ParseHeadroom(string(text))
	}
	if err == nil {
		*h = parsed
	}
	return err
}

// valid returns an error unless h is zero, an amount above 0, or a percentage above 0 and below 100.
func (h Headroom) valid() error {
	switch c := h.amount; {
	case h.IsZero():
	case c.coef <= 0:
		return Invalid("keep", "must be above 0, and below 100%%")
	case h.isPercent && c.coef >= 100*pow10[c.exp]:
		return Invalid("keep", "%s leaves nothing of a limit to take", h)
	}
	return nil
}

// ceiling returns the level, in credits, up to which a charge that leaves the headroom is admitted.
func (h Headroom) ceiling(p *law.Params) (int64, error) {
	if err := h.valid(); err != nil {
		return 0, err
	}
	if isClosed(p) {
		return p.Capacity, nil // no cost fits below it
	}
	base, den := p.Unit, uint64(pow10[h.amount.exp])
	if h.isPercent {
		base, den = p.Capacity, 100*den
	}
	hi, lo := bits.Mul64(uint64(h.amount.coef), uint64(base))
	if hi < den {
		keep, r := bits.Div64(hi, lo, den)
		if r > 0 {
			keep++
		}
		if keep < uint64(p.Capacity) {
			return p.Capacity - int64(keep), nil
		}
	}
	capacity := costOf(p.Capacity, p, false)
	return 0, Invalid("keep", "%s leaves nothing to take of a limit of %s at once", h, capacity)
}

// applyTo makes op leave the headroom. Its refusal then does not block the key, since others may have room.
func (h Headroom) applyTo(op *law.Op) (err error) {
	if h.IsZero() || op.Verb != law.Take && op.Verb != law.Check && op.Verb != law.Extend {
		return nil
	}
	op.Ceiling, err = h.ceiling(&op.Params)
	op.Params.Block = 0
	return err
}
