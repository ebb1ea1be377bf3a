package headgate

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// DebitResult is the result of a Debit.
type DebitResult struct {
	Charged Cost // rounded down to a millionth: all of the cost, or less near 2^53 credits
	Level   Cost // in use then, what was charged included; rounded up to a millionth
	Over    bool // the level is above the capacity: the cost did not fit
	// Decision has the figures after the charge: Remaining is 0 while the level is at the capacity
	// or above. Allowed says that anything was charged: a key that is blocked is not.
	Decision Decision
}

// Debit charges a cost whatever the level: that of work that is done already, such as the tokens of
// an answer whose length was not known before. The level may pass the capacity, and what is above
// it delays others until it has drained; a sliding window and a sliding log count it for as long as
// anything else, and a fixed window until its end. So the bound of the limit holds for what Take
// admits, and what Debit adds above the capacity comes on top.
//
// It takes no headroom. Where the cost is known roughly before, Take an estimate under an id and
// Settle it: then the bound holds without an exception.
func (l *Limiter) Debit(ctx context.Context, c Charge) (DebitResult, error) {
	return l.debit(ctx, c, nil)
}

// debit charges a cost whatever the level: under an id all of it or nothing, else as much as a cell can hold.
func (l *Limiter) debit(ctx context.Context, c Charge, id *requestID) (d DebitResult, err error) {
	q := question{observed: VerbDebit, verb: law.Take, limits: takenOnly, credits: Cost.saturated, lasting: true}
	q.prepare = func(r *request) error {
		op := &r.ops[0]
		if op.Ceiling != 0 {
			return Invalid("keep", "has no meaning for what is charged whatever the level")
		}
		op.Ceiling = op.Params.Highest()
		r.unblock()
		if id != nil {
			return id.set(r)
		}
		op.Count, op.Cost, op.Partial = op.Cost, 1, true // what passes the highest level is not lost
		return nil
	}
	q.read = func(_ context.Context, r *request) (Decision, error) {
		if err := r.startsLater(); err != nil {
			return Decision{}, err
		}
		op, out := &r.ops[0], &r.outs[0]
		d = DebitResult{
			Charged: costOf(out.Granted*op.Cost, &op.Params, false), Level: costOf(out.Used, &op.Params, true),
			Over: out.Used > op.Params.Capacity, Decision: r.decision(),
		}
		return d.Decision, nil
	}
	_, err = l.call(ctx, &q, []Charge{c})
	return d, err
}

// Refund gives back up to the cost of a charge that is not known by itself, neither by a Reservation nor by
// an id, and returns how much that was. It looks at the key, and then gives back at most what is in use
// at that time and has not drained: of a window, what was charged within it. Nothing says that the
// caller has charged it, so the bound of the limit holds for what is charged less what is given back.
//
// A sliding log gives back single entries only, and a concurrency limit is released: of them it is
// ErrUnsupported. After ErrUnknownOutcome it is not known whether anything was given back.
func (l *Limiter) Refund(ctx context.Context, c Charge) (returned Cost, err error) {
	returned = nothing
	var credits int64
	q := question{verb: law.Check, limits: takenOnly, credits: Cost.refunded, lasting: true}
	q.prepare = func(r *request) error {
		op := &r.ops[0]
		if op.Params.Kind == law.Log {
			return fmt.Errorf("%w: %s gives back single charges only, by a reservation or an id", ErrUnsupported,
				r.limits[0].Algorithm())
		}
		credits = op.Cost // may be 0: less than one is given back
		op.Cost = max(1, credits)
		return nil
	}
	q.read = func(ctx context.Context, r *request) (none Decision, err error) {
		out := &r.outs[0]
		if credits == 0 || out.State.Kind == 0 || out.Used <= 0 {
			return none, nil
		}
		back := &request{[]law.Op{law.Back(&r.ops[0], out, credits)}, make([]law.Outcome, 1), r.limits}
		if err = l.decide(ctx, back); err == nil {
			returned = l.corrected(back)[0]
		}
		return none, err
	}
	_, err = l.call(ctx, &q, []Charge{c})
	return returned, err
}

// Block refuses every charge of a limit for a key until d from now, whatever
// its level, and says why. A d of zero lifts the block, also one that a limit
// has set by itself. It replaces an earlier block.
func (l *Limiter) Block(ctx context.Context, limit Limit, key string, d time.Duration, reason string) (
	s Status, err error,
) {
	var ttl int64
	switch {
	case d < 0:
		return Status{}, Invalid("for", "%s is negative; 0 lifts a block", d)
	case d > 0:
		if ttl, err = microsOf("for", d); err != nil {
			return Status{}, err
		}
	}
	limit, op, out, err := l.callOne(ctx, law.Block, limit, key, func(op *law.Op) { op.TTL, op.Reason = ttl, reason })
	if err != nil {
		return Status{}, err
	}
	cell := store.Cell{Cell: op.Cell, State: out.State}
	if d > 0 {
		cell.Reason = reason
	}
	return newStatus(cell, limit, &op, cell.State.InUse(&op, out.Clock), out.Clock), nil
}

// Reset forgets all about a key: its level, its block. It reports whether
// there was anything to forget. A history is kept.
func (l *Limiter) Reset(ctx context.Context, limit Limit, key string) (existed bool, err error) {
	_, op, out, err := l.callOne(ctx, law.Reset, limit, key, nil)
	l.queues.wake(op.Cell)
	return out.Granted > 0, err
}
