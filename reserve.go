package headgate

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/pause"
	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// Reservation holds charges whose start may lie ahead. They are charged when it is made, whether its holder starts or
// not, since the work may have been done. It is safe for concurrent use.
type Reservation struct {
	// Decision says whether the reservation was made. If it was refused, RetryAfter is when another attempt with the
	// same wait can succeed.
	Decision Decision
	// StartAt is when the holder may start, by the store's clock; zero if the reservation was refused.
	StartAt time.Time
	// Refundable says that all limits of the charges are [Limit.Refundable].
	Refundable bool

	start   time.Time // when the holder may start, by this machine's clock
	blocked bool      // a key was blocked at the decision
	charges int       // the number of charges
	settler settler
}

// settler settles the charges of a reservation, or cancels them if actual is nil.
type settler func(ctx context.Context, actual []Cost) (corrected []Cost, err error)

// NewReservation returns a reservation of n charges with the decision d and, if it was admitted, a start after delay.
// It is for implementations of Reserver. settle settles the charges at their actual costs, or cancels them if actual is
// nil; it is called only for an admitted reservation, and decides what a second call does.
func NewReservation(d Decision, startAt time.Time, delay time.Duration, n int,
	settle func(ctx context.Context, actual []Cost) (corrected []Cost, err error),
) *Reservation {
	return &Reservation{
		Decision: d, StartAt: startAt,
		start: sched.Now().Add(delay), charges: n, settler: settle,
	}
}

// Reserve takes charges now, all or none, for a start at most wait from now. With token-bucket, leaky-bucket and gcra
// each reservation has its own start, first come, first served, among all callers; several charges start together, at
// the latest of their starts, and count from there. If a charge has any other limit or keeps headroom, the reservation
// starts at once or is refused. The end of ctx does not end the reservation. With a wait above 0, a refusal does not
// block a key.
//
// Reserve returns ErrUnsupported, with nothing charged, if charges that can start later have keys in several slots of a
// Redis Cluster. Config.Slot of the driver puts the keys into one slot, and Wait works without that.
func (l *Limiter) Reserve(ctx context.Context, wait time.Duration, charges ...Charge) (*Reservation, error) {
	return l.reserveWithID(ctx, wait, charges, nil)
}

// reserveWithID reserves charges, under an id unless it is nil.
func (l *Limiter) reserveWithID(ctx context.Context, wait time.Duration, charges []Charge, id *requestID) (
	r *Reservation, err error,
) {
	spec := verbSpec{reportAs: VerbReserve, verb: law.Take, limits: notConcurrency, fullTimeout: true}
	spec.toCredits = Cost.chargeCredits
	spec.prepare = func(r *request) error {
		switch {
		case wait < 0:
			return Invalid("wait", "%s is negative", wait)
		case r.ops[0].Alternative > 0: // a cancellation would give back what was not charged
			return Invalid("alternative", "is set; alternatives are taken, not reserved")
		}
		if wait > 0 && r.canStartLater() {
			for i := range r.ops {
				op := &r.ops[i]
				op.Deferred, op.Ceiling = true, op.Params.Ceiling(wait.Microseconds())
			}
		}
		if wait > 0 {
			r.dropBlocks()
		}
		if id != nil {
			return id.set(r)
		}
		return nil
	}
	spec.read = func(_ context.Context, req *request) (Decision, error) {
		r = l.reservation(req)
		return r.Decision, nil
	}
	_, err = l.call(ctx, &spec, charges)
	return r, err
}

// reservation makes a Reservation of a request to reserve that the store has answered.
func (l *Limiter) reservation(req *request) *Reservation {
	state := &limiterReservation{l: l, request: req.clone()}
	r := &Reservation{
		Decision: state.decision(), Refundable: true,
		start: sched.Now(), charges: len(state.ops), settler: state.settle,
	}
	var start, delay int64
	for i := range state.outs {
		// If the clock was set back, a cell can be ahead of it. Its decision and its start are by the cell's time.
		out := &state.outs[i]
		decidedAt := state.ops[i].DecidedAt(out)
		startAt := cmp.Or(out.StartAt, decidedAt)
		start, delay = max(start, startAt), max(delay, startAt-decidedAt)
		r.blocked = r.blocked || out.State.BlockedUntil > max(out.Clock, out.State.At)
		r.Refundable = r.Refundable && state.limits[i].Refundable()
	}
	if r.Decision.Allowed {
		r.StartAt = time.UnixMicro(start).UTC()
		r.start = r.start.Add(time.Duration(delay) * time.Microsecond)
	}
	return r
}

// canStartLater reports whether a reservation of the charges can start later. Charges that keep headroom cannot: the
// ceiling of an op can say either how much headroom to keep or how long to wait.
func (r *request) canStartLater() bool {
	for i := range r.ops {
		if !r.limits[i].Queues() || r.ops[i].Ceiling != 0 {
			return false
		}
	}
	return true
}

// Delay returns the time until the start: 0 once the holder may start, Never if the reservation was refused.
func (r *Reservation) Delay() time.Duration {
	if !r.Decision.Allowed {
		return Never
	}
	return max(0, sched.Until(r.start))
}

// Sleep waits for the start. If the context ends before the start, Sleep cancels the reservation and returns the
// context's error. If the reservation was refused, it returns a [DeniedError].
func (r *Reservation) Sleep(ctx context.Context) error {
	if !r.Decision.Allowed {
		return &DeniedError{r.Decision}
	}
	if err := pause.Sleep(ctx, r.Delay()); err != nil {
		cancelCtx, cancel := sched.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
		defer cancel()
		_, _ = r.Cancel(cancelCtx) // after an error the reservation stays charged
		return err
	}
	return nil
}

// cancelTimeout is how long the store may take to cancel a reservation after the caller's context has ended, or to
// release the lease of WithLease.
const cancelTimeout = 5 * time.Second

// Cancel gives back the charges as far as possible, and returns how much it gave back of each. That can be little while
// other reservations wait behind this one. After a settlement it returns ErrSettled. If the reservation has an id, the
// id may be admitted again, see [Once.Cancel].
func (r *Reservation) Cancel(ctx context.Context) (returned []Cost, err error) {
	if !r.Decision.Allowed {
		return nil, errNotMade
	}
	return r.settler(ctx, nil)
}

var errNotMade = Invalid("reservation", "was not made")

// Settle corrects the costs of all charges, in their order, to the actual costs, and returns by how much it corrected
// each. An unused cost is given back as by Cancel; an additional cost is charged whatever the level, and so may exceed
// the capacity. An actual cost of Units(0) means that nothing was used, and a result of Units(0) that nothing was
// corrected, as for a window that has ended. The zero Cost is an error.
//
// A second Settle returns ErrSettled. After an error, Settle can be tried again: it settles the charges that the store
// has not settled, and skips those for which the outcome is unknown. A reservation with an id ([Limiter.Once]) can be
// settled at the same costs any number of times. Do not settle a reservation without an id after its limit was changed
// or its key reset: it would give back again what the reset has given back.
func (r *Reservation) Settle(ctx context.Context, actual ...Cost) (corrected []Cost, err error) {
	for _, c := range actual {
		if c.IsZero() {
			return nil, Invalid("actual", "is missing; Units(0) is nothing at all")
		}
	}
	switch {
	case !r.Decision.Allowed:
		return nil, errNotMade
	case len(actual) != r.charges:
		return nil, Invalid("actual", "%d costs for %d charges", len(actual), r.charges)
	}
	return r.settler(ctx, actual)
}

// limiterReservation is the state of a reservation that a Limiter has made, from which it settles the charges.
type limiterReservation struct {
	request
	l *Limiter

	mu    sync.Mutex
	ended []bool // for each charge: it was or may have been settled or cancelled
}

// settle is the settler of the reservation.
func (r *limiterReservation) settle(ctx context.Context, actual []Cost) (corrected []Cost, err error) {
	credits := slices.Repeat([]int64{law.Cancelled}, len(r.ops))
	for i, c := range actual {
		if credits[i], err = c.actualCredits(&r.ops[i].Params); err != nil {
			return nil, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ops[0].ID != "" {
		return r.settleByID(ctx, credits)
	}
	if r.ended == nil {
		r.ended = make([]bool, len(r.ops))
	}
	if !slices.Contains(r.ended, false) {
		return nil, ErrSettled
	}
	return r.settleByOutcomes(ctx, credits)
}

// settleByID settles charges with an id. The store knows which of them were settled before.
func (r *limiterReservation) settleByID(ctx context.Context, actual []int64) (corrected []Cost, err error) {
	settlement := newRequest(len(r.ops))
	copy(settlement.limits, r.limits)
	for i := range r.ops {
		settlement.ops[i] = settleOp(&r.ops[i], r.ops[i].ID, actual[i])
		settlement.ops[i].Group = uint32(i + 1) // so that a key that was reset does not fail the other settlements
	}
	if err := r.l.decide(ctx, settlement); err != nil {
		return nil, err
	}
	return r.l.corrections(settlement), nil
}

// settleByOutcomes settles charges without an id, by their outcomes, unless they were settled before.
func (r *limiterReservation) settleByOutcomes(ctx context.Context, actual []int64) (corrected []Cost, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err // the reservation can still be settled
	}
	returns := &request{}
	var indexes []int // the index of the charge for each op of returns
	for i := range r.ops {
		unused := r.ops[i].Cost - max(actual[i], 0) // law.Cancelled costs nothing
		switch {
		case r.ended[i]:
		case unused == 0:
			r.ended[i] = true
		default:
			returnOp := law.Back(&r.ops[i], &r.outs[i], unused)
			returnOp.Group = uint32(i + 1)
			returns.ops, returns.outs = append(returns.ops, returnOp), append(returns.outs, law.Outcome{})
			returns.limits, indexes = append(returns.limits, r.limits[i]), append(indexes, i)
		}
	}
	corrected = slices.Repeat([]Cost{explicitZero}, len(r.ops))
	if len(returns.ops) > 0 {
		err = r.l.decide(ctx, returns)
	}
	for k, i := range indexes {
		// A charge that may have been returned has ended too: to return it twice would let too much pass.
		op, out := &returns.ops[k], &returns.outs[k]
		known := out.Clock > 0
		if r.ended[i] = known || !store.NothingDone(cmp.Or(out.Err, err)); known {
			corrected[i] = correction(op, out)
			r.l.queues.wake(op.Cell)
		}
	}
	if err != nil {
		return nil, err
	}
	return corrected, nil
}

// corrections returns by how much the ops of a request have corrected costs, and wakes the callers that wait for the
// cells.
func (l *Limiter) corrections(r *request) []Cost {
	list := make([]Cost, len(r.ops))
	for i := range r.ops {
		list[i] = correction(&r.ops[i], &r.outs[i])
		l.queues.wake(r.ops[i].Cell)
	}
	return list
}

// correction returns by how much an op has corrected a cost, up or down.
func correction(op *law.Op, out *law.Outcome) Cost {
	if out.Granted == 0 {
		return explicitZero
	}
	return costOf(max(out.Granted, -out.Granted), &op.Params, false)
}
