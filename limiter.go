package headgate

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// Limiter decides about charges by asking a store. It is safe for concurrent
// use, starts goroutines for the leases that it holds and no other, and holds no
// state of its own but the callers that wait: any number of limiters, in any number of
// processes, share the limits of one store.
type Limiter struct {
	store  store.Store
	direct store.OneTaker // store, if it is one
	clock  store.Clock
	turns  turns // of the callers that wait

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

// New returns a limiter over a store. The store stays the caller's to close. Without
// one, and of the zero Limiter, each call is ErrInvalid.
func New(s store.Store, cfg *Config) *Limiter {
	l := &Limiter{store: s, clock: store.SystemClock, timeout: cfg.timeout(s)}
	if l.soonest = l.timeout; l.timeout > 0 && (cfg == nil || cfg.Timeout == 0) {
		l.soonest = cmp.Or(store.InfoOf(s).Deadline, l.timeout)
	}
	l.direct, _ = s.(store.OneTaker)
	if cfg != nil {
		l.observer, l.names = cfg.Observer, cfg.Names
		l.known, _ = cfg.Names.(knower)
		if cfg.Clock != nil {
			l.clock = cfg.Clock
		}
	}
	return l
}

var errNoStore = Invalid("limiter", "has no store; make it with headgate.New")

// Allow takes one unit of a limit for a key.
func (l *Limiter) Allow(ctx context.Context, limit Limit, key string) (d Decision, err error) {
	if l.observer != nil {
		return l.Take(ctx, Charge{Limit: limit, Key: key})
	}
	return l.takeOne(ctx, Charge{Limit: limit, Key: key})
}

// Take takes all of the charges, or none. Errors are ErrInvalid for what is
// wrong with the charges, or the store's; with an error, nothing is known to
// be admitted.
func (l *Limiter) Take(ctx context.Context, charges ...Charge) (d Decision, err error) {
	if l.observer != nil {
		return l.observed(ctx, VerbTake, charges, func() (Decision, error) { return l.take(ctx, charges) })
	}
	return l.take(ctx, charges)
}

func (l *Limiter) take(ctx context.Context, charges []Charge) (d Decision, err error) {
	if len(charges) == 1 {
		return l.takeOne(ctx, charges[0])
	}
	return l.ask(ctx, law.Take, charges)
}

// takeOne is take for one charge.
func (l *Limiter) takeOne(ctx context.Context, c Charge) (d Decision, err error) {
	if c.Keep.IsZero() && l.quick(ctx, &d, c.Limit, c.Key, c.Cost) {
		return d, nil
	}
	if c.Limit.OnlyName() && l.names != nil {
		return l.takeNamed(ctx, c)
	}
	return l.ask(ctx, law.Take, []Charge{c})
}

// takeNamed is takeOne for a limit of which only the name is known.
func (l *Limiter) takeNamed(ctx context.Context, c Charge) (d Decision, err error) {
	if l.known != nil { // a deadline would cost more than an answer that is at hand
		if limit, ok := l.known.Known(c.Limit.r.name, c.Key); ok && c.Keep.IsZero() &&
			l.quick(ctx, &d, l.current(limit, retries{}, 0), c.Key, c.Cost) {
			return d, nil
		}
	}
	ctx, end := withDeadline(ctx, l.soonest)
	defer end.end(&err, store.ErrUnknownOutcome)
	limit, err := l.resolveOne(ctx, c.Limit, c.Key)
	if err != nil {
		return d, err
	}
	if c.Keep.IsZero() && l.quick(ctx, &d, limit, c.Key, c.Cost) {
		return d, nil
	}
	return l.ask(ctx, law.Take, []Charge{c})
}

// Check tells whether Take would admit the charges now, and takes nothing: Remaining and ResetAfter are those of now,
// as if nobody had asked.
func (l *Limiter) Check(ctx context.Context, charges ...Charge) (Decision, error) {
	return l.observed(ctx, VerbCheck, charges, func() (Decision, error) { return l.ask(ctx, law.Check, charges) })
}

func (l *Limiter) ask(ctx context.Context, verb law.Verb, charges []Charge) (d Decision, err error) {
	c := call{l: l, asked: charges}
	err = c.do(ctx, l.soonest, func(ctx context.Context) error {
		if err := takeable(c.charges()); err != nil {
			return err
		}
		d, err = l.answer(ctx, verb, c.charges())
		return err
	})
	return d, err
}

// answer asks the store about charges with their limits, also of concurrency.
func (l *Limiter) answer(ctx context.Context, verb law.Verb, charges []Charge) (Decision, error) {
	s := sheets.Get().(*sheet)
	defer s.free()
	r := s.request(l, charges)
	if err := r.compile(verb, charges); err != nil {
		return Decision{}, err
	}
	if err := r.do(ctx); err != nil {
		return Decision{}, err
	}
	return r.decision(), nil
}

// Filled is what became of a FillUp.
type Filled struct {
	Accepted Cost // what fitted in, rounded down to a millionth; may be all or nothing
	Level    Cost // in use then, what was accepted included; rounded up to a millionth
	Brim     bool // the level stands at the capacity
	Decision Decision
}

// FillUp takes as much of a charge as fits, to the brim. Decision.Allowed
// tells whether anything did.
func (l *Limiter) FillUp(ctx context.Context, charge Charge) (f Filled, err error) {
	begin := sched.Now()
	c := call{l: l, asked: []Charge{charge}}
	err = c.do(ctx, l.soonest, func(ctx context.Context) error {
		if err := takeable(c.charges()); err != nil {
			return err
		}
		r := l.request(c.charges())
		if err := r.compile(law.Take, c.charges()); err != nil {
			return err
		}
		op, out := &r.ops[0], &r.outs[0]
		if !closed(&op.Params) {
			op.Count, op.Cost, op.Partial = op.Cost, 1, true
		}
		if err := r.do(ctx); err != nil {
			return err
		}
		f = Filled{
			Accepted: costOf(out.Granted, &op.Params, false),
			Level:    costOf(out.Used, &op.Params, true),
			Brim:     out.Used >= op.Params.Capacity,
			Decision: r.decision(),
		}
		return nil
	})
	if l.observer != nil {
		l.tell(ctx, &Event{
			Verb: VerbFillUp, Decision: f.Decision, Err: err, Took: sched.Since(begin), Accepted: f.Accepted,
		}, []Charge{charge})
	}
	return f, err
}

// DefaultTimeout is how long a Limiter waits for its store unless its Config says
// otherwise.
const DefaultTimeout = 5 * time.Second

// timeout returns how long to wait for a store; 0: as long as it takes. A store in
// this process answers at once, and a deadline would cost more than its answer.
func (cfg *Config) timeout(s store.Store) time.Duration {
	switch {
	case store.InfoOf(s).Local || cfg != nil && cfg.Timeout < 0:
		return 0
	case cfg == nil || cfg.Timeout == 0:
		return DefaultTimeout
	}
	return cfg.Timeout
}
