package headgate

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/headgate/headgate/law"
)

// ErrSettled: the reservation was settled or cancelled before. Nothing changed.
var ErrSettled = errors.New("the reservation is settled")

// Reservation is leave to start at a time that may lie ahead. It is charged from
// the moment it is made, whether its holder ever starts or not: the work may have
// been done. It is safe for concurrent use.
type Reservation struct {
	// Decision tells whether it was made; of one that was not, when another
	// attempt with the same wait could be.
	Decision Decision
	// StartAt is when the holder may start, by the store's clock.
	StartAt time.Time

	l     *Limiter
	cal   *calendar
	op    law.Op
	out   law.Outcome
	start time.Time // by this machine's clock, from when the answer came

	mu    sync.Mutex
	ended bool // settled or cancelled
}

// Reserve takes a charge now for a start at most wait from now. With
// token-bucket, leaky-bucket and gcra each reservation has its own start, first
// come first served, whoever asks; under the other limits it starts at once or
// is not made. (So it is too for costs close to the capacity where tokens come
// in coarse steps, as [Limit.Explain] tells.) A context that ends later does not
// end the reservation.
func (l *Limiter) Reserve(ctx context.Context, wait time.Duration, c Charge) (*Reservation, error) {
	if wait < 0 {
		return nil, invalid("wait", "%s is negative", wait)
	}
	charges := []Charge{c}
	if err := takeable(charges); err != nil {
		return nil, err
	}
	if c.Limit.IsZero() {
		return nil, invalid("limit", "is missing")
	}
	r := &Reservation{l: l, cal: c.Limit.r.calendar}
	ops, outs := make([]law.Op, 1), make([]law.Outcome, 1)
	if err := l.compile(ops, law.Take, 1, charges); err != nil {
		return nil, err
	}
	if wait > 0 && c.queues() {
		ops[0].Late, ops[0].Ceiling = true, ops[0].Params.Ceiling(wait.Microseconds())
	}
	if err := l.apply(ctx, ops, outs, calendars(nil, 0, charges)); err != nil {
		return nil, err
	}
	if err := outs[0].Err; err != nil {
		return nil, err
	}
	r.start = time.Now() //nolint:forbidigo // the delay counts from the receipt of the answer
	r.op, r.out = ops[0], outs[0]
	r.Decision = decide(ops, outs)
	if r.Decision.Allowed {
		at := max(r.out.StartAt, r.out.Clock)
		r.StartAt = time.UnixMicro(at).UTC()
		r.start = r.start.Add(micros(at - r.out.Clock))
	}
	return r, nil
}

// queues reports whether a reservation of the charge can start later.
func (c Charge) queues() bool {
	switch c.Limit.Algorithm().(type) {
	case TokenBucket, LeakyBucket, GCRA:
		return true
	}
	return false
}

// Delay is how long it still is until the start: 0 once it may begin, Never if
// the reservation was not made.
func (r *Reservation) Delay() time.Duration {
	if !r.Decision.Allowed {
		return Never
	}
	return max(0, time.Until(r.start))
}

// Sleep waits for the start. If the context ends before it, the reservation is
// cancelled, and the context's error returned.
func (r *Reservation) Sleep(ctx context.Context) error {
	if err := sleep(ctx, r.Delay()); err != nil {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelWithin)
		defer cancel()
		_, _ = r.Cancel(within) // else it stays charged
		return err
	}
	return nil
}

// cancelWithin is how long the store may take to take back a reservation whose
// holder is gone.
const cancelWithin = 5 * time.Second

// Cancel gives back what was not used, and returns how much that was: as much
// as the return rule allows, which may be little while others stand in line
// behind it. A second one returns ErrSettled.
func (r *Reservation) Cancel(ctx context.Context) (Cost, error) {
	return r.settle(ctx, 0)
}

// Settle corrects the cost to what it was in the end, and returns by how much:
// less is given back as by Cancel, more is charged whatever the level, and so
// may exceed the capacity. Of a window that is over nothing is given back. Here
// the zero Cost is none at all. A second one returns ErrSettled.
func (r *Reservation) Settle(ctx context.Context, actual Cost) (corrected Cost, err error) {
	if actual.IsZero() {
		return r.settle(ctx, 0)
	}
	credits, err := actual.credits(r.op.Params.Unit)
	if err != nil {
		return Cost{}, err
	}
	return r.settle(ctx, credits)
}

func (r *Reservation) settle(ctx context.Context, actual int64) (corrected Cost, err error) {
	if !r.Decision.Allowed {
		return Cost{}, invalid("reservation", "was not made")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return Cost{}, ErrSettled
	}
	op := r.op
	switch {
	case actual == r.op.Cost:
		r.ended = true
		return Cost{}, nil
	case actual < r.op.Cost:
		op = law.Back(&r.op, &r.out, r.op.Cost-actual)
	default:
		op.Cost, op.Ceiling = actual-r.op.Cost, law.Max
		if op.Params.Kind == law.Window {
			op.Ceiling = maxWindowCeiling
		}
	}
	ops, outs := []law.Op{op}, make([]law.Outcome, 1)
	if err := r.l.apply(ctx, ops, outs, []*calendar{r.cal}); err != nil {
		return Cost{}, err
	}
	if err := outs[0].Err; err != nil {
		return Cost{}, err
	}
	r.ended = true
	credits := outs[0].Granted
	if op.Verb == law.Take {
		credits *= op.Cost
	}
	return costOf(credits, op.Params.Unit, false), nil
}

// maxWindowCeiling is the largest level of the window law.
const maxWindowCeiling = 1<<32 - 1
