package headgate

import (
	"context"

	"github.com/headgate/headgate/law"
)

// LeaseToken is one charge of a lease, as any process needs to know it.
type LeaseToken struct {
	Limit  Limit // of concurrency
	Key    string
	Number int64 // of the entry in the log; Decision.Entry of the lease, if it has one charge
}

// Renew lets what is held last for its limit's time to live from now. It returns
// ErrLeaseLost if some of it is held no more. For leases that were detached:
// those of this process are renewed by themselves.
func (l *Limiter) Renew(ctx context.Context, held ...LeaseToken) error {
	return l.each(ctx, held, func(op *law.Op) { op.Verb = law.Renew })
}

// Release lets others have what is held. It returns ErrLeaseLost if some of it was
// held no more. For leases that were detached; see [Lease.Release].
func (l *Limiter) Release(ctx context.Context, held ...LeaseToken) error {
	err := l.each(ctx, held, func(op *law.Op) { op.Verb, op.Cost = law.Return, law.Max }) // all that it costs
	for _, h := range held {
		l.turns.wake(law.Cell{Limit: h.Limit.Name(), Key: h.Key})
	}
	return err
}

// each applies an op to each of what is held, by itself.
func (l *Limiter) each(ctx context.Context, held []LeaseToken, set func(*law.Op)) error {
	if len(held) == 0 {
		return Invalid("held", "there is none")
	}
	a := asked{l: l, ops: make([]law.Op, len(held)), outs: make([]law.Outcome, len(held))}
	for i, h := range held {
		switch {
		case h.Limit.IsZero():
			return Invalid("limit", "is missing")
		case !h.Limit.r.params.Leased:
			return Invalid("limit", "%s is taken, not acquired", h.Limit.Algorithm())
		case h.Number < 1:
			return Invalid("number", "%d was never acquired", h.Number)
		}
		a.ops[i] = law.Op{
			Group: uint32(i + 1), Cell: law.Cell{Limit: h.Limit.Name(), Key: h.Key}, Params: h.Limit.r.params,
			Cost: 1, Count: 1, EntryNumber: h.Number,
		}
		set(&a.ops[i])
		if err := law.ValidKey(h.Key); err != nil {
			return err
		}
		if err := a.ops[i].Valid(); err != nil {
			return err
		}
	}
	if err := a.apply(ctx); err != nil {
		return err
	}
	for i := range a.outs {
		if a.outs[i].Granted == 0 {
			return ErrLeaseLost
		}
	}
	return nil
}
