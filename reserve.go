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

// Reservation is leave to start at a time that may lie ahead. It is charged from
// the moment it is made, whether its holder ever starts or not: the work may have
// been done. It is safe for concurrent use.
type Reservation struct {
	// Decision says whether it was made; of one that was not, when another
	// attempt with the same wait could be.
	Decision Decision
	// StartAt is when the holder may start, by the store's clock.
	StartAt time.Time
	// Refundable says that all limits are [Limit.Refundable], as they are for these keys.
	Refundable bool

	start   time.Time // by this machine's clock, from when the answer came
	blocked bool      // not made, since a key is blocked
	charges int
	settler settler
}

// settler settles the charges of a reservation, or cancels them if actual is nil.
type settler func(ctx context.Context, actual []Cost) (corrected []Cost, err error)

// NewReservation returns a reservation of n charges that another Reserver than a Limiter
// has made: for a start after delay, or refused, as d says. settle settles the charges at
// their actual costs, or cancels them if actual is nil; it is asked only for one that was
// made, and decides what a second time means.
func NewReservation(d Decision, startAt time.Time, delay time.Duration, n int,
	settle func(ctx context.Context, actual []Cost) (corrected []Cost, err error),
) *Reservation {
	return &Reservation{
		Decision: d, StartAt: startAt,
		start: sched.Now().Add(delay), charges: n, settler: settle,
	}
}

// Reserve takes charges now, all or none, for a start at most wait from now. With
// token-bucket, leaky-bucket and gcra each reservation has its own start, first
// come first served, among all callers; of several limits it is the latest of theirs,
// and all count from there. If any other limit is among them, or a charge keeps
// headroom, they start at once or are not made. A context that ends later does not end the reservation. One that
// is ready to wait does not block a key whose limit blocks who is refused.
//
// ErrUnsupported, with nothing charged: the keys of charges that can start later lie in
// several slots of a Redis Cluster. Config.Slot of the driver brings them together, and
// Wait does without.
func (l *Limiter) Reserve(ctx context.Context, wait time.Duration, charges ...Charge) (*Reservation, error) {
	return l.reserveWithID(ctx, wait, charges, nil)
}

func (l *Limiter) reserveWithID(ctx context.Context, wait time.Duration, charges []Charge, id *requestID) (
	r *Reservation, err error,
) {
	q := question{observed: VerbReserve, verb: law.Take, limits: takenOnly, credits: Cost.charged, lasting: true}
	q.prepare = func(r *request) error {
		if wait < 0 {
			return Invalid("wait", "%s is negative", wait)
		}
		if wait > 0 && r.canStartLater() {
			for i := range r.ops {
				op := &r.ops[i]
				op.Deferred, op.Ceiling = true, op.Params.Ceiling(wait.Microseconds())
			}
		}
		if wait > 0 {
			r.unblock()
		}
		if id != nil {
			return id.set(r)
		}
		return nil
	}
	q.read = func(_ context.Context, answered *request) (Decision, error) {
		r = l.reservation(answered)
		return r.Decision, nil
	}
	_, err = l.call(ctx, &q, charges)
	return r, err
}

// reservation returns what the answer to a request to reserve means.
func (l *Limiter) reservation(answered *request) *Reservation {
	by := &reserved{l: l, request: answered.clone()}
	r := &Reservation{
		Decision: by.decision(), Refundable: true, start: sched.Now(), charges: len(by.ops), settler: by.settle,
	}
	var start, delay int64
	for i := range by.outs {
		// A cell that is ahead of a clock that was set back decides by its own time, and
		// means its start by that.
		out := &by.outs[i]
		decided := by.ops[i].DecidedAt(out)
		starts := cmp.Or(out.StartAt, decided)
		start, delay = max(start, starts), max(delay, starts-decided)
		r.blocked = r.blocked || out.State.BlockedUntil > max(out.Clock, out.State.At)
		r.Refundable = r.Refundable && by.limits[i].Refundable()
	}
	if r.Decision.Allowed {
		r.StartAt = time.UnixMicro(start).UTC()
		r.start = r.start.Add(time.Duration(delay) * time.Microsecond)
	}
	return r
}

// canStartLater reports whether a reservation of the charges can start later. One that leaves headroom cannot:
// the ceiling of its ops is what keeps the headroom free, and cannot say for how long it waits too.
func (r *request) canStartLater() bool {
	for i := range r.ops {
		if !r.limits[i].Queues() || r.ops[i].Ceiling != 0 {
			return false
		}
	}
	return true
}

// Delay returns how long it still is until the start: 0 once it may begin, Never if the reservation was not made.
func (r *Reservation) Delay() time.Duration {
	if !r.Decision.Allowed {
		return Never
	}
	return max(0, sched.Until(r.start))
}

// Sleep waits for the start. If the context ends before it, the reservation is
// cancelled, and the context's error returned. Of one that was not made it returns
// a [DeniedError].
func (r *Reservation) Sleep(ctx context.Context) error {
	if !r.Decision.Allowed {
		return &DeniedError{r.Decision}
	}
	if err := pause.Sleep(ctx, r.Delay()); err != nil {
		within, cancel := sched.WithTimeout(context.WithoutCancel(ctx), cancelWithin)
		defer cancel()
		_, _ = r.Cancel(within) // else it stays charged
		return err
	}
	return nil
}

// cancelWithin is how long the store may take to take back a reservation whose
// holder is gone.
const cancelWithin = 5 * time.Second

// Cancel gives back what was not used, and returns how much that was of each
// charge: as much as the return rule allows, which may be little while others
// stand in line behind it. One that was settled returns ErrSettled. Of one with an id
// the id may be admitted again, see [Once.Cancel].
func (r *Reservation) Cancel(ctx context.Context) (returned []Cost, err error) {
	if !r.Decision.Allowed {
		return nil, errNotMade
	}
	return r.settler(ctx, nil)
}

var errNotMade = Invalid("reservation", "was not made")

// Settle corrects the costs of all charges, in their order, to what they were in
// the end, and returns by how much it did: less is given back as by Cancel, more
// is charged whatever the level, and so may exceed the capacity. Units(0) is nothing
// at all: as an actual cost, and corrected by nothing, as for a window that is over.
// The zero Cost is refused.
//
// It is done once: the next returns ErrSettled. After an error it can be tried
// again, for those charges that the store has not settled; one of which that is not
// known stays as it is. A reservation with an id ([Limiter.Once]) can be settled at
// the same costs as often as one likes. If its limit is changed, or its key reset, before
// it is settled without an id, it should not be: what a reset has given back already would
// be given back again.
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

// reserved is a reservation of a Limiter.
type reserved struct {
	request
	l *Limiter

	mu    sync.Mutex
	ended []bool // for each charge: it was settled or cancelled, or may have been
}

// settle returns the settler of a Limiter.
func (r *reserved) settle(ctx context.Context, actual []Cost) (corrected []Cost, err error) {
	credits := slices.Repeat([]int64{law.Cancelled}, len(r.ops))
	for i, c := range actual {
		if credits[i], err = c.actual(&r.ops[i].Params); err != nil {
			return nil, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ops[0].ID != "" {
		return r.settleInStore(ctx, credits)
	}
	if r.ended == nil {
		r.ended = make([]bool, len(r.ops))
	}
	if !slices.Contains(r.ended, false) {
		return nil, ErrSettled
	}
	return r.settleHere(ctx, credits)
}

// settleInStore settles charges with an id, of which the store knows whether they were settled.
func (r *reserved) settleInStore(ctx context.Context, actual []int64) (corrected []Cost, err error) {
	q := newRequest(len(r.ops))
	copy(q.limits, r.limits)
	for i := range r.ops {
		q.ops[i] = settleOp(&r.ops[i], r.ops[i].ID, actual[i])
		q.ops[i].Group = uint32(i + 1) // a key that was reset keeps nobody from settling the others
	}
	if err := r.l.decide(ctx, q); err != nil {
		return nil, err
	}
	return r.l.corrected(q), nil
}

// settleHere settles those charges that were not settled before, by what their
// outcomes said.
func (r *reserved) settleHere(ctx context.Context, actual []int64) (corrected []Cost, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err // it can still be settled
	}
	q := &request{}
	var index []int
	for i := range r.ops {
		unused := r.ops[i].Cost - max(actual[i], 0) // law.Cancelled costs nothing
		switch {
		case r.ended[i]:
		case unused == 0:
			r.ended[i] = true
		default:
			back := law.Back(&r.ops[i], &r.outs[i], unused)
			back.Group = uint32(i + 1)
			q.ops, q.outs = append(q.ops, back), append(q.outs, law.Outcome{})
			q.limits, index = append(q.limits, r.limits[i]), append(index, i)
		}
	}
	corrected = slices.Repeat([]Cost{nothing}, len(r.ops))
	if len(q.ops) > 0 {
		err = r.l.decide(ctx, q)
	}
	for k, i := range index {
		// To give back twice would let too much pass.
		out := &q.outs[k]
		known := out.Clock > 0
		if r.ended[i] = known || !store.NothingDone(cmp.Or(out.Err, err)); known {
			corrected[i] = correction(&q.ops[k], out)
			r.l.queues.wake(q.ops[k].Cell)
		}
	}
	if err != nil {
		return nil, err
	}
	return corrected, nil
}

// corrected returns by how much the costs of charges were corrected, and wakes those who wait for what was given back.
func (l *Limiter) corrected(r *request) []Cost {
	list := make([]Cost, len(r.ops))
	for i := range r.ops {
		list[i] = correction(&r.ops[i], &r.outs[i])
		l.queues.wake(r.ops[i].Cell)
	}
	return list
}

// correction returns by how much a cost was corrected, up or down.
func correction(op *law.Op, out *law.Outcome) Cost {
	if out.Granted == 0 {
		return nothing
	}
	return costOf(max(out.Granted, -out.Granted), &op.Params, false)
}
