package headgate

import (
	"context"
	"time"

	"github.com/headgate/headgate/law"
)

// Once makes requests under an idempotency key, the id: each is charged once, however often and by whichever process
// sends it, and any process can settle it. [Limiter.Once] returns one. It is safe for concurrent use.
type Once interface {
	// Take takes the charges as [Limiter.Take], once: repeated with the same charges, it returns the first admission
	// with Decision.Replayed, and charges nothing, even after a settlement. A request that was refused, or cancelled
	// since, is decided again. With other charges, or if the id was reserved and may not start yet, it returns
	// ErrReused. It may be repeated after any error, also one that leaves open whether the store has decided.
	Take(ctx context.Context, charges ...Charge) (Decision, error)

	// Reserve reserves the charges as [Limiter.Reserve], once: repeated, it returns the first start, whatever the wait
	// says now. Exception: if one of several charges with a common start was cancelled since, or its key reset, all are
	// decided again, for another start, and the charges that were not cancelled or reset are charged a second time.
	Reserve(ctx context.Context, wait time.Duration, charges ...Charge) (*Reservation, error)

	// Debit charges as [Limiter.Debit], once: repeated, it returns the first result with Decision.Replayed, and charges
	// nothing. If the cost would take the level above what a cell can count, 2^53 credits or 2^32 for a sliding window,
	// nothing is charged, and Decision.Allowed is false. A debit can be settled; a bucket whose level is above its
	// capacity gives back the capacity at most.
	Debit(ctx context.Context, c Charge) (DebitResult, error)

	// Extend raises charges that were admitted under the id, in this process or another, to the costs given here in
	// total, such as the tokens of a stream that goes on. charges need not be all charges of the id; all of them are
	// extended, or none. After a refusal the earlier charges stay, and the work that needs more has to stop. A charge
	// that has its cost already charges nothing, so Extend can be repeated after any error. The keys of charges
	// remember the id for another life from now.
	//
	// Extend returns ErrSettled after a settlement or a cancellation, and ErrUnknownID if nothing was admitted or its
	// life is over. It returns ErrReused if a limit has since been changed to one that counts costs in other credits,
	// which can happen when the rate of a token bucket changes: further costs then need another id.
	//
	// A reservation can be extended before its start; the extension is charged at once.
	//
	// Settling gives back the last extension first. Earlier parts count as charged when the id was first admitted, so a
	// limit that drains gives back less of them; with sliding-log all parts count as charged by the last extension.
	Extend(ctx context.Context, charges ...Charge) (ExtendResult, error)

	// Settle corrects charges that were admitted under the id, in this process or another, to the actual costs given
	// here, Units(0) for none; see [Reservation.Settle]. charges need not be all charges of the id. A charge whose
	// limit was changed since is not corrected. Settling at the same cost again changes nothing; at another cost it
	// returns ErrSettled. It returns ErrUnknownID if nothing was admitted or its life is over.
	Settle(ctx context.Context, charges ...Charge) (corrected []Cost, err error)

	// Cancel takes back charges that were admitted under the id, whatever their costs here; see [Reservation.Cancel].
	// Unlike a settlement at no cost, it lets the id be admitted again: a Take that is still under way, even one sent
	// earlier, then charges. Cancel is for requests that nobody sends again; settle others.
	Cancel(ctx context.Context, charges ...Charge) (returned []Cost, err error)
}

// ExtendResult is the result of [Once.Extend].
type ExtendResult struct {
	// Decision is about the additional charge. Allowed says that each charge has its cost now, Replayed that it had it
	// before. For a charge that needs nothing more, the decision is that of its first admission.
	Decision Decision
	// Charged is, for each charge, its cost in total after the call, also after a refusal.
	Charged []Cost
}

// Once returns a Once for a request of the caller's, such as an order or a job, with this id. Each charged key
// remembers by itself what was admitted under the id, for life, or DefaultLife if that is zero; a reservation for so
// long after its start. An id is at most 255 bytes of UTF-8 without NUL.
//
// A request with an id costs the store a row for each charge, and is never decided without the store.
func (l *Limiter) Once(id string, life time.Duration) Once {
	return onceRequest{l, requestID{id, life}}
}

// onceRequest is the Once of a Limiter.
type onceRequest struct {
	l  *Limiter
	id requestID
}

// Take implements Once.
func (o onceRequest) Take(ctx context.Context, charges ...Charge) (Decision, error) {
	spec := verbSpec{
		reportAs: VerbTake, verb: law.Take, limits: notConcurrency, toCredits: Cost.chargeCredits, fullTimeout: true,
		prepare: o.id.set,
		read: func(_ context.Context, r *request) (Decision, error) {
			if err := r.checkStart(); err != nil {
				return Decision{}, err
			}
			return r.decision(), nil
		},
	}
	return o.l.call(ctx, &spec, charges)
}

// Reserve implements Once.
func (o onceRequest) Reserve(ctx context.Context, wait time.Duration, charges ...Charge) (*Reservation, error) {
	return o.l.reserveWithID(ctx, wait, charges, &o.id)
}

// Debit implements Once.
func (o onceRequest) Debit(ctx context.Context, c Charge) (DebitResult, error) {
	return o.l.debit(ctx, c, &o.id)
}

// Extend implements Once.
func (o onceRequest) Extend(ctx context.Context, charges ...Charge) (e ExtendResult, err error) {
	spec := verbSpec{
		reportAs: VerbExtend, verb: law.Extend, limits: notConcurrency, toCredits: Cost.chargeCredits,
		fullTimeout: true, prepare: o.id.set,
		read: func(_ context.Context, r *request) (Decision, error) {
			e.Charged = make([]Cost, len(r.ops))
			for i := range r.outs {
				out := &r.outs[i]
				e.Charged[i] = costOf(out.Granted, &r.ops[i].Params, false)
				// From here on the op is one that takes the additional credits.
				r.ops[i].Cost = max(0, r.ops[i].Cost-out.Granted)
				if out.Granted = 0; out.RetryAt == 0 {
					out.Granted = r.ops[i].Count
				}
			}
			e.Decision = r.decision()
			return e.Decision, nil
		},
	}
	_, err = o.l.call(ctx, &spec, charges)
	return e, err
}

// Settle implements Once.
func (o onceRequest) Settle(ctx context.Context, charges ...Charge) (corrected []Cost, err error) {
	return o.settle(ctx, charges, func(op *law.Op) int64 { return op.Cost })
}

// Cancel implements Once.
func (o onceRequest) Cancel(ctx context.Context, charges ...Charge) (returned []Cost, err error) {
	withoutCosts := make([]Charge, len(charges))
	for i, c := range charges {
		withoutCosts[i] = Charge{Limit: c.Limit, Key: c.Key, Cost: explicitZero}
	}
	return o.settle(ctx, withoutCosts, func(*law.Op) int64 { return law.Cancelled })
}

// settle settles the charges at the credits that actual returns for each op.
func (o onceRequest) settle(ctx context.Context, charges []Charge, actual func(*law.Op) int64) (
	corrected []Cost, err error,
) {
	spec := verbSpec{
		verb: law.Settle, toCredits: Cost.actualCredits, fullTimeout: true,
		prepare: func(r *request) error {
			for i := range r.ops {
				r.ops[i] = settleOp(&r.ops[i], o.id.id, actual(&r.ops[i]))
			}
			return nil
		},
		read: func(_ context.Context, r *request) (Decision, error) {
			corrected = o.l.corrections(r)
			return Decision{}, nil
		},
	}
	_, err = o.l.call(ctx, &spec, charges)
	return corrected, err
}
