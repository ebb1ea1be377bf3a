package headgate

import (
	"fmt"
	"math"
	"math/big"
	"time"

	"github.com/headgate/headgate/law"
)

// Limit is an algorithm with its parameters, with or without a name; or only a name, see [Named]. It is an immutable
// value and safe for concurrent use. A charge of the zero Limit is an error.
//
// Stores identify a limit by its name, so two limits of one name share their keys' usage. They identify a limit without
// a name by its canonical notation, so to change its parameters is to make a new limit.
type Limit struct{ r *rule }

// rule is the compiled form of a Limit.
type rule struct {
	name      string // the name by which stores identify the limit: its own, or the notation
	named     bool   // the limit was given a name
	notation  string
	algorithm Algorithm // nil if only the name is known
	params    law.Params
	calendar  *calendar // nil unless Params.Anchor is law.Calendar
	plain     bool      // store.OneTaker can decide it: it has no calendar, lease, thresholds or limited time

	capacity      int64 // whole units of the capacity, see law.Params.Figure
	capacityNanos int32 // its fraction in billionths

	applied     string // see Decision.Applied
	from, until int64  // microseconds of the store's time between which it is in force; until 0: without an end
	next        *rule  // the rule in force from until on; nil if until is 0
}

// noRule is the rule of the zero Limit.
var noRule = rule{notation: "no limit"}

// rule returns the rule of the limit, or noRule.
func (l Limit) rule() *rule {
	if l.r == nil {
		return &noRule
	}
	return l.r
}

// Named returns a limit of which only the name is known here. A server (package client), or the Config.Names of a
// Limiter, finds the rest by the name; a Limiter without Names returns ErrUnknownLimit. If name is not a [ValidName],
// the error is ErrInvalid.
func Named(name string) (Limit, error) {
	if err := ValidName(name); err != nil {
		return Limit{}, err
	}
	return Limit{&rule{name: name, named: true, notation: name}}, nil
}

// MustNamed panics where Named returns an error. The name should be a constant.
func MustNamed(name string) Limit { return must(Named(name)) }

// NewLimit returns a limit with the algorithm a. name may be empty. Errors are ErrInvalid and name the field.
func NewLimit(name string, a Algorithm) (Limit, error) {
	if a == nil {
		return Limit{}, Invalid("limit", "has no algorithm")
	}
	p, cal, err := a.compile()
	if err != nil {
		return Limit{}, err
	}
	r := &rule{name: name, named: name != "", notation: a.String(), algorithm: a, params: p, calendar: cal}
	if r.named {
		if err := ValidName(name); err != nil {
			return Limit{}, err
		}
	} else {
		r.name = r.notation
	}
	if err := p.Valid(); err != nil {
		return Limit{}, fmt.Errorf("%s: %w", r.notation, err)
	}
	r.plain = cal == nil && !p.Leased && p.Notify[0] == 0
	r.capacity, r.capacityNanos = p.Figure(p.Capacity)
	return Limit{r}, nil
}

// OnlyName reports whether only the name of the limit is known: see [Named].
func (l Limit) OnlyName() bool { return l.r != nil && l.r.algorithm == nil }

// Concurrency reports whether the algorithm is [Concurrency], whose charges are held by [Limiter.Acquire] until they
// are released.
func (l Limit) Concurrency() bool { return l.rule().params.Leased }

// WithName returns the limit with another name. It shares the usage of keys with limits of that name, and no longer
// with l. Errors are ErrInvalid.
func (l Limit) WithName(name string) (Limit, error) {
	if l.Algorithm() == nil {
		return Limit{}, Invalid("limit", "is missing")
	}
	if err := ValidName(name); err != nil {
		return Limit{}, err
	}
	r := *l.r
	r.name, r.named = name, true
	return Limit{&r}, nil
}

// maxNameLen is the greatest length of a limit's name.
const maxNameLen = 64

// ValidName returns why a limit cannot have this name, or nil: a small letter, then up to 63 small letters, digits, and
// any of _ . -, but not "unlimited", which is a notation.
func ValidName(name string) error {
	ok := name != "" && name != unlimitedNotation && len(name) <= maxNameLen && name[0] >= 'a' && name[0] <= 'z'
	for i := range len(name) {
		c := name[i]
		ok = ok && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_' || c == '.' || c == '-')
	}
	if !ok {
		return Invalid("name", "%q: a limit's name is a small letter and up to 63 more small letters, digits or any "+
			"of _ . -, and not unlimited", name)
	}
	return nil
}

// Name returns the name by which stores identify the limit: its own name if it has one, else its notation.
func (l Limit) Name() string { return l.rule().name }

// Named reports whether the limit was given a name.
func (l Limit) Named() bool { return l.rule().named }

// IsZero reports whether l is the zero Limit.
func (l Limit) IsZero() bool { return l.r == nil }

// String returns the canonical notation, which Parse reads back; or else the name, if only that is known.
func (l Limit) String() string { return l.rule().notation }

// Algorithm returns the algorithm with its parameters; nil for a zero Limit, and for a limit of which only the name is
// known.
func (l Limit) Algorithm() Algorithm { return l.rule().algorithm }

// Params returns the parameters of the limit in package law, for stores and tools.
func (l Limit) Params() law.Params { return l.rule().params }

// Charged returns the cost that the limit charges for c: c rounded up to the step in which the limit counts, such as
// 0.001 for 0.0001 in a fixed window. A cost that the limit cannot count, such as one that is too large, is returned
// unchanged.
func (l Limit) Charged(c Cost) Cost {
	unit := l.Params().Unit
	if unit == 0 {
		return c
	}
	if n, err := c.explicit().credits(unit); err == errTooFine { //nolint:errorlint // it is never wrapped
		return costOf(n, &l.r.params, true)
	}
	return c
}

// Until returns a limit that is l before the instant at, and next from then on. All processes change at the same
// instant, since the store's clock decides. The other methods of the result are about l.
//
// Both limits must have the same name, and an algorithm; else the error is ErrInvalid. Each may be a result of Until
// itself; a later part of l that would begin at the instant or after it is dropped. A Limiter guesses by its own clock
// which limit is in force; a wrong guess costs one more call of the store, nothing else.
func (l Limit) Until(at time.Time, next Limit) (Limit, error) {
	us := at.UnixMicro()
	switch {
	case l.IsZero() || next.IsZero() || l.OnlyName() || next.OnlyName():
		return Limit{}, Invalid("limit", "is missing, or has nothing but a name")
	case l.r.name != next.r.name:
		return Limit{}, Invalid("limit", "%q does not follow %q: they have different names", next.r.name, l.r.name)
	case us <= 0 || us > law.Max:
		return Limit{}, Invalid("until", "%s is out of range", at.UTC().Format(time.RFC3339))
	}
	return Limit{l.r.withNext(us, next.r)}, nil
}

// withNext returns a copy of the rule that is replaced by next at a time.
func (r *rule) withNext(at int64, next *rule) *rule {
	head := *r
	head.plain = false
	if head.next != nil && head.until < at {
		head.next = head.next.withNext(at, next)
		return &head
	}
	successor := *next
	successor.from, successor.plain = max(successor.from, at), false
	head.until, head.next = at, &successor
	return &head
}

// Because returns a copy of the limit whose decisions have this Applied: the reason why it is in force and not the
// limit that its name usually means. It is for implementations of Names. For the zero Limit it returns the zero Limit.
func (l Limit) Because(applied string) Limit {
	if l.IsZero() {
		return l
	}
	r := *l.r
	r.applied = applied
	return Limit{&r}
}

// isTimed reports whether the rule is in force for a limited time.
func (r *rule) isTimed() bool { return r != nil && (r.from != 0 || r.until != 0) }

// inForceAt returns the rule that is in force at a time: r or one of its successors.
func (r *rule) inForceAt(now int64) *rule {
	for r.next != nil && now >= r.until {
		r = r.next
	}
	return r
}

// untimed returns the limit without its successors, in force at any time.
func (l Limit) untimed() Limit {
	if !l.r.isTimed() {
		return l
	}
	r := *l.r
	r.from, r.until, r.next = 0, 0, nil
	return Limit{&r}
}

// Bound returns the most that the limit lets pass. It is the zero Bound if the algorithm is not known.
func (l Limit) Bound() Bound {
	if l.Algorithm() == nil {
		return Bound{}
	}
	b := l.r.algorithm.bound()
	b.notation, b.params, b.calendar, b.away = l.r.notation, l.r.params, l.r.calendar, l.r.params.Away
	return b
}

// Within returns how many charges of a cost can pass at most for a key that is unused before the time first, with
// decision times from first to last. It is for audits. Mostly it is less than Bound says for any interval of that
// length, since it knows in which windows the times lie.
//
// A caller that charges all the time gets that many. A sliding-window is an exception: if the times touch several of
// its windows, Within counts each in full. Errors are ErrInvalid.
func (l Limit) Within(first, last time.Time, cost Cost) (int64, error) {
	if l.Algorithm() == nil {
		return 0, Invalid("limit", "is missing")
	}
	p := &l.r.params
	credits, err := cost.chargeCredits(p)
	if err != nil {
		return 0, err
	}
	if last.Before(first) {
		return 0, nil
	}
	steps := l.r.steps(first, last)
	count := new(big.Int)
	if p.Kind == law.Bucket && p.Drain < p.Capacity {
		// The whole capacity, and all that drains from then on.
		count.Mul(big.NewInt(p.Drain), big.NewInt(steps))
		count.Add(count, big.NewInt(p.Capacity))
		count.Quo(count, big.NewInt(credits))
	} else {
		// Each window starts empty: the rest of one does not carry over to the next.
		count.Mul(big.NewInt(p.Capacity/credits), big.NewInt(steps+1))
	}
	if !count.IsInt64() {
		return math.MaxInt64, nil
	}
	return count.Int64(), nil
}

// steps counts the steps of the law, or the ends of windows, after first and up to last, for a key that is unused
// before first.
func (r *rule) steps(first, last time.Time) int64 {
	from, to := first.UnixMicro(), last.UnixMicro()
	switch p := &r.params; {
	case p.Kind == law.Bucket && p.Anchor == law.Calendar:
		var n int64
		for end := r.calendar.bounds(from)[2]; end <= to; end = r.calendar.bounds(end)[2] {
			n++
		}
		return n
	case p.Kind == law.Window, p.Kind == law.Bucket && p.Anchor == law.Epoch:
		return to/p.Step - from/p.Step
	default:
		return (to - from) / p.Step
	}
}
