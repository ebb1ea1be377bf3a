package headgate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

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
// for as long, three times within its time to live: it has a goroutine, and another
// while the store is asked. It is safe for concurrent use.
type Lease struct {
	// Decision tells whether it was acquired; of one that was not, after how long
	// a lease ends if nobody renews it.
	Decision Decision

	l    *Limiter
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
// and Hold do.
func (l *Limiter) Acquire(ctx context.Context, charges ...Charge) (*Lease, error) {
	return l.acquire(ctx, charges, false)
}

func (l *Limiter) acquire(ctx context.Context, charges []Charge, waits bool) (*Lease, error) {
	a := l.asked(charges)
	if err := l.compile(a.ops, law.Take, 1, charges); err != nil {
		return nil, err
	}
	if waits {
		unblocking(a.ops)
	}
	lease := &Lease{l: l, stop: make(chan struct{}), lost: make(chan struct{})}
	if !held(a.ops) {
		return nil, Invalid("limit", "none of the charges is of a concurrency limit")
	}
	asked := time.Now() //nolint:forbidigo // how long the lease lasts counts from before the question
	if err := a.apply(ctx); err != nil {
		return nil, err
	}
	lease.Decision = decide(a.ops, a.outs)
	if !lease.Decision.Allowed {
		return lease, nil
	}
	for i := range a.ops {
		if op := &a.ops[i]; op.Params.Leased {
			lease.held = append(lease.held, LeaseToken{charges[i].Limit, charges[i].Key, a.outs[i].EntryNumber})
			if ttl := micros(op.Params.Step); lease.ttl == 0 || ttl < lease.ttl {
				lease.ttl = ttl
			}
		}
	}
	took := time.Since(asked)
	if took >= lease.ttl {
		lease.end(ErrLeaseLost)
		return nil, fmt.Errorf("%w: the store took %s to answer", ErrLeaseLost, took)
	}
	go lease.keep(asked)
	return lease, nil
}

// held reports whether something of a request is held.
func held(ops []law.Op) bool {
	for i := range ops {
		if ops[i].Params.Leased {
			return true
		}
	}
	return false
}

// keep renews the lease until it is released or lost. It lasts for its time to live
// from when the last question was asked that was answered, whatever becomes of those
// under way.
func (l *Lease) keep(asked time.Time) {
	end, next := time.NewTimer(l.ttl-time.Since(asked)), time.NewTimer(l.ttl/3-time.Since(asked))
	defer end.Stop()
	defer next.Stop()
	var answer chan error // of a question under way
	for {
		select {
		case <-l.stop:
			return
		case <-end.C:
			l.end(ErrLeaseLost)
			return
		case <-next.C:
			asked, answer = time.Now(), make(chan error, 1) //nolint:forbidigo // this machine's time, see Acquire
			ctx, cancel := context.WithTimeout(context.Background(), l.ttl)
			go func(answer chan error) {
				defer cancel()
				answer <- l.l.Renew(ctx, l.held...)
			}(answer)
		case err := <-answer:
			answer = nil
			switch {
			case err == nil:
				end.Reset(l.ttl - time.Since(asked))
				next.Reset(l.ttl/3 - time.Since(asked))
			case errors.Is(err, ErrLeaseLost):
				l.end(err)
				return
			default: // the store is away
				next.Reset(l.ttl / 10)
			}
		}
	}
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

// Lost is closed when the lease is lost: what it protected must stop.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Err is nil while the lease is held, then ErrReleased or ErrLeaseLost.
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
	err := l.l.Release(ctx, l.held...)
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
