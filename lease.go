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
	// ErrLeaseLost: the lease has ended, since it was not renewed in time or its key was reset. Others may hold its
	// place now.
	ErrLeaseLost = errors.New("the lease is lost")
	// ErrReleased: the lease was released, or detached, before.
	ErrReleased = errors.New("the lease is released already")
)

// Lease is a hold on the charges of concurrency limits until it is released. Until then it renews itself in the
// background, three times within its time to live; a renewal without an answer within a third of that time is repeated.
// A lease has one goroutine, and a second one during a call to the store. It is safe for concurrent use.
type Lease struct {
	// Decision says whether the lease was acquired. If it was refused, RetryAfter is the time after which a held lease
	// ends if nobody renews it, or Never.
	Decision Decision

	leaser Leaser
	tokens []LeaseToken
	ttl    time.Duration
	stop   chan struct{} // closed when the lease is released or detached
	lost   chan struct{} // closed when the lease is lost

	mu  sync.Mutex
	err error // why the lease has ended; nil while it is held, and if it was refused

	releasing   sync.Mutex // held during Release and Detach
	releaseSent bool       // an earlier Release may have reached the store
	released    bool       // the store has released the lease, or it was detached
}

// Acquire takes charges, all or none. At least one must be of a concurrency limit: it is held until the lease is
// released, or until the holder has not renewed it for the limit's time to live. The other charges are taken as by
// [Limiter.Take], and stay taken. ctx bounds this call, not the lease. Acquire does not wait; Await and WithLease do.
func (l *Limiter) Acquire(ctx context.Context, charges ...Charge) (*Lease, error) {
	return l.tryAcquire(ctx, charges, false)
}

// tryAcquire makes one attempt to acquire charges. A refusal does not block a key if the caller waits.
func (l *Limiter) tryAcquire(ctx context.Context, charges []Charge, waits bool) (lease *Lease, err error) {
	var sentAt time.Time
	spec := verbSpec{reportAs: VerbAcquire, verb: law.Take, toCredits: Cost.chargeCredits, fullTimeout: true}
	spec.prepare = func(r *request) error {
		if waits {
			r.dropBlocks()
		}
		if !slices.ContainsFunc(r.limits, Limit.Concurrency) {
			return Invalid("limit", "none of the charges is of a concurrency limit")
		}
		sentAt = sched.Now()
		return nil
	}
	spec.read = func(_ context.Context, r *request) (d Decision, err error) {
		var tokens []LeaseToken
		ttl := Never
		for i := range r.ops {
			if op := &r.ops[i]; op.Params.Leased {
				tokens = append(tokens, LeaseToken{r.limits[i], op.Cell.Key, r.outs[i].EntryNumber})
				ttl = min(ttl, time.Duration(op.Params.Step)*time.Microsecond)
			}
		}
		d = r.decision()
		lease, err = NewLease(l, d, tokens, ttl, sentAt)
		return d, err
	}
	_, err = l.call(ctx, &spec, charges)
	return lease, err
}

// NewLease returns a lease of the charges that leaser has acquired by the decision d, and renews it with leaser in the
// background. If d is a refusal, the lease holds nothing. The lease lasts for ttl from sentAt, when the request was
// sent; if that is over, NewLease returns ErrLeaseLost. It is for implementations of Leaser.
func NewLease(leaser Leaser, d Decision, tokens []LeaseToken, ttl time.Duration, sentAt time.Time) (*Lease, error) {
	lease := &Lease{Decision: d, leaser: leaser, stop: make(chan struct{}), lost: make(chan struct{})}
	if !d.Allowed {
		return lease, nil
	}
	lease.tokens, lease.ttl = tokens, ttl
	if took := sched.Since(sentAt); took >= ttl {
		return nil, fmt.Errorf("%w: the store took %s to answer", ErrLeaseLost, took)
	}
	sched.Go(func() { lease.renewUntilEnd(sentAt) })
	return lease, nil
}

// renewUntilEnd renews the lease until it is released, detached or lost. The lease lasts for its time to live from when
// the last request that succeeded was sent, whatever becomes of the renewal under way.
func (l *Lease) renewUntilEnd(sentAt time.Time) {
	expiresAt, renewAt := sentAt.Add(l.ttl), sentAt.Add(l.ttl/3)
	var current *renewal // the renewal under way, or nil
	for {
		wakeAt, answered := expiresAt, (<-chan struct{})(nil)
		if current != nil {
			answered = current.answered
		} else if renewAt.Before(expiresAt) {
			wakeAt = renewAt
		}
		switch sched.Wait(max(0, sched.Until(wakeAt)), l.stop, answered, nil) {
		case 0:
			return
		case 1:
			switch {
			case current.err == nil:
				expiresAt, renewAt = current.sentAt.Add(l.ttl), current.sentAt.Add(l.ttl/3)
			case errors.Is(current.err, ErrLeaseLost):
				l.end(current.err)
				return
			default: // a silent store is called again at once, one that is away after a tenth of the time to live
				renewAt = current.sentAt.Add(l.ttl / 3)
				if retryAt := sched.Now().Add(l.ttl / 10); !errors.Is(current.err, context.DeadlineExceeded) {
					renewAt = retryAt
				}
			}
			current = nil
		default:
			if sched.Until(expiresAt) <= 0 {
				l.end(ErrLeaseLost)
				return
			}
			current = l.renew()
		}
	}
}

// renewal is one call to renew a lease.
type renewal struct {
	sentAt   time.Time
	answered chan struct{} // closed when err is known
	err      error
}

// renew starts a renewal of the lease. It times out after a third of the time to live, so that there is time for
// another.
func (l *Lease) renew() *renewal {
	n := &renewal{sentAt: sched.Now(), answered: make(chan struct{})}
	ctx, cancel := sched.WithTimeout(context.Background(), l.ttl/3)
	sched.Go(func() {
		defer close(n.answered)
		defer cancel()
		n.err = l.leaser.Renew(ctx, l.tokens...)
	})
	return n
}

// end ends the lease because of cause. It reports whether the lease was still held.
func (l *Lease) end(cause error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return false
	}
	if l.err = cause; errors.Is(cause, ErrLeaseLost) {
		close(l.lost)
	} else {
		close(l.stop)
	}
	return true
}

// Lost returns a channel that is closed when the lease is lost: the work that it protected must stop.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Err returns nil while the lease is held, then ErrReleased or ErrLeaseLost. For a refusal it is nil.
func (l *Lease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Release ends the lease, so that others can have its place. It returns ErrLeaseLost if others could have it before.
// After a success, a second Release returns [Lease.Err]. If the store cannot be reached, Release can be tried again;
// else the lease ends after its time to live.
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
	err := l.leaser.Release(ctx, l.tokens...)
	goneInStore := errors.Is(err, ErrLeaseLost)
	sentBefore := l.releaseSent
	l.releaseSent, l.released = l.releaseSent || err != nil && !store.NothingDone(err), err == nil || goneInStore
	switch lost := errors.Is(l.Err(), ErrLeaseLost); {
	case lost && !goneInStore:
		return errors.Join(ErrLeaseLost, err)
	case goneInStore && !lost && sentBefore: // the earlier Release did it, or the lease has ended since
		return nil
	}
	return err
}

// Detach hands the lease over: this process no longer renews it, and any process can renew and release it, with
// [Limiter.Renew] and [Limiter.Release]. It returns nil if the lease is not held.
func (l *Lease) Detach() []LeaseToken {
	l.releasing.Lock()
	defer l.releasing.Unlock()
	if !l.Decision.Allowed || !l.end(ErrReleased) {
		return nil
	}
	l.released = true
	return l.tokens
}

// LeaseToken identifies one charge of a lease in any process.
type LeaseToken struct {
	Limit  Limit // a concurrency limit
	Key    string
	Number int64 // number of the entry in the log: Decision.EntryNumber of a lease of one charge
}

// Renew extends detached leases to their limit's time to live from now; it never shortens one. The time to live is that
// of the token's limit, even after an override has ended. If the token's limit is only a name, the limit that is in
// force now applies. Renew returns ErrLeaseLost if one of the leases is no longer held. A lease that is not detached
// renews itself.
func (l *Limiter) Renew(ctx context.Context, tokens ...LeaseToken) error {
	return l.applyEach(ctx, law.Renew, 1, tokens)
}

// Release ends detached leases; for others see [Lease.Release]. It returns ErrLeaseLost if one of the leases was no
// longer held.
func (l *Limiter) Release(ctx context.Context, tokens ...LeaseToken) error {
	err := l.applyEach(ctx, law.Return, law.Max, tokens) // law.Max returns all credits of the entry
	for _, t := range tokens {
		l.queues.wake(law.Cell{Limit: t.Limit.Name(), Key: t.Key})
	}
	return err
}

// applyEach applies an op of the verb to each lease, as its own request. It returns ErrLeaseLost if one is lost.
func (l *Limiter) applyEach(ctx context.Context, verb law.Verb, credits int64, tokens []LeaseToken) error {
	if len(tokens) == 0 {
		return Invalid("held", "there is none")
	}
	charges := make([]Charge, len(tokens))
	for i, t := range tokens {
		charges[i] = Charge{Limit: t.Limit.untimed(), Key: t.Key}
	}
	spec := verbSpec{verb: verb, limits: onlyConcurrency, toCredits: Cost.chargeCredits, fullTimeout: true}
	spec.prepare = func(r *request) error {
		for i, t := range tokens {
			if t.Number < 1 {
				return Invalid("number", "%d was never acquired", t.Number)
			}
			r.ops[i].Group, r.ops[i].Cost, r.ops[i].EntryNumber = uint32(i+1), credits, t.Number
		}
		return nil
	}
	spec.read = func(_ context.Context, r *request) (d Decision, err error) {
		for i := range r.outs {
			if r.outs[i].Granted == 0 {
				return d, ErrLeaseLost
			}
		}
		return d, nil
	}
	_, err := l.call(ctx, &spec, charges)
	return err
}

// WithLease waits for a lease (see [Limiter.Await]), runs the action, and releases the lease. If the lease is lost, the
// action's context ends with the cause ErrLeaseLost, and WithLease returns that error too. If the store is away at the
// release, the lease ends after its time to live, and WithLease returns no error for it.
func WithLease(ctx context.Context, l Leaser, action func(context.Context) error, charges ...Charge) (err error) {
	lease, err := l.Await(ctx, charges...)
	if err != nil {
		return err
	}
	actionCtx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	sched.Go(func() {
		if sched.Either(lease.Lost(), done) {
			cancel(ErrLeaseLost)
		}
	})
	defer func() { // deferred, so that it also runs if the action panics
		close(done)
		cancel(nil)
		ctx, end := sched.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
		defer end()
		if releaseErr := lease.Release(ctx); errors.Is(releaseErr, ErrLeaseLost) {
			err = errors.Join(err, releaseErr)
		}
	}()
	return action(actionCtx)
}
