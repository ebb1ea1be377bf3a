package headgate

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// Limiter decides charges through a store. It is safe for concurrent use, and starts goroutines only for the leases
// that it holds. It keeps no state but the queues of waiting callers and how far the store's clock is ahead: any number
// of limiters, in any number of processes, share the limits of one store.
type Limiter struct {
	store    store.Store
	oneTaker store.OneTaker // the store, if it implements OneTaker
	clock    store.Clock
	queues   waitQueues

	names        Names            // nil: none
	cachingNames cachingNames     // names, if it implements cachingNames
	clockAhead   atomic.Int64     // microseconds by which the store's clock was last ahead of clock, as far as is known
	timeout      time.Duration    // timeout of a call to the store; 0: none
	shortTimeout time.Duration    // timeout of a take or check whose limits have no deadline; 0: none
	observer     Observer         // nil: none
	crossings    CrossingObserver // observer, if it implements CrossingObserver
}

// Config adjusts a Limiter. A nil Config, and every zero field, is fine.
type Config struct {
	// Clock is used to guess where the store's clock is: in which calendar window, and on which side of a Limit.Until.
	// A wrong guess costs one more call to the store, nothing else. Nil: this machine's clock.
	Clock store.Clock
	// Timeout is how long a call that does not wait for room waits for the store, if the context has no earlier
	// deadline. It includes the time in which Names finds limits. The error then says what is known: that nothing was
	// charged (store.ErrUnavailable, say), or store.ErrUnknownOutcome, for example while another transaction holds the
	// cell. Wait, Await and WithLease, their variants and calls built on them are not bounded by it, and wait for the
	// store until their context ends.
	//
	// Zero: DefaultTimeout, except that a take or a check waits only as long as the store says (store.Info): 1.5 s
	// behind package front. Below 0: no timeout. A store in this process needs none: it answers at once. If the limits
	// of a take or a check have a Tail.Deadline, that applies instead in any case.
	//
	// The drivers' RetryFor applies to requests without a deadline: from calls that wait for room, and from programs
	// that call a Store themselves.
	Timeout time.Duration
	// Observer receives every decision. Nil: none.
	Observer Observer
	// Names finds, at the time of each call, the limits that are given by name alone. Nil: such a limit is
	// ErrUnknownLimit.
	Names Names
}

// Names finds limits by their names, for a Limiter whose callers give limits by name alone ([Named]). catalog.Catalog
// implements it. It must be safe for concurrent use.
//
// An implementation may also have a method Known(name, key string) (Limit, bool). It returns a limit if it is in
// memory, or else false, without waiting.
type Names interface {
	// Find returns the limit of a name for a key. Errors are ErrUnknownLimit, or the store's.
	Find(ctx context.Context, name, key string) (Limit, error)
	// FindAll replaces the limits that have only a name, in all charges, by limits of one version of the catalog. After
	// an error some charges may be changed.
	FindAll(ctx context.Context, charges []Charge) error
}

// cachingNames is a Names that can return limits from memory, without waiting.
type cachingNames interface {
	Known(name, key string) (Limit, bool)
}

// New returns a limiter over a store, which the caller closes. Calls of a limiter with a nil store, such as the zero
// Limiter, return ErrInvalid.
func New(s store.Store, cfg *Config) *Limiter {
	cfg = cmp.Or(cfg, &Config{})
	l := &Limiter{store: s, clock: cfg.Clock, observer: cfg.Observer, names: cfg.Names}
	l.oneTaker, _ = s.(store.OneTaker)
	l.cachingNames, _ = cfg.Names.(cachingNames)
	l.crossings, _ = cfg.Observer.(CrossingObserver)
	if l.clock == nil {
		l.clock = store.SystemClock
	}
	info := store.InfoOf(s)
	switch {
	case info.Local || cfg.Timeout < 0:
		// No timeout: a store in this process answers at once, and a deadline would take more time than the answer.
	case cfg.Timeout > 0:
		l.timeout, l.shortTimeout = cfg.Timeout, cfg.Timeout
	default:
		l.timeout, l.shortTimeout = DefaultTimeout, cmp.Or(info.Deadline, DefaultTimeout)
	}
	return l
}

var errNoStore = Invalid("limiter", "has no store; make it with headgate.New")

// DefaultTimeout is the default Timeout of a Limiter.
const DefaultTimeout = 5 * time.Second

// waitingContext is the context of a call that waits for room: the Limiter sets no timeout for its store calls.
type waitingContext struct{ context.Context }

// callDeadline is the Limiter's own deadline for a call. The zero callDeadline is none.
type callDeadline struct {
	callerCtx context.Context // the caller's context
	ctx       context.Context // the context that ends at the deadline
	cancel    context.CancelFunc
	timeout   time.Duration
}

// withDeadline returns a context that ends after timeout at the latest; with a timeout of 0 it sets no deadline. For a
// waitingContext it sets none either, and returns a context of store.WithPatience.
func withDeadline(ctx context.Context, timeout time.Duration) (context.Context, callDeadline) {
	if w, ok := ctx.(waitingContext); ok {
		return store.WithPatience(w.Context), callDeadline{}
	}
	if timeout == 0 {
		return ctx, callDeadline{}
	}
	if end, ok := ctx.Deadline(); ok && sched.Until(end) <= timeout {
		return ctx, callDeadline{}
	}
	d := callDeadline{callerCtx: ctx, timeout: timeout}
	d.ctx, d.cancel = sched.WithTimeout(ctx, timeout)
	return d.ctx, d
}

// end stops the deadline, and explains *err if the deadline caused it.
func (d *callDeadline) end(err *error, class error) {
	if d.cancel == nil {
		return
	}
	defer d.cancel()
	*err = d.explain(*err, class)
}

// explain adds the timeout to an error that the deadline caused. If the error has no class, as the error of a context,
// it gets this class.
func (d *callDeadline) explain(err, class error) error {
	if d.cancel == nil || err == nil || d.ctx.Err() == nil || d.callerCtx.Err() != nil {
		return err
	}
	if store.Class(err) == nil {
		err = fmt.Errorf("%w: %w", class, err)
	}
	return fmt.Errorf("%w (no answer within %s: Timeout of headgate.Config, --deadline of headgate serve)", err,
		d.timeout)
}

// timeoutFor returns how long the store may take to answer ops: for takes and checks, the shortest deadline of their
// limits if they have one. 0 is no timeout.
func (l *Limiter) timeoutFor(ops []law.Op) time.Duration {
	deadline, isForgettable := int64(0), true // deadline is in microseconds
	for i := range ops {
		op := &ops[i]
		if op.Verb != law.Take && op.Verb != law.Check {
			return l.timeout
		}
		isForgettable = isForgettable && op.ID == "" && !op.Deferred && !op.Params.Leased
		if d := op.Params.Deadline; d > 0 && (deadline == 0 || d < deadline) {
			deadline = d
		}
	}
	switch {
	case deadline > 0:
		return time.Duration(deadline) * time.Microsecond
	case isForgettable:
		return l.shortTimeout
	}
	return l.timeout // there is no fallback for a charge that the store must know later
}
