package headgate

import (
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// Never is the RetryAfter of a cost that can never pass, since it exceeds what the limit admits at once.
const Never = time.Duration(math.MaxInt64)

// Via says how a decision was reached.
type Via = law.Via

// The ways to a decision.
const (
	ViaStore    = law.ViaStore    // the store decided
	ViaPrefetch = law.ViaPrefetch // granted from tokens taken up front
	ViaLocal    = law.ViaLocal    // a refusal repeated without the store
	ViaFallback = law.ViaFallback // the store was away, and the policy of the limit decided: see [Away]
)

// Charge is a cost of a key under a limit.
type Charge struct {
	Limit Limit
	Key   string // at most 512 bytes of UTF-8 without NUL; may be empty
	Cost  Cost   // zero: 1

	// Keep is how much of the limit has to be free after the charge; zero: nothing. It applies to taking, checking,
	// acquiring and extending, not to settling and releasing. A refused charge with Keep never blocks a key.
	Keep Headroom

	// Alternative numbers the alternatives of a request from 1; zero: it has none. FirstOf sets it. Verbs that name an
	// earlier request, such as Extend and Settle, ignore it.
	Alternative int
}

// FirstOf returns the charges of a request with alternatives, for [Limiter.Take], [Limiter.Check], [Limiter.Wait],
// [Once.Take] and [Limiter.Batch]: a plan, say, and then credits; or the models that will do. All charges of the first
// alternative that passes as a whole are taken, in one round trip, and nothing of the others: one that was passed over
// leaves no block and no attempt in a history. If no alternative passes, the last one leaves what its refusal alone
// would leave. Decision.Alternative is the number of the one that was taken, or else can pass first.
//
// An alternative has one charge or more; there are at most 255. A Redis Cluster needs one key, or several in one slot,
// and returns store.ErrUnsupported for others.
func FirstOf(alternatives ...[]Charge) []Charge {
	var charges []Charge
	for i, alternative := range alternatives {
		for _, c := range alternative {
			c.Alternative = i + 1
			charges = append(charges, c)
		}
	}
	return charges
}

// Decision is the answer to a request of one or more charges. All fields but Allowed, Replayed, Crossed, Alternative
// and Each are about one charge: in an admitted request, the charge with the smallest fraction of its limit left,
// replays last; in a refused request, the charge that has to wait longest. Each has the fields of all charges. Of a
// request with alternatives, a Decision is about the one that was taken; if none was, the one that can pass first.
type Decision struct {
	Allowed    bool
	Replayed   bool          // the request was admitted before, under the same id; see [Limiter.Once]
	LimitName  string        // name of the charge's limit
	Key        string        // key of the charge
	Capacity   int64         // whole units of cost that can pass at once, rounded down
	Remaining  int64         // whole units of cost that could pass now, rounded down; an admitted charge is subtracted
	RetryAfter time.Duration // time until this cost can pass if nobody else comes; 0 if allowed, or Never
	NextAfter  time.Duration // if Remaining is 0, time until a cost of 1 fits; see [ChargeDecision.NextAfter]
	ResetAfter time.Duration // time until the key is unused again
	// At is the time of the decision by the store's clock, to the microsecond. After that clock went back a little, At
	// is a little ahead of it.
	At  time.Time
	Via Via
	// CapacityNanos and RemainingNanos are the fractions of Capacity and Remaining, in billionths, as in
	// google.type.Money. They are 0 unless the limit has a scale or a capacity with a fraction. See RemainingCost.
	CapacityNanos, RemainingNanos int32
	EntryNumber                   int64 // transaction number in the log, for limits that keep one; else 0
	// Alternative is the number of the alternative that the decision is about, from 1; 0: the request has none.
	Alternative int
	// Applied names what replaced the limit itself, such as an override or a plan; empty: nothing did, or the server
	// that decided does not say.
	Applied string
	// Crossed is the highest percentage of Tail.Notify that the request has told, of any of its charges; 0: none. See
	// [Crossing].
	Crossed int

	// Each has the decisions about all charges whose cells were read, in the order of the charges; a refusal that is
	// repeated without the store has only the charges that it refuses. Alternatives that were not tried have none. Nil
	// for a request of one charge.
	Each []ChargeDecision
}

// ChargeDecision is the decision about one charge of a request.
type ChargeDecision struct {
	Charge     int  // index of the charge in the request
	Allowed    bool // the charge by itself would have passed
	LimitName  string
	Key        string
	Capacity   int64
	Remaining  int64 // whole units of cost that could pass now; a check or a refused request takes none of them
	RetryAfter time.Duration
	// NextAfter is the time until a cost of 1 fits if nobody else comes, after an admission that leaves no whole unit.
	// For a limit that lets less than 1 pass at once, it is the time until its whole capacity fits. For a replay or an
	// extension on a sliding log, it is an upper bound. Zero: Remaining is above 0, the charge was refused, or a server
	// decided, which does not report it.
	NextAfter  time.Duration
	ResetAfter time.Duration
	Applied    string // see [Decision.Applied]
	Crossed    int    // the highest percentage that this charge has told; 0: none

	CapacityNanos, RemainingNanos int32 // see [Decision.RemainingNanos]
}

// RemainingCost returns Remaining with its digits after the point, such as 0.031 for a limit of 0.05.
func (d *Decision) RemainingCost() Cost { return figureCost(d.Remaining, d.RemainingNanos) }

// CapacityCost returns Capacity with its digits after the point.
func (d *Decision) CapacityCost() Cost { return figureCost(d.Capacity, d.CapacityNanos) }

// RemainingCost returns Remaining with its digits after the point.
func (f *ChargeDecision) RemainingCost() Cost { return figureCost(f.Remaining, f.RemainingNanos) }

// CapacityCost returns Capacity with its digits after the point.
func (f *ChargeDecision) CapacityCost() Cost { return figureCost(f.Capacity, f.CapacityNanos) }

// figureCost returns the sum of units and billionths as a cost.
func figureCost(units int64, nanos int32) Cost {
	if units <= 0 && nanos <= 0 {
		return explicitZero
	}
	c := Cost{coef: int64(nanos), exp: maxExp}.normalize()
	c.coef += units * pow10[c.exp]
	return c
}

// chargeFigures are the op and the outcome of one charge, from which its part of a decision is derived.
type chargeFigures struct {
	op   *law.Op
	out  *law.Outcome
	fits bool // the charge passes
}

// isBlocked reports whether the key is blocked at the time of the decision.
func (f chargeFigures) isBlocked() bool {
	return f.out.State.BlockedUntil > max(f.out.Clock, f.out.State.At)
}

// room returns the free credits: none if the key is blocked.
func (f chargeFigures) room() int64 {
	if f.isBlocked() {
		return 0
	}
	return max(0, f.op.Params.Capacity-f.out.Used)
}

// isTighter reports whether an admitted decision is about f and not g: f was decided now while g is a replay, or f has
// a smaller fraction of its capacity left.
func (f chargeFigures) isTighter(g chargeFigures) bool {
	if f.out.Replayed != g.out.Replayed {
		return g.out.Replayed
	}
	hi1, lo1 := bits.Mul64(uint64(f.room()), uint64(g.op.Params.Capacity))
	hi2, lo2 := bits.Mul64(uint64(g.room()), uint64(f.op.Params.Capacity))
	return hi1 < hi2 || hi1 == hi2 && lo1 < lo2
}

// decision derives the decision about the charge. The outcome's level counts untakenCredits, which were not taken.
func (f chargeFigures) decision(granted bool, untakenCredits int64) (d Decision) {
	p, out := &f.op.Params, f.out
	b := store.Brief{
		Granted: granted, Via: out.Via, Used: out.Used - untakenCredits, Clock: out.Clock, At: f.op.DecidedAt(out),
		RetryAt: out.RetryAt, EmptyAt: max(out.State.EmptyAt, out.State.BlockedUntil), Blocked: f.isBlocked(),
	}
	if until := f.op.Until; until != 0 {
		b.RetryAt = min(b.RetryAt, until) // from then on another limit decides
	}
	d.LimitName, d.Key = f.op.Cell.Limit, f.op.Cell.Key
	d.Capacity, d.CapacityNanos = p.Figure(p.Capacity)
	d.derive(p, &b, &out.State)
	return d
}

// derive sets the fields that people see from the store's answer about a charge. Remaining, RetryAfter, NextAfter and
// ResetAfter are computed here and nowhere else in Go. s is the state after the charge; nil for a plain cell, for which
// b.EmptyAt is enough.
//
// It writes the fields in place: copies of a Decision would take a good part of the time of decisions in this process.
// So would a division: the caller sets the capacity, which it may know without one.
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

// DeniedError is a refusal as an error, from calls that do not return a Decision: [Limiter.Wait], [Limiter.Await],
// [WithLease], [Reservation.Sleep], [Limited], [TokenRequester], [Pace], and packages httplimit, grpclimit and llm.
type DeniedError struct {
	Decision Decision
}

// Error says which limit refused which key, and when to try again.
func (e *DeniedError) Error() string {
	d := &e.Decision
	if d.RetryAfter == Never {
		return fmt.Sprintf("limit %s refuses %q: the cost is more than can ever pass at once", d.LimitName, d.Key)
	}
	return fmt.Sprintf("limit %s refuses %q: try again in %s", d.LimitName, d.Key, d.RetryAfter)
}

// Is reports whether target is ErrDenied.
func (*DeniedError) Is(target error) bool { return target == ErrDenied }
