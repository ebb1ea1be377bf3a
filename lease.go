package headgate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

var (
	// ErrLeaseLost: the lease has ended, since it could not be renewed in time or
	// its key was reset. Others may hold it now.
	ErrLeaseLost = errors.New("the lease is lost")
	// ErrReleased: the lease was released, or detached, before.
	ErrReleased = errors.New("the lease is released already")
)

// Lease is leave to go on until it is released. It is renewed in the background
// for as long, three times within its time to live; a renewal that is not answered
// within a third of that is asked again. A lease has a goroutine, and another while the
// store is asked. It is safe for concurrent use.
type Lease struct {
	// Decision says whether it was acquired; of one that was not, after how long
	// a lease ends if nobody renews it.
	Decision Decision

	by   Leaser
	held []LeaseToken
	ttl  time.Duration
	stop chan struct{} // closed when it is released
	lost chan struct{} // closed when it is lost

	mu  sync.Mutex
	err error // why it is not held any more

	releasing sync.Mutex
	asked     bool // the store may have been, to release it
	released  bool // the store said so, or it was handed over
}

// Acquire takes charges, all or none, of which at least one is of a concurrency
// limit: that one is held until it is released, or the holder is gone for the
// limit's time to live. The others are taken as by [Limiter.Take], and stay taken.
// The context is that of the question, not of the lease. It does not wait; Await
// and WithLease do.
func (l *Limiter) Acquire(ctx context.Context, charges ...Charge) (*Lease, error) {
	return l.tryAcquire(ctx, charges, false)
}

func (l *Limiter) tryAcquire(ctx context.Context, charges []Charge, waits bool) (lease *Lease, err error) {
	var asked time.Time
	q := question{observed: VerbAcquire, verb: law.Take, credits: Cost.charged, lasting: true}
	q.prepare = func(r *request) error {
		if waits {
			r.unblock()
		}
		if !slices.ContainsFunc(r.limits, Limit.Concurrency) {
			return Invalid("limit", "none of the charges is of a concurrency limit")
		}
		asked = sched.Now()
		return nil
	}
	q.read = func(_ context.Context, r *request) (d Decision, err error) {
		var held []LeaseToken
		ttl := Never
		for i := range r.ops {
			if op := &r.ops[i]; op.Params.Leased {
				held = append(held, LeaseToken{r.limits[i], op.Cell.Key, r.outs[i].EntryNumber})
				ttl = min(ttl, time.Duration(op.Params.Step)*time.Microsecond)
			}
		}
		d = r.decision()
		lease, err = NewLease(l, d, held, ttl, asked)
		return d, err
	}
	_, err = l.call(ctx, &q, charges)
	return lease, err
}

// NewLease returns the lease of what by has acquired, as d says, and renews it there in the
// background; of one that was refused there is nothing to hold. It lasts for ttl from when
// by was asked: ErrLeaseLost, if that is over. It is for implementations of Leaser.
func NewLease(by Leaser, d Decision, held []LeaseToken, ttl time.Duration, asked time.Time) (*Lease, error) {
	lease := &Lease{Decision: d, by: by, stop: make(chan struct{}), lost: make(chan struct{})}
	if !d.Allowed {
		return lease, nil
	}
	lease.held, lease.ttl = held, ttl
	if took := sched.Since(asked); took >= ttl {
		return nil, fmt.Errorf("%w: the store took %s to answer", ErrLeaseLost, took)
	}
	sched.Go(func() { lease.renewUntilEnd(asked) })
	return lease, nil
}

// renewUntilEnd renews the lease until it is released or lost. It lasts for its time to live
// from when the last question was asked that was answered, whatever becomes of those
// under way.
func (l *Lease) renewUntilEnd(asked time.Time) {
	end, next := asked.Add(l.ttl), asked.Add(l.ttl/3)
	var q *renewal // under way
	for {
		until, answered := end, (<-chan struct{})(nil)
		if q != nil {
			answered = q.answered
		} else if next.Before(end) {
			until = next
		}
		switch sched.Wait(max(0, sched.Until(until)), l.stop, answered, nil) {
		case 0:
			return
		case 1:
			switch {
			case q.err == nil:
				end, next = q.asked.Add(l.ttl), q.asked.Add(l.ttl/3)
			case errors.Is(q.err, ErrLeaseLost):
				l.end(q.err)
				return
			default: // the store is away, or silent
				next = q.asked.Add(l.ttl / 3)
				if soon := sched.Now().Add(l.ttl / 10); !errors.Is(q.err, context.DeadlineExceeded) {
					next = soon
				}
			}
			q = nil
		default:
			if sched.Until(end) <= 0 {
				l.end(ErrLeaseLost)
				return
			}
			q = l.renew()
		}
	}
}

// renewal is a call of the store, to renew a lease.
type renewal struct {
	asked    time.Time
	answered chan struct{} // closed when err is known
	err      error
}

// renew asks to renew the lease, for a third of its time to live, so that there is time
// to ask again.
func (l *Lease) renew() *renewal {
	q := &renewal{asked: sched.Now(), answered: make(chan struct{})}
	ctx, cancel := sched.WithTimeout(context.Background(), l.ttl/3)
	sched.Go(func() {
		defer close(q.answered)
		defer cancel()
		q.err = l.by.Renew(ctx, l.held...)
	})
	return q
}

// end notes why the lease is not held any more, and reports whether it was.
func (l *Lease) end(why error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return false
	}
	if l.err = why; errors.Is(why, ErrLeaseLost) {
		close(l.lost)
	} else {
		close(l.stop)
	}
	return true
}

// Lost returns a channel that is closed when the lease is lost: what it protected must stop.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Err returns nil while the lease is held, then ErrReleased or ErrLeaseLost.
func (l *Lease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Release lets others have what was held. It returns ErrLeaseLost if that could
// have happened before, and the second time what [Lease.Err] says. If the store cannot
// be asked, it can be tried again, one at a time; else the lease ends after its time
// to live.
func (l *Lease) Release(ctx context.Context) error {
	if !l.Decision.Allowed {
		return Invalid("lease", "was not acquired")
	}
	if err := ctx.Err(); err != nil {
		return err // it is still held
	}
	l.releasing.Lock()
	defer l.releasing.Unlock()
	if l.released {
		return l.Err()
	}
	l.end(ErrReleased)
	err := l.by.Release(ctx, l.held...)
	gone := errors.Is(err, ErrLeaseLost)
	before := l.asked
	l.asked, l.released = l.asked || err != nil && !store.NothingDone(err), err == nil || gone
	switch lost := errors.Is(l.Err(), ErrLeaseLost); {
	case lost && !gone:
		return errors.Join(ErrLeaseLost, err)
	case gone && !lost && before: // by the question before, or since
		return nil
	}
	return err
}

// Detach hands the lease over: it is not renewed here any more, and can be renewed
// and released in any process, with [Limiter.Renew] and [Limiter.Release]. It
// returns nil if the lease is not held.
func (l *Lease) Detach() []LeaseToken {
	l.releasing.Lock()
	defer l.releasing.Unlock()
	if !l.Decision.Allowed || !l.end(ErrReleased) {
		return nil
	}
	l.released = true
	return l.held
}

// LeaseToken identifies one charge of a lease in any process.
type LeaseToken struct {
	Limit  Limit // of concurrency
	Key    string
	Number int64 // of the entry in the log; Decision.Entry of the lease, if it has one charge
}

// Renew extends leases that were detached by their limit's time to live, counted from
// now; it makes none shorter. A token with the limit that was acquired has the time to live of
// that limit, also after an override has ended. One with a name alone has that of the limit
// as it is now. It returns ErrLeaseLost if one of them is no longer held. Leases that were not
// detached are renewed by the Limiter that acquired them.
func (l *Limiter) Renew(ctx context.Context, held ...LeaseToken) error {
	return l.forEach(ctx, law.Renew, 1, held)
}

// Release ends leases that were detached; for others see [Lease.Release]. It returns
// ErrLeaseLost if one of them was no longer held.
func (l *Limiter) Release(ctx context.Context, held ...LeaseToken) error {
	err := l.forEach(ctx, law.Return, law.Max, held) // all that it costs
	for _, h := range held {
		l.queues.wake(law.Cell{Limit: h.Limit.Name(), Key: h.Key})
	}
	return err
}

// forEach does something with each of what is held, by itself.
func (l *Limiter) forEach(ctx context.Context, verb law.Verb, credits int64, tokens []LeaseToken) error {
	if len(tokens) == 0 {
		return Invalid("held", "there is none")
	}
	charges := make([]Charge, len(tokens))
	for i, t := range tokens {
		charges[i] = Charge{Limit: t.Limit.forever(), Key: t.Key}
	}
	q := question{verb: verb, limits: heldOnly, credits: Cost.charged, lasting: true}
	q.prepare = func(r *request) error {
		for i, t := range tokens {
			if t.Number < 1 {
				return Invalid("number", "%d was never acquired", t.Number)
			}
			r.ops[i].Group, r.ops[i].Cost, r.ops[i].EntryNumber = uint32(i+1), credits, t.Number
		}
		return nil
	}
	q.read = func(_ context.Context, r *request) (d Decision, err error) {
		for i := range r.outs {
			if r.outs[i].Granted == 0 {
				return d, ErrLeaseLost
			}
		}
		return d, nil
	}
	_, err := l.call(ctx, &q, charges)
	return err
}

// WithLease waits for a lease (see [Limiter.Await]), does the action, and releases it.
// The action's context ends with the cause ErrLeaseLost when the lease is lost, and
// then WithLease's error is that too. Should the store be away when it is released, it
// ends after its time to live; that is no error of the action.
func WithLease(ctx context.Context, l Leaser, action func(context.Context) error, charges ...Charge) (err error) {
	lease, err := l.Await(ctx, charges...)
	if err != nil {
		return err
	}
	within, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	sched.Go(func() {
		if sched.Either(lease.Lost(), done) {
			cancel(ErrLeaseLost)
		}
	})
	defer func() { // also when the action panics
		close(done)
		cancel(nil)
		ctx, end := sched.WithTimeout(context.WithoutCancel(ctx), cancelWithin)
		defer end()
		if failed := lease.Release(ctx); errors.Is(failed, ErrLeaseLost) {
			err = errors.Join(err, failed)
		}
	}()
	return action(within)
}
