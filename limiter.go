package headgate

import (
	"context"
	"sync"
	"sync/atomic"
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

	names    Names           // nil: none
	known    knower          // names, if it is one
	ahead    atomic.Int64    // of the clock: the store's, as far as it mattered
	timeout  time.Duration   // of a question to the store; 0: none
	deadline store.Deadliner // says how long a decision may take; nil: as long as timeout
	observer Observer        // nil: none
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
	// its limits say (Tail.Deadline), or else the store (store.Deadliner): behind package
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
	if l.timeout > 0 && (cfg == nil || cfg.Timeout == 0) {
		l.deadline, _ = store.As[store.Deadliner](s)
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
			l.quick(ctx, &d, l.present(limit, tries{}, 0), c.Key, c.Cost) {
			return d, nil
		}
	}
	ctx, b := l.boundBy(ctx, l.soonest())
	defer b.end(&err, store.ErrUnknownOutcome)
	limit, err := l.meantOne(ctx, c.Limit, c.Key, tries{})
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
	if l.observer != nil {
		return l.observed(ctx, VerbCheck, charges, func() (Decision, error) { return l.ask(ctx, law.Check, charges) })
	}
	return l.ask(ctx, law.Check, charges)
}

func (l *Limiter) ask(ctx context.Context, verb law.Verb, charges []Charge) (d Decision, err error) {
	ctx, b := l.wholeBy(ctx, l.soonest(), charges)
	defer b.end(&err, store.ErrUnknownOutcome)
	for t := (tries{}); ; {
		meant, err := l.meant(ctx, charges, t)
		if err != nil {
			return Decision{}, err
		}
		if err := takeable(meant); err != nil {
			return Decision{}, err
		}
		if d, err := l.answer(ctx, verb, meant); !t.again(err) {
			return d, err
		}
	}
}

// answer is ask for any charges, of which more than the name is known.
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
		begin := sched.Now()
		f, err = l.fillUp(ctx, c)
		took := sched.Since(begin)
		l.tell(ctx, &Event{
			Verb: VerbFillUp, Decision: f.Decision, Err: err, Took: took, Accepted: f.Accepted,
		}, []Charge{c})
		return f, err
	}
	return l.fillUp(ctx, c)
}

func (l *Limiter) fillUp(ctx context.Context, c Charge) (f Filled, err error) {
	asked := []Charge{c}
	ctx, b := l.wholeBy(ctx, l.soonest(), asked)
	defer b.end(&err, store.ErrUnknownOutcome)
	for t := (tries{}); ; {
		charges, err := l.meant(ctx, asked, t)
		if err != nil {
			return Filled{}, err
		}
		if f, err := l.fillUpNow(ctx, charges); !t.again(err) {
			return f, err
		}
	}
}

func (l *Limiter) fillUpNow(ctx context.Context, charges []Charge) (Filled, error) {
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
	if !closed(&op.Params) {
		op.Count, op.Cost, op.Partial = op.Cost, 1, true
	}
	if err := r.do(ctx); err != nil {
		return Filled{}, err
	}
	p, used := &op.Params, r.outs[0].Used
	return Filled{
		Accepted: costOf(r.outs[0].Granted, p, false),
		Level:    costOf(used, p, true),
		Brim:     used >= p.Capacity,
		Decision: r.decision(),
	}, nil
}

// observed does what decides and tells the observer, which there is.
func (l *Limiter) observed(ctx context.Context, verb Verb, charges []Charge, do func() (Decision, error)) (
	Decision, error,
) {
	begin := sched.Now()
	d, err := do()
	took := sched.Since(begin)
	l.tell(ctx, &Event{Verb: verb, Decision: d, Err: err, Took: took}, charges)
	return d, err
}

// tell tells the observer, which there is, of a decision about charges. They are copied: what is handed to an
// interface lives on the heap, and without an observer no charge has to.
func (l *Limiter) tell(ctx context.Context, e *Event, charges []Charge) {
	list := told.Get().(*[]Charge)
	*list = append((*list)[:0], charges...)
	e.Limit, e.Charges = firstName(charges), *list
	l.observer.Decided(ctx, *e)
	clear(*list)
	told.Put(list)
}

// told are lists of charges that observers were told of.
var told = sync.Pool{New: func() any { return new([]Charge) }}

// firstName returns the name of the limit of the first charge.
func firstName(charges []Charge) string {
	if len(charges) == 0 {
		return ""
	}
	return charges[0].Limit.Name()
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
		return l.soonest()
	}
	return l.timeout // what the store must know later is not answered by anything else
}

// soonest returns how long a decision may take whose limits do not say.
func (l *Limiter) soonest() time.Duration {
	if l.deadline != nil {
		if d := l.deadline.Deadline(); d > 0 {
			return d
		}
	}
	return l.timeout
}
