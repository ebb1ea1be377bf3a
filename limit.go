package headgate

import (
	"fmt"
	"math"
	"math/big"
	"time"

	"github.com/headgate/headgate/law"
)

// Limit is a named rule: an algorithm with its parameters, checked and
// compiled. It is an immutable value and safe for concurrent use. The zero
// Limit is refused wherever it is used.
//
// A limit is known to stores by its name, so two limits of one name share
// their keys' usage. One without a name is known by its canonical notation,
// so to change it is to make a new limit.
type Limit struct{ r *rule }

type rule struct {
	name      string // what stores know it by
	named     bool
	notation  string
	algorithm Algorithm
	params    law.Params
	calendar  *calendar // nil unless Params.Anchor is law.Calendar
	plain     bool      // taken by ops that need no boundaries
	capacity  int64     // in whole units of cost, see law.Params.Figure

	capacityNanos int32

	applied     string // see Decision.Applied
	from, until int64  // the store's time for which it holds, in microseconds; until 0: without an end
	next        *rule  // what holds from until on; nil if that is 0
}

var noRule = rule{notation: "no limit"}

// rule returns that of the zero Limit too.
func (l Limit) rule() *rule {
	if l.r == nil {
		return &noRule
	}
	return l.r
}

// Named returns a limit of which only the name is known here. A server knows the rest (package
// client), or the Config.Names of a Limiter; one without is ErrUnknownLimit. A
// name is a small letter, then up to 63 small letters, digits, and any of _ . -; another is
// ErrInvalid.
func Named(name string) (Limit, error) {
	if err := ValidName(name); err != nil {
		return Limit{}, err
	}
	return Limit{&rule{name: name, named: true, notation: name}}, nil
}

// MustNamed panics where Named returns an error. The name should be a constant.
func MustNamed(name string) Limit { return must(Named(name)) }

// NewLimit returns a limit of an algorithm's values. name may be empty. Errors
// are ErrInvalid and name the field.
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
	r.plain = cal == nil && !p.Leased
	r.capacity, r.capacityNanos = p.Figure(p.Capacity)
	return Limit{r}, nil
}

// OnlyName reports whether nothing but the name of the limit is known: see [Named].
func (l Limit) OnlyName() bool { return l.r != nil && l.r.algorithm == nil }

// Concurrency reports whether its charges are held until they are released, by
// [Limiter.Acquire], and not taken: those of concurrency.
func (l Limit) Concurrency() bool { return l.rule().params.Leased }

// WithName returns the limit under another name, where it has keys of its own. Errors are
// ErrInvalid.
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

// maxName is the length of a limit's name.
const maxName = 64

// ValidName returns why a limit cannot have this name, or nil: a small letter,
// then up to 63 small letters, digits, and any of _ . -, but not "unlimited", which is a notation.
func ValidName(name string) error {
	ok := name != "" && name != unlimitedNotation && len(name) <= maxName && name[0] >= 'a' && name[0] <= 'z'
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

// Name returns what the limit is known by: its name, else its notation.
func (l Limit) Name() string { return l.rule().name }

// Named reports whether the limit was given a name.
func (l Limit) Named() bool { return l.rule().named }

// IsZero reports whether l is the zero Limit.
func (l Limit) IsZero() bool { return l.r == nil }

// String returns the canonical notation, which Parse reads back.
func (l Limit) String() string { return l.rule().notation }

// Algorithm returns the algorithm with its parameters; nil of a zero Limit, and of one of
// which only the name is known.
func (l Limit) Algorithm() Algorithm { return l.rule().algorithm }

// Params returns the limit as the laws see it, for stores and tools.
func (l Limit) Params() law.Params { return l.rule().params }

// Charged returns what a cost is charged as by a limit: rounded up to the step in which the limit counts, 0.001 for
// 0.0001 of a fixed window. A cost that the limit cannot count, such as one that is too large, is returned as it is.
func (l Limit) Charged(c Cost) Cost {
	unit := l.Params().Unit
	if unit == 0 {
		return c
	}
	if n, err := c.said().credits(unit); err == errFine { //nolint:errorlint // it is never wrapped
		return costOf(n, &l.r.params, true)
	}
	return c
}

// Until returns a limit that is l before an instant, and next from then on, by the store's
// clock: a decision at that instant or later is by next, on whichever node. Both have the same
// name, else it is ErrInvalid. Each may be made by Until itself: what l would become at the instant or
// later never holds. Its other methods are about l. A Limiter guesses by its own clock
// which of them holds; a wrong guess costs one more call of the store, nothing else.
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
	return Limit{l.r.before(us, next.r)}, nil
}

// before returns the rule, with another one that takes its place at a time.
func (r *rule) before(at int64, next *rule) *rule {
	first := *r
	first.plain = false
	if first.next != nil && first.until < at {
		first.next = first.next.before(at, next)
		return &first
	}
	then := *next
	then.from, then.plain = max(then.from, at), false
	first.until, first.next = at, &then
	return &first
}

// Because returns a limit whose decisions say in Applied why it applies and not the one that
// its name usually means: for implementations of Names. Of the zero Limit it is that.
func (l Limit) Because(applied string) Limit {
	if l.IsZero() {
		return l
	}
	r := *l.r
	r.applied = applied
	return Limit{&r}
}

// timed reports whether a rule holds for a time only.
func (r *rule) timed() bool { return r != nil && (r.from != 0 || r.until != 0) }

// at returns the rule that holds at a time.
func (r *rule) at(now int64) *rule {
	for r.next != nil && now >= r.until {
		r = r.next
	}
	return r
}

// forever returns what the limit is now, as if it held at any time.
func (l Limit) forever() Limit {
	if !l.r.timed() {
		return l
	}
	r := *l.r
	r.from, r.until, r.next = 0, 0, nil
	return Limit{&r}
}

// calendar returns the calendar of the limit's windows, or nil.
func (l Limit) calendar() *calendar { return l.rule().calendar }

// Bound returns the most that the limit lets pass.
func (l Limit) Bound() Bound {
	if l.Algorithm() == nil {
		return Bound{}
	}
	b := l.r.algorithm.bound()
	b.notation, b.params, b.calendar, b.away = l.r.notation, l.r.params, l.r.calendar, l.r.params.Away
	return b
}

// Within returns how many charges of a cost can pass at most for a key that
// is fresh at first, with decision times from first to last. It is what an
// audit compares with, and mostly less than Bound states for any interval of
// that length: it knows which windows the times lie in.
//
// Who asks all the time gets that many. Of a sliding-window that is so within
// one window; where the times touch several, each counts in full. Errors are
// ErrInvalid, about the cost.
func (l Limit) Within(first, last time.Time, cost Cost) (int64, error) {
	if l.r == nil {
		return 0, Invalid("limit", "is missing")
	}
	p := &l.r.params
	c, err := cost.charged(p)
	if err != nil {
		return 0, err
	}
	if last.Before(first) {
		return 0, nil
	}
	steps := l.r.steps(first, last)
	most := new(big.Int)
	if p.Kind == law.Bucket && p.Drain < p.Capacity {
		// A full bucket, and what has drained since.
		most.Mul(big.NewInt(p.Drain), big.NewInt(steps))
		most.Add(most, big.NewInt(p.Capacity))
		most.Quo(most, big.NewInt(c))
	} else {
		// Each window afresh: what is left over in one helps no later one.
		most.Mul(big.NewInt(p.Capacity/c), big.NewInt(steps+1))
	}
	if !most.IsInt64() {
		return math.MaxInt64, nil
	}
	return most.Int64(), nil
}

// steps counts the steps of the law, or the ends of windows, after first and
// not after last, of a key that was fresh at first.
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
