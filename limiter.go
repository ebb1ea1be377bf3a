package headgate

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// Limiter decides about charges by asking a store. It is safe for concurrent
// use, starts goroutines for the leases that it holds and no other, and holds no
// state of its own but who waits: any number of limiters, in any number of
// processes, share the limits of one store.
type Limiter struct {
	store  store.Store
	direct store.OneTaker // store, if it is one
	clock  store.Clock
	turns  turns // of the callers that wait

	timeout  time.Duration // of a question to the store; 0: none
	observer Observer      // nil: none
}

// Config adjusts a Limiter. A nil Config, and every zero field, is fine.
type Config struct {
	// Clock guesses in which window of the calendar the store's clock stands;
	// a wrong guess costs one more question to the store, nothing else. Nil:
	// this machine's.
	Clock store.Clock
	// Timeout is how long a call that decides at once waits for the store, where
	// the context has no earlier deadline. After it, the error says what is known:
	// that nothing was charged, or store.ErrUnknownOutcome, for example where a
	// transaction of somebody else's holds the cell. Wait, Await and WithLease, their
	// kin, and what is built on them wait for as long as their context lasts, for
	// the store too. Zero: DefaultTimeout. Below 0: none.
	//
	// The RetryFor of the drivers is for questions without a deadline: of calls
	// that wait, and of programs that call a Store themselves.
	Timeout time.Duration
	// Observer hears of every decision. Nil: none.
	Observer Observer
}

// New returns a limiter over a store. The store stays the caller's to close. Without
// one, and of the zero Limiter, each call is ErrInvalid.
func New(s store.Store, cfg *Config) *Limiter {
	l := &Limiter{store: s, clock: store.SystemClock, timeout: cfg.timeout(s)}
	l.direct, _ = s.(store.OneTaker)
	if cfg != nil {
		l.observer = cfg.Observer
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
	if l.quick(ctx, &d, limit, key, Cost{}) {
		return d, nil
	}
	return l.ask(ctx, law.Take, []Charge{{Limit: limit, Key: key}})
}

// Take takes all of the charges, or none. Errors are ErrInvalid for what is
// wrong with the charges, or the store's; with an error, nothing is known to
// be admitted.
func (l *Limiter) Take(ctx context.Context, charges ...Charge) (d Decision, err error) {
	if l.observer != nil {
		return l.observed(ctx, VerbTake, func() (Decision, error) { return l.take(ctx, charges) })
	}
	return l.take(ctx, charges)
}

func (l *Limiter) take(ctx context.Context, charges []Charge) (d Decision, err error) {
	if len(charges) == 1 && l.quick(ctx, &d, charges[0].Limit, charges[0].Key, charges[0].Cost) {
		return d, nil
	}
	return l.ask(ctx, law.Take, charges)
}

// Check returns the decision that Take would return now, and takes nothing.
func (l *Limiter) Check(ctx context.Context, charges ...Charge) (Decision, error) {
	if l.observer != nil {
		return l.observed(ctx, VerbCheck, func() (Decision, error) { return l.ask(ctx, law.Check, charges) })
	}
	return l.ask(ctx, law.Check, charges)
}

func (l *Limiter) ask(ctx context.Context, verb law.Verb, charges []Charge) (Decision, error) {
	if err := takeable(charges); err != nil {
		return Decision{}, err
	}
	return l.answer(ctx, verb, charges)
}

// answer is ask for any charges.
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
func (l *Limiter) FillUp(ctx context.Context, c Charge) (f Filled, err error) {
	if l.observer != nil {
		_, err = l.observed(ctx, VerbFillUp, func() (Decision, error) {
			f, err = l.fillUp(ctx, c)
			return f.Decision, err
		})
		return f, err
	}
	return l.fillUp(ctx, c)
}

func (l *Limiter) fillUp(ctx context.Context, c Charge) (Filled, error) {
	charges := []Charge{c}
	if err := takeable(charges); err != nil {
		return Filled{}, err
	}
	s := sheets.Get().(*sheet)
	defer s.free()
	r := s.request(l, charges)
	if err := r.compile(law.Take, charges); err != nil {
		return Filled{}, err
	}
	op := &r.ops[0]
	op.Count, op.Cost, op.Partial = op.Cost, 1, true
	if err := r.do(ctx); err != nil {
		return Filled{}, err
	}
	p, used := &op.Params, r.outs[0].Used
	return Filled{
		Accepted: costOf(r.outs[0].Granted, p.Unit, false),
		Level:    costOf(used, p.Unit, true),
		Brim:     used >= p.Capacity,
		Decision: r.decision(),
	}, nil
}

// observed does what decides and tells the observer, which there is.
func (l *Limiter) observed(ctx context.Context, verb Verb, do func() (Decision, error)) (Decision, error) {
	begin := sched.Now()
	d, err := do()
	l.observer.Decided(ctx, Event{Verb: verb, Decision: d, Err: err, Took: sched.Since(begin)})
	return d, err
}

// DefaultTimeout is how long a Limiter waits for its store unless its Config says
// otherwise.
const DefaultTimeout = 5 * time.Second

// timeout returns how long to wait for a store; 0: as long as it takes. A store in
// this process answers at once, and a deadline would cost more than its answer.
func (cfg *Config) timeout(s store.Store) time.Duration {
	_, local := store.As[store.Local](s)
	switch {
	case local || cfg != nil && cfg.Timeout < 0:
		return 0
	case cfg == nil || cfg.Timeout == 0:
		return DefaultTimeout
	}
	return cfg.Timeout
}
