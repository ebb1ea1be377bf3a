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

// call decides one request of any verb: it finds the limits, calls the store, and reports to the
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
		l.report(ctx, &Event{Verb: q.observed, Decision: d, Err: err, Took: took, Accepted: q.accepted}, charges)
	}
	return d, err
}

// askResolved decides by the limits that hold now, and again if the store decided at a time at which they did not hold.
// All of it has one deadline.
func (l *Limiter) askResolved(ctx context.Context, q *question, charges []Charge) (d Decision, err error) {
	if q == &takeQuestion && len(charges) == 1 && l.takeKnown(ctx, &d, charges[0]) {
		return d, nil // a deadline would cost more than this answer
	}
	if _, waits := ctx.(waiting); !waits {
		most := l.timeout
		if !q.lasting {
			most = l.soonest
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

// ask calls the store about charges whose limits are known.
func (l *Limiter) ask(ctx context.Context, q *question, charges []Charge) (d Decision, err error) {
	if q == &takeQuestion && len(charges) == 1 && l.takeOne(ctx, &d, &charges[0]) {
		return d, nil
	}
	s := scratches.Get().(*scratch)
	defer s.free()
	r := s.request(len(charges))
	if err := r.compile(l.clock, 1, q, charges); err != nil {
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

// decide applies one request. An error of a single op is the request's.
func (l *Limiter) decide(ctx context.Context, r *request) error {
	if err := l.apply(ctx, r); err != nil {
		return err
	}
	for i := range r.outs {
		if err := r.outs[i].Err; err != nil {
			return err
		}
	}
	return nil
}

// apply applies requests, and applies again those whose calendar boundaries did not contain the store's
// time.
func (l *Limiter) apply(ctx context.Context, r *request) (err error) {
	if l.store == nil {
		return errNoStore
	}
	ctx, d := withDeadline(ctx, l.timeoutFor(r.ops))
	defer d.end(&err, store.ErrUnknownOutcome)
	if err := l.store.Apply(ctx, r.ops, r.outs); err != nil {
		store.Void(r.outs)
		return err
	}
	if !r.stale() {
		return nil
	}
	for i, j := 0, law.GroupEnd(r.ops, 0); i < len(r.ops); i, j = j, law.GroupEnd(r.ops, j) {
		if err := l.refresh(ctx, r.part(i, j)); err != nil {
			return err
		}
	}
	return nil
}

// refresh applies one request again while the store's time lies outside its calendar boundaries. Other
// requests have their answers: its error is that of its outcomes.
func (l *Limiter) refresh(ctx context.Context, r *request) error {
	for attempt := 1; r.stale(); attempt++ {
		if attempt == maxAttempts { // the store's clock is not one
			return fmt.Errorf("%w: the store's time keeps leaving the calendar of %q", store.ErrSetup,
				r.ops[0].Cell.Limit)
		}
		var err error
		if stale := l.stale(r.ops, r.outs); stale != nil {
			err = stale
		} else {
			for i := range r.ops {
				if cal := r.limits[i].calendar(); cal != nil && r.outs[i].Stale {
					r.ops[i].Window = cal.bounds(r.outs[i].Clock)
				}
			}
			err = l.store.Apply(ctx, r.ops, r.outs)
		}
		if err != nil {
			law.FailAll(r.outs, err)
		}
	}
	return nil
}

// callOne makes a call about one key that charges nothing, and returns the limit that holds.
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

// report passes a decision about charges to the observer, which is not nil. They are copied: what is handed to an
// interface lives on the heap, and without an observer no charge has to.
func (l *Limiter) report(ctx context.Context, e *Event, charges []Charge) {
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

// observed has lists of charges for observers.
var observed = sync.Pool{New: func() any { return new([]Charge) }}

// takeOne takes a single charge within this process, if the store can decide about it so, and writes the decision into
// d, which is zero. If it reports false nothing was done, and the long way says what is wrong with
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

// takeKnown takes a single charge of a limit given by name within this process, if the limit is at hand, and reports
// whether it did.
func (l *Limiter) takeKnown(ctx context.Context, d *Decision, c Charge) bool {
	if l.known == nil || !c.Limit.OnlyName() {
		return false
	}
	limit, ok := l.known.Known(c.Limit.r.name, c.Key)
	if !ok {
		return false
	}
	c.Limit = l.current(limit, attempts{}, 0)
	return l.takeOne(ctx, d, &c)
}

// unresolved reports whether the limit of a charge has to be looked up: only its name is
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
	named := func(c Charge) bool { return c.Limit.OnlyName() }
	i := slices.IndexFunc(charges, named)
	if i >= 0 && l.names != nil {
		if err := l.names.FindAll(ctx, charges); err != nil {
			if store.Class(err) == nil {
				err = fmt.Errorf("%w: the limit was not found out: %w", store.ErrUnavailable, err)
			}
			return err
		}
		i = slices.IndexFunc(charges, named)
	}
	if i < 0 {
		return nil
	}
	return fmt.Errorf("%w: %q: the Limiter has no Names; make the limit with ParseNamed or NewLimit, or give it a "+
		"catalog.Catalog", ErrUnknownLimit, charges[i].Limit.Name())
}

// setCurrent replaces limits by their current ones, as far as this process knows.
func (l *Limiter) setCurrent(charges []Charge, a attempts) {
	for i := range charges {
		charges[i].Limit = l.current(charges[i].Limit, a, i)
	}
}

// current returns the current limit of charge i, as far as this process knows.
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

// staleError is the error of a request by a limit that does not hold at the
// store's time. Nothing was done. It says how far the times at which the charges are decided are ahead of
// this machine's clock. They can differ: several servers have several clocks, and a cell may
// stand ahead of its own.
type staleError struct{ ahead []int64 }

func (e *staleError) Error() string {
	return store.ErrSetup.Error() + ": the store's time keeps leaving the time for which a limit holds"
}

func (e *staleError) Unwrap() error { return store.ErrSetup }

// maxAttempts is how often a request is made, at most, until its limits hold at the store's time.
const maxAttempts = 4

// attempts counts the attempts of a request.
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
	return ok && a.n < maxAttempts
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
