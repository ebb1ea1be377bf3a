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

// question is what a verb asks of the store about charges.
type question struct {
	verb     law.Verb
	observed Verb // as observers are told; empty: they are not
	limits   limitKind
	credits  func(Cost, *law.Params) (int64, error) // what the costs of the charges mean
	lasting  bool                                   // the store has to know of the answer later: Config.Timeout holds

	prepare func(*request) error                              // completes the ops; nil: they are complete
	read    func(context.Context, *request) (Decision, error) // nil: the decision is all that is wanted

	accepted Cost // see Event.Accepted; read sets it
}

// limitKind says of which limits charges may be.
type limitKind uint8

const (
	anyLimit  limitKind = iota
	takenOnly           // all but concurrency
	heldOnly            // concurrency alone
)

// call is the way of every verb that asks about one request: it finds the limits, asks the store, and tells the
// observer. The charges of a caller stay on its stack.
func (l *Limiter) call(ctx context.Context, q *question, charges []Charge) (d Decision, err error) {
	var begin time.Time
	observed := l.observer != nil && q.observed != ""
	if observed {
		begin = sched.Now()
	}
	if slices.ContainsFunc(charges, Charge.unresolved) {
		d, err = l.askResolved(ctx, q, charges)
	} else {
		d, err = l.ask(ctx, q, charges)
	}
	if observed {
		took := sched.Since(begin)
		l.tell(ctx, &Event{Verb: q.observed, Decision: d, Err: err, Took: took, Accepted: q.accepted}, charges)
	}
	return d, err
}

// askResolved asks by the limits that hold now, and again if the store decided at a time at which they did not hold.
// All of it has one deadline.
func (l *Limiter) askResolved(ctx context.Context, q *question, charges []Charge) (d Decision, err error) {
	if q == &takeQuestion && len(charges) == 1 && l.takeKnown(ctx, &d, charges[0]) {
		return d, nil // a deadline would cost more than this answer
	}
	if _, waits := ctx.(waiting); !waits {
		most := l.timeout
		if !q.lasting {
			most = l.soonest()
		}
		var own callDeadline
		ctx, own = withDeadline(ctx, most)
		defer own.end(&err, store.ErrUnknownOutcome)
	}
	for a := (attempts{}); ; {
		resolved, err := l.resolve(ctx, charges, a)
		if err == nil {
			d, err = l.ask(ctx, q, resolved)
		}
		if !a.another(err) {
			return d, err
		}
	}
}

// ask asks the store about charges whose limits are known.
func (l *Limiter) ask(ctx context.Context, q *question, charges []Charge) (d Decision, err error) {
	if q == &takeQuestion && len(charges) == 1 && l.takeOne(ctx, &d, &charges[0]) {
		return d, nil
	}
	s := scratches.Get().(*scratch)
	defer s.free()
	r := s.request(len(charges))
	if err := l.compile(r, 1, q, charges); err != nil {
		return d, err
	}
	if q.prepare != nil {
		if err := q.prepare(r); err != nil {
			return d, err
		}
	}
	if err := r.valid(); err != nil {
		return d, err
	}
	if err := l.decide(ctx, r); err != nil {
		return d, err
	}
	if q.read != nil {
		return q.read(ctx, r)
	}
	return r.decision(), nil
}

// callOne does something with a single key that charges nothing, and returns the limit that holds.
func (l *Limiter) callOne(ctx context.Context, verb law.Verb, limit Limit, key string, set func(*law.Op)) (
	holds Limit, op law.Op, out law.Outcome, err error,
) {
	q := question{verb: verb, credits: Cost.charged, lasting: true}
	q.prepare = func(r *request) error {
		if set != nil {
			set(&r.ops[0])
		}
		return nil
	}
	q.read = func(_ context.Context, r *request) (none Decision, err error) {
		holds, op, out = r.limits[0], r.ops[0], r.outs[0]
		return none, nil
	}
	_, err = l.call(ctx, &q, []Charge{{Limit: limit, Key: key}})
	return holds, op, out, err
}

// tell tells the observer, which there is, of a decision about charges. They are copied: what is handed to an
// interface lives on the heap, and without an observer no charge has to.
func (l *Limiter) tell(ctx context.Context, e *Event, charges []Charge) {
	list := observed.Get().(*[]Charge)
	*list = append((*list)[:0], charges...)
	e.Charges = *list
	if len(charges) > 0 {
		e.Limit = charges[0].Limit.Name()
	}
	l.observer.Decided(ctx, *e)
	clear(*list)
	observed.Put(list)
}

// observed are lists of charges for observers.
var observed = sync.Pool{New: func() any { return new([]Charge) }}

// takeOne takes a single charge within this process, if the store can decide about it so, and writes the decision into
// d, which is zero. If it reports false nothing was done, and the store is to be asked, also to say what is wrong with
// the charge.
func (l *Limiter) takeOne(ctx context.Context, d *Decision, c *Charge) bool {
	r := c.Limit.r
	if l.direct == nil || r == nil || !r.plain || !c.Keep.IsZero() {
		return false
	}
	credits := r.params.Unit
	if !c.Cost.IsZero() {
		var err error
		if credits, err = c.Cost.charged(&r.params); err != nil {
			return false
		}
	}
	b, decided := l.direct.TakeOne(ctx, law.Cell{Limit: r.name, Key: c.Key}, &r.params, credits)
	if decided {
		d.LimitName, d.Key, d.Applied = r.name, c.Key, r.applied
		d.Capacity, d.CapacityNanos = r.capacity, r.capacityNanos
		d.derive(&r.params, &b, nil)
	}
	return decided
}

// takeKnown is takeOne by a name whose limit is at hand.
func (l *Limiter) takeKnown(ctx context.Context, d *Decision, c Charge) bool {
	if l.known == nil || !c.Limit.OnlyName() {
		return false
	}
	limit, ok := l.known.Known(c.Limit.r.name, c.Key)
	c.Limit = limit
	if ok {
		c.Limit = l.current(limit, attempts{}, 0)
	}
	return ok && l.takeOne(ctx, d, &c)
}

// unresolved reports whether it is to be found out which limit of a charge holds: only its name is
// known, or it holds for a time.
func (c Charge) unresolved() bool { return c.Limit.OnlyName() || c.Limit.r.timed() }

// resolve returns charges with the limits that hold now in the place of names: all of one
// version. Those of the caller stay as they are.
func (l *Limiter) resolve(ctx context.Context, charges []Charge, a attempts) ([]Charge, error) {
	resolved := make([]Charge, len(charges)) // not by slices.Clone, for which charges would be on the heap
	copy(resolved, charges)
	if err := l.find(ctx, resolved); err != nil {
		return nil, err
	}
	l.setCurrent(resolved, a)
	return resolved, nil
}

// find puts limits in the place of names, if there are any. After an error nothing was charged, also where the context
// has ended.
func (l *Limiter) find(ctx context.Context, charges []Charge) error {
	i := slices.IndexFunc(charges, func(c Charge) bool { return c.Limit.OnlyName() })
	if i < 0 {
		return nil
	}
	if l.names == nil {
		return errNameOnly(charges[i].Limit)
	}
	err := l.names.FindAll(ctx, charges)
	if err != nil && store.Class(err) == nil {
		return fmt.Errorf("%w: the limit was not found out: %w", store.ErrUnavailable, err)
	}
	return err
}

func errNameOnly(l Limit) error {
	return fmt.Errorf("%w: %q: the Limiter has no Names; make the limit with ParseNamed or NewLimit, or give it a "+
		"catalog.Catalog", ErrUnknownLimit, l.Name())
}

// setCurrent puts what limits are now in their place, as far as this process knows.
func (l *Limiter) setCurrent(charges []Charge, a attempts) {
	for i := range charges {
		charges[i].Limit = l.current(charges[i].Limit, a, i)
	}
}

// current returns what the limit of the charge i is now, as far as this process knows.
func (l *Limiter) current(limit Limit, a attempts, i int) Limit {
	if !limit.r.timed() {
		return limit
	}
	ahead := l.ahead.Load()
	if a.stale != nil && i < len(a.stale.ahead) {
		ahead = a.stale.ahead[i]
	}
	return Limit{limit.r.at(l.clock() + ahead)}
}

// errStale is the error of a request that was asked by a limit that does not hold at the
// store's time. Nothing was done.
var errStale = fmt.Errorf("%w: the store's time keeps leaving the time for which a limit holds", store.ErrSetup)

// staleError is errStale, and how far the times at which the charges are decided are ahead of
// this machine's clock. They can differ: several servers have several clocks, and a cell may
// stand ahead of its own.
type staleError struct{ ahead []int64 }

func (e *staleError) Error() string { return errStale.Error() }

func (e *staleError) Unwrap() error { return errStale }

// mostAttempts is how often a request is made, at most, until its limits hold at the store's time.
const mostAttempts = 4

// attempts are those of one request. The zero attempts are none.
type attempts struct {
	n     int
	stale *staleError // of the last one; nil: another error, or none
}

// another reports whether the request is to be made again, by the limits that hold at the store's time.
func (a *attempts) another(err error) bool {
	if err == nil {
		return false
	}
	a.n++
	stale, ok := errors.AsType[*staleError](err)
	a.stale = stale
	return ok && a.n < mostAttempts
}

// stale learns the store's time from outcomes of one request. It returns nil if each of its limits
// held then.
func (l *Limiter) stale(ops []law.Op, outs []law.Outcome) *staleError {
	stale := func(i int) bool {
		now := outs[i].Clock
		return outs[i].Stale && (now < ops[i].From || ops[i].Until != 0 && now >= ops[i].Until)
	}
	here := l.clock()
	for i := range ops {
		if !stale(i) {
			continue
		}
		l.ahead.Store(outs[i].Clock - here)
		e := &staleError{make([]int64, len(ops))}
		for k := range ops {
			if e.ahead[k] = l.ahead.Load(); outs[k].Clock > 0 {
				e.ahead[k] = ops[k].DecidedAt(&outs[k]) - here
			}
		}
		return e
	}
	return nil
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
// error alone does not tell whether the store was asked: its class is otherwise.
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
