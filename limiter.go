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

// Limiter decides about charges by a store. It is safe for concurrent
// use, starts goroutines for the leases that it holds and no other, and holds no
// state of its own but the callers that wait: any number of limiters, in any number of
// processes, share the limits of one store.
type Limiter struct {
	store  store.Store
	direct store.OneTaker // store, if it is one
	clock  store.Clock
	queues waitQueues

	names    Names         // nil: none
	known    knower        // names, if it is one
	ahead    atomic.Int64  // of the clock: the store's, as far as it mattered
	timeout  time.Duration // of a question to the store; 0: none
	soonest  time.Duration // the same of a decision whose limits do not say
	observer Observer      // nil: none
}

// Config adjusts a Limiter. A nil Config, and every zero field, is fine.
type Config struct {
	// Clock guesses in which window of the calendar the store's clock stands;
	// a wrong guess costs one more question to the store, nothing else. Nil:
	// this machine's.
	Clock store.Clock
	// Timeout is how long a call that decides at once waits for the store, where
	// the context has no earlier deadline. That contains the time in which Names finds
	// limits. After it, the error says what is known: that nothing was charged
	// (store.ErrUnavailable, say), or store.ErrUnknownOutcome, for example where a
	// transaction of somebody else's holds the cell. Wait, Await and WithLease, their
	// kin, and what is built on them wait for as long as their context lasts, for
	// the store too. Zero: DefaultTimeout; but a request that takes or checks waits only for as long as
	// its limits say (Tail.Deadline), or else the store (store.Info): behind package
	// front 1.5 s. Below 0: none, and none for a store in this process, which answers at once.
	//
	// The RetryFor of the drivers is for questions without a deadline: of calls
	// that wait, and of programs that call a Store themselves.
	Timeout time.Duration
	// Observer hears of every decision. Nil: none.
	Observer Observer
	// Names finds the limits of which only the name is known, as they are at the time of each
	// call. Nil: such a limit is ErrUnknownLimit.
	Names Names
}

// Names finds limits by their names, for a Limiter that is asked by limits of which only the
// name is known ([Named]). A catalog.Catalog is one. It is safe for concurrent use.
//
// It may have a method Known(name, key string) (Limit, bool) too: Find for what is at hand, which
// waits for nothing. It returns false for anything else.
type Names interface {
	// Find returns the limit of a name as it is for a key. Errors are ErrUnknownLimit, or the
	// store's.
	Find(ctx context.Context, name, key string) (Limit, error)
	// FindAll puts limits in the place of those of the charges of which only the name is
	// known: all of one version. After an error the charges may be changed in part.
	FindAll(ctx context.Context, charges []Charge) error
}

// knower is a Names with a method Known.
type knower interface {
	Known(name, key string) (Limit, bool)
}

// New returns a limiter over a store. The store stays the caller's to close. Without
// one, and of the zero Limiter, each call is ErrInvalid.
func New(s store.Store, cfg *Config) *Limiter {
	if cfg == nil {
		cfg = new(Config)
	}
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
// as if nobody had asked.
func (l *Limiter) Check(ctx context.Context, charges ...Charge) (Decision, error) {
	return l.call(ctx, &checkQuestion, charges)
}

// FillUpResult is what became of a FillUp.
type FillUpResult struct {
	Accepted Cost // what fitted in, rounded down to a millionth; may be all or nothing
	Level    Cost // in use then, what was accepted included; rounded up to a millionth
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

// callDeadline is the Limiter's own for one call. The zero callDeadline is none.
type callDeadline struct {
	caller  context.Context
	own     context.Context
	cancel  context.CancelFunc
	timeout time.Duration
}

// withDeadline returns the context to ask the store with, for what may take so long; 0: as long as the context lasts.
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

// end ends the deadline, and explains an error that came by it. A context
// error alone does not say whether the store was asked: its class is otherwise.
func (d *callDeadline) end(err *error, otherwise error) {
	if d.cancel == nil {
		return
	}
	defer d.cancel()
	*err = d.explain(*err, otherwise)
}

// explain says of an error that came by the deadline how long it was.
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

// within returns how long the store may take to answer ops: for what takes or checks, the shortest
// deadline of its limits. 0 is no deadline.
func (l *Limiter) within(ops []law.Op) time.Duration {
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
	return l.timeout // what the store must know later is not answered by anything else
}
