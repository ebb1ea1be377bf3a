package headgate

import (
	"context"
	"time"

	"github.com/headgate/headgate/law"
)

// Once makes requests with an idempotency key: each is charged once, however often and by
// whichever process sends it, and any process can settle it. [Limiter.Once] makes one.
// It is safe for concurrent use.
type Once interface {
	// Take is [Limiter.Take]: repeated with the same charges, it returns the first
	// admission, with Decision.Replayed, and charges nothing. So it does after the request
	// was settled, at whatever cost. What was refused, or cancelled since, is decided
	// again. With other charges, or if it was reserved and
	// may not start yet, it returns ErrReused. It may be repeated after any error,
	// also if it is not known whether the store had heard.
	Take(ctx context.Context, charges ...Charge) (Decision, error)

	// Reserve is [Limiter.Reserve], as Take is [Limiter.Take]: repeated, it has the
	// start that it had, whatever the wait says now. If one of several charges that wait
	// for a common start was cancelled since, or its key reset, all are decided again, for
	// another start: then those that were not are charged a second time.
	Reserve(ctx context.Context, wait time.Duration, charges ...Charge) (*Reservation, error)

	// Debit is [Limiter.Debit], as Take is [Limiter.Take]: repeated, it returns the first result with
	// Decision.Replayed, and charges nothing. Of a cost that would take the level to more than a cell counts, 2^53
	// credits or 2^32 of a sliding window, nothing is charged, and Decision.Allowed is false. It can be settled;
	// a bucket whose level is above its capacity gives back the capacity at most.
	Debit(ctx context.Context, c Charge) (DebitResult, error)

	// Extend charges more under the id: so much that the charges cost what they say here in all,
	// such as the tokens of a stream that goes on. It is for charges that were admitted under
	// the id and not settled, in this process or another, and need not be all of them: all
	// are extended, or none. When it is refused, what was charged before stays, and whatever
	// needs more has to stop. What has charged as much already charges nothing: so it can be
	// repeated after any error. What is extended is remembered for another life from now.
	// After a settlement or a cancellation it returns ErrSettled, and ErrUnknownID if nothing was
	// admitted or its life is over. It returns ErrReused if a limit was changed since to one that counts
	// costs in other credits, as it may when the rate of a token bucket changes: the rest needs another id.
	//
	// A reservation can be extended before its start; what is more is charged at once.
	//
	// Settling gives back the last extension first. What was charged before it counts as charged
	// when the id was first admitted, so that a limit that drains gives back less of it; with
	// sliding-log all of it counts as charged by the last extension.
	Extend(ctx context.Context, charges ...Charge) (ExtendResult, error)

	// Settle corrects the costs of charges that were admitted under the id, in this
	// process or another, to those that the charges say here, Units(0) for nothing; see
	// [Reservation.Settle]. It need not be all of them; of a limit that was changed
	// since, nothing is corrected. Settled at the same cost again it changes nothing; at
	// another it returns ErrSettled, and ErrUnknownID if nothing was admitted or its life
	// is over.
	Settle(ctx context.Context, charges ...Charge) (corrected []Cost, err error)

	// Cancel takes back charges that were admitted under the id, whatever costs are said
	// here; see [Reservation.Cancel]. Unlike Settle at no cost it lets the id be admitted
	// again: an attempt to take that is still under way then charges, also if it was made
	// before. It is for requests that nobody tries again; others are settled.
	Cancel(ctx context.Context, charges ...Charge) (returned []Cost, err error)
}

// ExtendResult is the result of [Once.Extend].
type ExtendResult struct {
	// Decision is about what was to be charged in addition. Allowed says that all is charged
	// that the charges say; Replayed that it was before. The figures of a charge that needs
	// nothing more are those of its first admission, as those of a Take that is replayed.
	Decision Decision
	// Charged is what is charged in all, for each of the charges: also if it was refused.
	Charged []Cost
}

// Once names a request of the caller's, such as an order or a job. The store
// remembers what it has admitted under the id for life, DefaultLife if zero, on
// each key it was charged to, and there only; what was reserved, for so long after
// its start. An id is at most 255 bytes of UTF-8 without NUL.
//
// It costs the store a row for each charge, and a request with an id is never
// answered without the store.
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
	q := question{
		observed: VerbTake, verb: law.Take, limits: takenOnly, credits: Cost.charged, lasting: true, prepare: o.id.set,
		read: func(_ context.Context, r *request) (Decision, error) {
			if err := r.startsLater(); err != nil {
				return Decision{}, err
			}
			return r.decision(), nil
		},
	}
	return o.l.call(ctx, &q, charges)
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
	q := question{
		observed: VerbExtend, verb: law.Extend, limits: takenOnly, credits: Cost.charged, lasting: true,
		prepare: o.id.set,
		read: func(_ context.Context, r *request) (Decision, error) {
			e.Charged = make([]Cost, len(r.ops))
			for i := range r.outs {
				out := &r.outs[i]
				e.Charged[i] = costOf(out.Granted, &r.ops[i].Params, false)
				// From here on it is as one that takes what was to be charged in addition.
				r.ops[i].Cost = max(0, r.ops[i].Cost-out.Granted)
				if out.Granted = 0; out.RetryAt == 0 {
					out.Granted = r.ops[i].Count
				}
			}
			e.Decision = r.decision()
			return e.Decision, nil
		},
	}
	_, err = o.l.call(ctx, &q, charges)
	return e, err
}

// Settle implements Once.
func (o onceRequest) Settle(ctx context.Context, charges ...Charge) (corrected []Cost, err error) {
	return o.settle(ctx, charges, func(op *law.Op) int64 { return op.Cost })
}

// Cancel implements Once.
func (o onceRequest) Cancel(ctx context.Context, charges ...Charge) (returned []Cost, err error) {
	none := make([]Charge, len(charges))
	for i, c := range charges {
		none[i] = Charge{Limit: c.Limit, Key: c.Key, Cost: nothing}
	}
	return o.settle(ctx, none, func(*law.Op) int64 { return law.Cancelled })
}

func (o onceRequest) settle(ctx context.Context, charges []Charge, actual func(*law.Op) int64) (
	corrected []Cost, err error,
) {
	q := question{
		verb: law.Settle, credits: Cost.actual, lasting: true,
		prepare: func(r *request) error {
			for i := range r.ops {
				r.ops[i] = settleOp(&r.ops[i], o.id.id, actual(&r.ops[i]))
			}
			return nil
		},
		read: func(_ context.Context, r *request) (Decision, error) {
			corrected = o.l.corrected(r)
			return Decision{}, nil
		},
	}
	_, err = o.l.call(ctx, &q, charges)
	return corrected, err
}
