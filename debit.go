package headgate

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/law"
)

// Debited is what became of a Debit.
type Debited struct {
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
func (l *Limiter) Debit(ctx context.Context, c Charge) (d Debited, err error) {
	_, err = l.observed(ctx, VerbDebit, []Charge{c}, func() (Decision, error) {
		d, err = l.debit(ctx, c)
		return d.Decision, err
	})
	return d, err
}

func (l *Limiter) debit(ctx context.Context, c Charge) (d Debited, err error) {
	if !c.Keep.IsZero() {
		return d, Invalid("keep", "has no meaning for what is charged whatever the level")
	}
	err = l.alone(ctx, c, Cost.saturated, func(ctx context.Context, r *request) error {
		op, out := &r.ops[0], &r.outs[0]
		op.Verb, op.Ceiling = law.Take, op.Params.Highest()
		op.Count, op.Cost, op.Partial = op.Cost, 1, true // what passes the highest level is not lost
		unblocking(r.ops)
		if err := r.do(ctx); err != nil {
			return err
		}
		d = Debited{
			Charged: costOf(out.Granted, &op.Params, false), Level: costOf(out.Used, &op.Params, true),
			Over: out.Used > op.Params.Capacity, Decision: r.decision(),
		}
		return nil
	})
	return d, err
}

// Refund gives back up to the cost of a charge that is not known by itself, neither by a Reservation nor by
// an id, and returns how much that was. It looks at the key, and then gives back at most what is in use
// at that time and has not drained: of a window, what was charged within it. Nothing says that the
// caller has charged it, so the bound of the limit holds for what is charged less what is given back.
//
// A sliding log gives back single entries only, and a concurrency limit is released: of them it is
// ErrUnsupported. An error that is ErrUnknownOutcome does not tell whether anything was given back.
func (l *Limiter) Refund(ctx context.Context, c Charge) (returned Cost, err error) {
	returned = nothing
	err = l.alone(ctx, c, Cost.refunded, func(ctx context.Context, r *request) error {
		op, out := r.ops[0], &r.outs[0]
		if op.Params.Kind == law.Log {
			return fmt.Errorf("%w: %s gives back single charges only, by a reservation or an id", ErrUnsupported,
				c.Limit.Algorithm())
		}
		r.ops[0].Verb = law.Check
		if err := r.do(ctx); err != nil {
			return err
		}
		if out.State.Kind == 0 || out.Used <= 0 {
			return nil
		}
		back := law.Back(&op, out, op.Cost)
		again := request{l: l, ops: []law.Op{back}, outs: make([]law.Outcome, 1), cals: r.cals}
		if err := again.do(ctx); err != nil {
			return err
		}
		l.turns.wake(op.Cell)
		returned = changed(&again.ops[0], &again.outs[0])
		return nil
	})
	return returned, err
}

// alone does something with the op of a single charge, with its limit as it holds now, unless the charge is of no
// credits.
func (l *Limiter) alone(ctx context.Context, c Charge, credits func(Cost, *law.Params) (int64, error),
	do func(context.Context, *request) error,
) error {
	all := call{l: l, asked: []Charge{c}}
	return all.do(ctx, l.timeout, func(ctx context.Context) error {
		if err := takeable(all.charges()); err != nil {
			return err
		}
		r := l.request(all.charges())
		if err := l.compileWith(r.ops, law.Take, 1, all.charges(), credits); err != nil {
			return err
		}
		if r.ops[0].Cost == 0 { // less than one is given back
			return nil
		}
		if err := law.ValidGroup(r.ops); err != nil {
			return err
		}
		return do(ctx, &r)
	})
}
