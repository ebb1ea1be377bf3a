package headgate

import (
	"context"
	"time"

	"github.com/headgate/headgate/law"
)

// Names finds limits by their names, for a Limiter that is asked by limits of which only the
// name is known ([Named]). A catalog.Catalog is one. It is safe for concurrent use.
//
// It may have a method Known(name, key string) (Limit, bool) too: Find for what is at hand, which
// waits for nothing. It returns false for anything else.
type Names interface {
	// Find returns the limit of a name as it is for a key. Errors are ErrUnknownLimit, or the
	// store's.
	Find(ctx context.Context, name, key string) (Limit, error)
	// FindAll puts limits in the place of those of the charges of which only the name is
	// known: all of one version. After an error the charges may be changed in part.
	FindAll(ctx context.Context, charges []Charge) error
}

// knower is a Names with a method Known.
type knower interface {
	Known(name, key string) (Limit, bool)
}

// OnlyName reports whether nothing but the name of the limit is known: see [Named].
func (l Limit) OnlyName() bool { return l.r != nil && l.r.algorithm == nil }

// Until returns a limit that is l before an instant, and next from then on, by the store's
// clock: a decision at that instant or later is by next, on whichever node. Both have the same
// name, else it is ErrInvalid. Each may be made by Until itself: what l would become at the instant or
// later never holds. Its other methods are about l. A Limiter guesses by its own clock
// which of them holds; a wrong guess costs one more question to the store, nothing else.
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
func (l Limit) calendar() *calendar {
	if l.r == nil {
		return nil
	}
	return l.r.calendar
}
