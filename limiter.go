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

// Limiter decides charges through a store. It is safe for concurrent
// use, starts goroutines only for the leases that it holds, and keeps no
// state but the queues of callers: any number of limiters, in any number of
// processes, share the limits of one store.
type Limiter struct {
	store  store.Store
	direct store.OneTaker // store, if it is one
	clock  store.Clock
	queues waitQueues

	names    Names         // nil: none
	known    knower        // names, if it is one
	ahead    atomic.Int64  // microseconds that the store's clock is ahead
	timeout  time.Duration // of a call to the store; 0: none
	soonest  time.Duration // for a take or check whose limits set none
	observer Observer      // nil: none
}

// Config adjusts a Limiter. A nil Config, and every zero field, is fine.
type Config struct {
	// Clock guesses the calendar window in which the store's clock is;
	// a wrong guess costs one more call to the store, nothing else. Nil:
	// this machine's.
	Clock store.Clock
	// Timeout is how long a call that decides at once waits for the store, if
	// the context has no earlier deadline. It includes the time in which Names finds
	// limits. After it, the error says what is known: that nothing was charged
	// (store.ErrUnavailable, say), or store.ErrUnknownOutcome, for example while
	// another transaction holds the cell. Wait, Await and WithLease, their
	// variants and what is built on them wait until their context ends, for
	// the store too. Zero: DefaultTimeout; but a take or a check waits only for as long as
	// its limits say (Tail.Deadline), or else the store (store.Info): behind package
	// front, 1.5 s. Below 0: none. A store in this process needs none: it answers at once.
	//
	// The drivers' RetryFor is for requests without a deadline: those of calls
	// that wait, and of programs that call a Store themselves.
	Timeout time.Duration
	// Observer gets every decision. Nil: none.
	Observer Observer
	// Names finds the limits that are given by name alone, as they are at the time of each
	// call. Nil: such a limit is ErrUnknownLimit.
	Names Names
}

// Names finds limits by their names, for a Limiter whose callers give limits by
// name alone ([Named]). A catalog.Catalog is one. It is safe for concurrent use.
//
// It may have a method Known(name, key string) (Limit, bool) too, which returns a limit that is
// in memory, or else false, without waiting.
type Names interface {
	// Find returns the limit of a name for a key. Errors are ErrUnknownLimit, or the
	// store's.
	Find(ctx context.Context, name, key string) (Limit, error)
	// FindAll replaces the limits that charges give by name alone with those of one
	// version. After an error the charges may be changed in part.
	FindAll(ctx context.Context, charges []Charge) error
}

// knower is a Names with a method Known.
type knower interface {
	Known(name, key string) (Limit, bool)
}

// New returns a limiter over a store. The caller closes the store. Without one, as
// with the zero Limiter, calls return ErrInvalid.
func New(s store.Store, cfg *Config) *Limiter {
	cfg = cmp.Or(cfg, &Config{})
	l := &Limiter{store: s, clock: cfg.Clock, observer: cfg.Observer, names: cfg.Names}
	l.direct, _ = s.(store.OneTaker)
	l.known, _ = cfg.Names.(knower)
	if l.clock == nil {
		l.clock = store.SystemClock
	}
	info := store.InfoOf(s)
	switch {
	case info.Local || cfg.Timeout < 0:
		// None: a store in this process answers at once, and a deadline would cost more than its answer.
	case cfg.Timeout > 0:
		l.timeout, l.soonest = cfg.Timeout, cfg.Timeout
	default:
		l.timeout, l.soonest = DefaultTimeout, cmp.Or(info.Deadline, DefaultTimeout)
	}
	return l
}

var errNoStore = Invalid("limiter", "has no store; make it with headgate.New")

// DefaultTimeout is how long a Limiter waits for its store unless its Config says
// otherwise.
const DefaultTimeout = 5 * time.Second

var (
	takeQuestion  = question{observed: VerbTake, verb: law.Take, limits: takenOnly, credits: Cost.charged}
	checkQuestion = question{observed: VerbCheck, verb: law.Check, limits: takenOnly, credits: Cost.charged}
)

// Allow takes one unit of a limit for a key.
func (l *Limiter) Allow(ctx context.Context, limit Limit, key string) (Decision, error) {
	return l.Take(ctx, Charge{Limit: limit, Key: key})
}

// AllowN takes n units of a limit for a key, all or none. n is 1 or more; a cost with a fraction is for
// [Limiter.Take].
func (l *Limiter) AllowN(ctx context.Context, limit Limit, key string, n int64) (Decision, error) {
	return l.Take(ctx, Charge{Limit: limit, Key: key, Cost: Units(n)})
}

// Take takes all of the charges, or none. Errors are ErrInvalid for what is
// wrong with the charges, or the store's; with an error, nothing is known to
// be admitted.
func (l *Limiter) Take(ctx context.Context, charges ...Charge) (d Decision, err error) {
	if l.observer == nil && len(charges) == 1 && l.takeOne(ctx, &d, &charges[0]) {
		return d, nil
	}
	return l.call(ctx, &takeQuestion, charges)
}

// Check reports whether Take would admit the charges now, and takes nothing: Remaining and ResetAfter are those of now,
// not those after a Take.
func (l *Limiter) Check(ctx context.Context, charges ...Charge) (Decision, error) {
	return l.call(ctx, &checkQuestion, charges)
}

// FillUpResult is the result of a FillUp.
type FillUpResult struct {
	Accepted Cost // what fitted in, rounded down to a millionth; may be all or nothing
	Level    Cost // in use afterwards; rounded up to a millionth
	Brim     bool // the level stands at the capacity
	Decision Decision
}

// FillUp takes as much of a charge as fits, to the brim. Decision.Allowed
// reports whether anything did.
func (l *Limiter) FillUp(ctx context.Context, charge Charge) (f FillUpResult, err error) {
	q := question{observed: VerbFillUp, verb: law.Take, limits: takenOnly, credits: Cost.charged}
	q.prepare = func(r *request) error {
		if op := &r.ops[0]; !closed(&op.Params) {
			op.Count, op.Cost, op.Partial = op.Cost, 1, true
		}
		return nil
	}
	q.read = func(_ context.Context, r *request) (Decision, error) {
		op, out := &r.ops[0], &r.outs[0]
		f = FillUpResult{
			Accepted: costOf(out.Granted, &op.Params, false),
			Level:    costOf(out.Used, &op.Params, true),
			Brim:     out.Used >= op.Params.Capacity,
			Decision: r.decision(),
		}
		q.accepted = f.Accepted
		return f.Decision, nil
	}
	_, err = l.call(ctx, &q, []Charge{charge})
	return f, err
}

// waiting is the context of a call that waits: only its deadline bounds the requests to
// the store.
type waiting struct{ context.Context }

// callDeadline is the Limiter's own deadline for a call; the zero one is none.
type callDeadline struct {
	caller  context.Context
	own     context.Context
	cancel  context.CancelFunc
	timeout time.Duration
}

// withDeadline returns a context that ends after most at the latest; 0 sets no deadline.
func withDeadline(ctx context.Context, most time.Duration) (context.Context, callDeadline) {
	if w, ok := ctx.(waiting); ok {
		return store.WithPatience(w.Context), callDeadline{}
	}
	if most == 0 {
		return ctx, callDeadline{}
	}
	if end, ok := ctx.Deadline(); ok && sched.Until(end) <= most {
		return ctx, callDeadline{}
	}
	d := callDeadline{caller: ctx, timeout: most}
	d.own, d.cancel = sched.WithTimeout(ctx, most)
	return d.own, d
}

// end stops the deadline, and explains an error that it caused. A context
// error has no class, since the store may have been called: it gets otherwise.
func (d *callDeadline) end(err *error, otherwise error) {
	if d.cancel == nil {
		return
	}
	defer d.cancel()
	*err = d.explain(*err, otherwise)
}

// explain adds the timeout to an error that the deadline caused.
func (d *callDeadline) explain(err, otherwise error) error {
	if d.cancel == nil || err == nil || d.own.Err() == nil || d.caller.Err() != nil {
		return err
	}
	if store.Class(err) == nil {
		err = fmt.Errorf("%w: %w", otherwise, err)
	}
	return fmt.Errorf("%w (no answer within %s: Timeout of headgate.Config, --deadline of headgate serve)", err,
		d.timeout)
}

// timeoutFor returns how long the store may take to answer ops: for takes and checks, the shortest
// deadline of its limits. 0 is no deadline.
func (l *Limiter) timeoutFor(ops []law.Op) time.Duration {
	own, plain := int64(0), true
	for i := range ops {
		op := &ops[i]
		if op.Verb != law.Take && op.Verb != law.Check {
			return l.timeout
		}
		plain = plain && op.Alone() && !op.Params.Leased
		if d := op.Params.Deadline; d > 0 && (own == 0 || d < own) {
			own = d
		}
	}
	switch {
	case own > 0:
		return time.Duration(own) * time.Microsecond
	case plain:
		return l.soonest
	}
	return l.timeout // only the store can answer what it must know later
}
