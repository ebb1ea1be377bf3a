package headgate

import (
	"context"

	"github.com/headgate/headgate/law"
)

// asked is a request on its way to the store and back.
type asked struct {
	l    *Limiter
	ops  []law.Op
	outs []law.Outcome
	cals []*calendar
}

func (l *Limiter) asked(charges []Charge) asked {
	a := asked{l: l, ops: make([]law.Op, len(charges)), cals: calendars(nil, 0, charges)}
	return a.again()
}

// again is a request as large, about the same limits.
func (a asked) again() asked {
	return asked{l: a.l, ops: make([]law.Op, len(a.ops)), outs: make([]law.Outcome, len(a.ops)), cals: a.cals}
}

// apply asks the store. An error of a single op is the request's.
func (a *asked) apply(ctx context.Context) error {
	if err := a.l.apply(ctx, a.ops, a.outs, a.cals); err != nil {
		return err
	}
	for i := range a.outs {
		if err := a.outs[i].Err; err != nil {
			return err
		}
	}
	return nil
}

// settle asks the store to settle, and returns by how much it did.
func (a *asked) settle(ctx context.Context) (corrected []Cost, err error) {
	if err := a.apply(ctx); err != nil {
		return nil, err
	}
	corrected = make([]Cost, len(a.ops))
	for i := range a.ops {
		corrected[i] = changed(&a.ops[i], &a.outs[i])
		a.l.turns.wake(a.ops[i].Cell)
	}
	return corrected, nil
}

// changed is by how much a cost was corrected, up or down.
func changed(op *law.Op, out *law.Outcome) Cost {
	if out.Granted == 0 {
		return nothing
	}
	return costOf(max(out.Granted, -out.Granted), op.Params.Unit, false)
}
