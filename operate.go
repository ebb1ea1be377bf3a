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
	Charged Cost // the charged cost, rounded down to a millionth: all of it, or as much as a cell can count
	Level   Cost // cost in use after the charge, rounded up to a millionth
	Over    bool // the level is above the capacity: the cost did not fit
	// Decision is about the key after the charge: Remaining is 0 if the level is at the capacity or above. Allowed says
	// that anything was charged; if the key is blocked, nothing is.
	Decision Decision
}

// Debit charges a cost whatever the level. It is for work that is already done, such as an answer whose number of
// tokens was not known before. The level may exceed the capacity; the excess delays others until it has drained. A
// sliding window or a sliding log counts the excess as long as any charge, a fixed window until its end. So the bound
// of the limit holds for Take, and the excess of debits comes on top.
//
// A charge with Keep is ErrInvalid. If the cost is roughly known before, Take an estimate under an id and Settle it
// instead: then the bound holds without an exception.
func (l *Limiter) Debit(ctx context.Context, c Charge) (DebitResult, error) {
	return l.debit(ctx, c, nil)
}

// debit charges a cost whatever the level: with an id all of it or nothing, else as much as a cell can hold.
func (l *Limiter) debit(ctx context.Context, c Charge, id *requestID) (d DebitResult, err error) {
	spec := verbSpec{reportAs: VerbDebit, verb: law.Take, limits: notConcurrency, fullTimeout: true}
	spec.toCredits = func(c Cost, p *law.Params) (int64, error) {
		n, err := c.chargeCredits(p)
		return c.saturate(n, err, p)
	}
	spec.prepare = func(r *request) error {
		op := &r.ops[0]
		if op.Ceiling != 0 {
			return Invalid("keep", "has no meaning for what is charged whatever the level")
		}
		op.Ceiling = op.Params.Highest()
		r.dropBlocks()
		if id != nil {
			return id.set(r)
		}
		op.Count, op.Cost, op.Partial = op.Cost, 1, true // charge a part if all would exceed the highest level
		return nil
	}
	spec.read = func(_ context.Context, r *request) (Decision, error) {
		if err := r.checkStart(); err != nil {
			return Decision{}, err
		}
		op, out := &r.ops[0], &r.outs[0]
		d = DebitResult{
			Charged: costOf(out.Granted*op.Cost, &op.Params, false), Level: costOf(out.Used, &op.Params, true),
			Over: out.Used > op.Params.Capacity, Decision: r.decision(),
		}
		return d.Decision, nil
	}
	_, err = l.call(ctx, &spec, []Charge{c})
	return d, err
}

// Refund gives back up to the cost of c, and returns how much it gave back. It is for charges without a Reservation or
// an id. It reads the key, and then gives back at most the cost in use at that time that has not drained; for a window,
// the cost charged within it. Nothing checks that the caller had charged it, so the bound of the limit holds for
// charges minus refunds.
//
// For a sliding log and for concurrency it returns an error: the first gives back single entries only, the second is
// released. After ErrUnknownOutcome it is not known whether anything was given back.
func (l *Limiter) Refund(ctx context.Context, c Charge) (returned Cost, err error) {
	returned, c.Alternative = explicitZero, 0
	var credits int64
	spec := verbSpec{verb: law.Check, limits: notConcurrency, toCredits: Cost.refundCredits, fullTimeout: true}
	spec.prepare = func(r *request) error {
		op := &r.ops[0]
		if op.Params.Kind == law.Log {
			return fmt.Errorf("%w: %s gives back single charges only, by a reservation or an id", ErrUnsupported,
				r.limits[0].Algorithm())
		}
		credits = op.Cost // 0 if the cost is less than one credit
		op.Cost = max(1, credits)
		return nil
	}
	spec.read = func(ctx context.Context, r *request) (none Decision, err error) {
		out := &r.outs[0]
		if credits == 0 || out.State.Kind == 0 || out.Used <= 0 {
			return none, nil
		}
		returns := &request{[]law.Op{law.Back(&r.ops[0], out, credits)}, make([]law.Outcome, 1), r.limits}
		if err = l.decide(ctx, returns); err == nil {
			returned = l.corrections(returns)[0]
		}
		return none, err
	}
	_, err = l.call(ctx, &spec, []Charge{c})
	return returned, err
}

// Block refuses every charge of a limit for a key for the duration d from now, whatever its level, and stores the
// reason for people. It replaces an earlier block. A d of zero lifts the block, also one that a refusal has set.
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

// Reset forgets the level, the block and the ids of a key, and reports whether it had any. The history is kept.
func (l *Limiter) Reset(ctx context.Context, limit Limit, key string) (existed bool, err error) {
	_, op, out, err := l.callOne(ctx, law.Reset, limit, key, nil)
	l.queues.wake(op.Cell)
	return out.Granted > 0, err
}
