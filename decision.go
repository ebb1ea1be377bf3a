package headgate

import (
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// Never is the RetryAfter of a cost that can never pass: it exceeds what the
// limit admits at once.
const Never = time.Duration(math.MaxInt64)

// Via says how a decision was reached.
type Via = law.Via

// The ways.
const (
	ViaStore    = law.ViaStore    // the store decided
	ViaPrefetch = law.ViaPrefetch // out of tokens taken up front
	ViaLocal    = law.ViaLocal    // a refusal repeated without the store
	ViaFallback = law.ViaFallback // the store was away, and the limit says what is answered then: see [Away]
)

// Charge is a cost of a key under a limit.
type Charge struct {
	Limit Limit
	Key   string // at most 512 bytes of UTF-8 without NUL; may be empty
	Cost  Cost   // zero: 1

	// Keep is how much of the limit has to be free after the charge; zero: nothing. Taking,
	// checking and acquiring obey it, settling and releasing do not. A charge that keeps
	// headroom never blocks a key.
	Keep Headroom
}

// Decision is the answer to a request of one or more charges. Its figures are about one
// of them: of an admitted request the charge with the smallest share left, of a refused
// one the charge that has to wait longest. Each has those of all.
type Decision struct {
	Allowed    bool
	Replayed   bool          // it was made before, under the same id; see [Limiter.Once]
	LimitName  string        // name of the limit that the figures are about
	Key        string        // of the charge
	Capacity   int64         // whole units of cost that can pass at once, rounded down
	Remaining  int64         // whole units of cost that could pass now, rounded down: after an admission, what is left
	RetryAfter time.Duration // until this cost can pass if nobody else comes; 0 if allowed, or Never
	NextAfter  time.Duration // if Remaining is 0, until a cost of 1 fits; see ChargeDecision
	ResetAfter time.Duration // until the key is unused again
	// the time of the decision by the store's clock, to the microsecond; after a small step
	// of that clock backwards a little ahead of it
	At  time.Time
	Via Via
	// what Capacity and Remaining have beside whole units, in billionths of one, as google.type.Money has
	// them: of limits with a scale or with such a capacity; else 0. See RemainingCost.
	CapacityNanos, RemainingNanos int32
	EntryNumber                   int64 // transaction number in the log, for limits that keep one; else 0
	// what was in force in the place of the limit itself, such as an override or a plan; empty:
	// nothing, or a server decided that does not say
	Applied string

	// Each has the figures of every charge that was looked at, in the order of the
	// charges. A refusal that is repeated without the store looks at one of them. Nil for
	// a request of one charge, whose figures are the decision's own.
	Each []ChargeDecision
}

// ChargeDecision is the decision about one charge of a request.
type ChargeDecision struct {
	Charge     int  // its place among the charges, from 0
	Allowed    bool // it would have passed alone
	LimitName  string
	Key        string
	Capacity   int64
	Remaining  int64 // a check and a request that was refused have taken nothing of it
	RetryAfter time.Duration
	// NextAfter is, where an admission leaves no whole unit, the time until a cost of 1 fits if nobody else comes, or
	// of a limit that lets less than 1 pass at once, until all of that fits. Of a replay or an extension on a sliding
	// log it is the longest that it can be. Zero: Remaining is above 0, the charge was refused, or a server decided,
	// which does not say.
	NextAfter  time.Duration
	ResetAfter time.Duration
	Applied    string // as that of the Decision

	CapacityNanos, RemainingNanos int32 // as those of the Decision
}

// RemainingCost returns Remaining with its digits after the point: 0.031 of a limit of 0.05.
func (d *Decision) RemainingCost() Cost { return figure(d.Remaining, d.RemainingNanos) }

// CapacityCost returns Capacity with its digits after the point.
func (d *Decision) CapacityCost() Cost { return figure(d.Capacity, d.CapacityNanos) }

// RemainingCost returns Remaining with its digits after the point.
func (f *ChargeDecision) RemainingCost() Cost { return figure(f.Remaining, f.RemainingNanos) }

// CapacityCost returns Capacity with its digits after the point.
func (f *ChargeDecision) CapacityCost() Cost { return figure(f.Capacity, f.CapacityNanos) }

// figure returns units and billionths as a cost.
func figure(units int64, nanos int32) Cost {
	if units <= 0 && nanos <= 0 {
		return nothing
	}
	c := Cost{coef: int64(nanos), exp: maxExp}.normal()
	c.coef += units * pow10[c.exp]
	return c
}

// figures are a charge's part of a decision, before it is known which charge
// the decision is about.
type figures struct {
	op   *law.Op
	out  *law.Outcome
	fits bool
}

func (f figures) blocked() bool {
	return f.out.State.BlockedUntil > max(f.out.Clock, f.out.State.At)
}

// room returns the credits that are free.
func (f figures) room() int64 {
	if f.blocked() {
		return 0
	}
	return max(0, f.op.Params.Capacity-f.out.Used)
}

// outranks reports whether f says more of what is left than g: it was decided now and g was not, or it
// has a smaller share of its capacity left.
func (f figures) outranks(g figures) bool {
	if f.out.Replayed != g.out.Replayed {
		return g.out.Replayed
	}
	hi1, lo1 := bits.Mul64(uint64(f.room()), uint64(g.op.Params.Capacity))
	hi2, lo2 := bits.Mul64(uint64(g.room()), uint64(f.op.Params.Capacity))
	return hi1 < hi2 || hi1 == hi2 && lo1 < lo2
}

// decision derives what is said of the charge, whose level has credits that were not taken.
func (f figures) decision(granted bool, untaken int64) (d Decision) {
	p, out := &f.op.Params, f.out
	b := store.Brief{
		Granted: granted, Via: out.Via, Used: out.Used - untaken, Clock: out.Clock, At: f.op.DecidedAt(out),
		RetryAt: out.RetryAt, EmptyAt: max(out.State.EmptyAt, out.State.BlockedUntil), Blocked: f.blocked(),
	}
	if until := f.op.Until; until != 0 {
		b.RetryAt = min(b.RetryAt, until) // when another limit decides
	}
	d.LimitName, d.Key = f.op.Cell.Limit, f.op.Cell.Key
	d.Capacity, d.CapacityNanos = p.Figure(p.Capacity)
	d.derive(p, &b, &out.State)
	return d
}

// derive sets what people see from what a store has said of a charge.
// Remaining, retry-after, next-after and reset-after are computed here and nowhere else in
// Go. s is the state that the charge has left; nil, of a plain cell, of which EmptyAt says all.
//
// It writes the fields in place: for decisions in this process, copies of a
// Decision are a good part of what they take. So is a division: the capacity is set by the caller, who may know it.
func (d *Decision) derive(p *law.Params, b *store.Brief, s *law.State) {
	d.Allowed = b.Granted
	d.ResetAfter = max(0, time.Duration(b.EmptyAt-b.Clock)*time.Microsecond)
	d.At = time.UnixMicro(b.At).UTC()
	d.Via = b.Via
	if room := p.Capacity - b.Used; room > 0 && !b.Blocked {
		d.Remaining, d.RemainingNanos = p.Figure(room)
	}
	if !b.Granted {
		d.RetryAfter = Never
		if b.RetryAt != law.Never {
			d.RetryAfter = max(0, time.Duration(b.RetryAt-b.Clock)*time.Microsecond)
		}
	} else if d.Remaining == 0 {
		if s == nil {
			s = &law.State{EmptyAt: b.EmptyAt}
		}
		d.NextAfter = max(0, time.Duration(p.NextAt(s, b.Used, b.At, b.RetryAt)-b.Clock)*time.Microsecond)
	}
}

// DeniedError is a refusal, for those verbs that have no other way to report it:
// [Limiter.Wait], [Limiter.Await] and [Limiter.WithLease], [Reservation.Sleep], [Limited],
// [TokenRequester] and [Pace], and packages httplimit and grpclimit.
type DeniedError struct {
	Decision Decision
}

// Error returns which limit refused, and when it will not.
func (e *DeniedError) Error() string {
	d := &e.Decision
	if d.RetryAfter == Never {
		return fmt.Sprintf("limit %s refuses %q: the cost is more than can ever pass at once", d.LimitName, d.Key)
	}
	return fmt.Sprintf("limit %s refuses %q: try again in %s", d.LimitName, d.Key, d.RetryAfter)
}

// Is reports whether target is ErrDenied.
func (*DeniedError) Is(target error) bool { return target == ErrDenied }
