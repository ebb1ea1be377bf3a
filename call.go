package headgate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// The specs of Take and Check.
var (
	takeSpec  = verbSpec{reportAs: VerbTake, verb: law.Take, limits: notConcurrency, toCredits: Cost.chargeCredits}
	checkSpec = verbSpec{reportAs: VerbCheck, verb: law.Check, limits: notConcurrency, toCredits: Cost.chargeCredits}
)

// Allow takes one unit of a limit for a key.
func (l *Limiter) Allow(ctx context.Context, limit Limit, key string) (Decision, error) {
	return l.Take(ctx, Charge{Limit: limit, Key: key})
}

// AllowN takes n units of a limit for a key, all or none. n is 1 or more; a cost with a fraction is for [Limiter.Take].
func (l *Limiter) AllowN(ctx context.Context, limit Limit, key string, n int64) (Decision, error) {
	return l.Take(ctx, Charge{Limit: limit, Key: key, Cost: Units(n)})
}

// Take takes all of the charges, or none. Errors are ErrInvalid if the charges are invalid, or the store's. With an
// error, do not assume that anything was admitted.
func (l *Limiter) Take(ctx context.Context, charges ...Charge) (d Decision, err error) {
	if l.observer == nil && len(charges) == 1 && l.takeOne(ctx, &d, &charges[0]) {
		return d, nil
	}
	return l.call(ctx, &takeSpec, charges)
}

// Check reports whether Take would admit the charges now, and takes nothing: Remaining and ResetAfter are as they are
// now, not as they would be after a Take.
func (l *Limiter) Check(ctx context.Context, charges ...Charge) (Decision, error) {
	return l.call(ctx, &checkSpec, charges)
}

// FillUpResult is the result of a FillUp.
type FillUpResult struct {
	Accepted Cost // the cost that was taken, rounded down to a millionth or the limit's digits; may be all or nothing
	Level    Cost // cost in use afterwards, rounded up likewise
	Brim     bool // the level has reached the capacity
	Decision Decision
}

// FillUp takes as much of a charge as fits, less its Keep. Decision.Allowed reports whether anything was taken.
func (l *Limiter) FillUp(ctx context.Context, charge Charge) (f FillUpResult, err error) {
	spec := verbSpec{reportAs: VerbFillUp, verb: law.Take, limits: notConcurrency, toCredits: Cost.chargeCredits}
	spec.prepare = func(r *request) error {
		if op := &r.ops[0]; !isClosed(&op.Params) {
			op.Count, op.Cost, op.Partial = op.Cost, 1, true
		}
		return nil
	}
	spec.read = func(_ context.Context, r *request) (Decision, error) {
		op, out := &r.ops[0], &r.outs[0]
		f = FillUpResult{
			Accepted: costOf(out.Granted, &op.Params, false),
			Level:    costOf(out.Used, &op.Params, true),
			Brim:     out.Used >= op.Params.Capacity,
			Decision: r.decision(),
		}
		spec.accepted = f.Accepted
		return f.Decision, nil
	}
	_, err = l.call(ctx, &spec, []Charge{charge})
	return f, err
}

// call decides one request of any verb: it finds the limits, calls the store, and reports to the observer. It does not
// let the caller's charges escape to the heap.
func (l *Limiter) call(ctx context.Context, spec *verbSpec, charges []Charge) (d Decision, err error) {
	if l.store == nil {
		return d, errNoStore
	}
	var begin time.Time
	observed := l.observer != nil && spec.reportAs != ""
	if observed {
		begin = sched.Now()
	}
	if slices.ContainsFunc(charges, Charge.needsLookup) {
		d, err = l.resolveAndDecide(ctx, spec, charges)
	} else {
		d, err = l.decideCharges(ctx, spec, charges)
	}
	if observed {
		took := sched.Since(begin)
		l.report(ctx, &Event{Verb: spec.reportAs, Decision: d, Err: err, Took: took, Accepted: spec.accepted}, charges)
	}
	return d, err
}

// resolveAndDecide decides by the limits that are in force now, and retries if they were not in force at the store's
// time. All attempts share one deadline.
func (l *Limiter) resolveAndDecide(ctx context.Context, spec *verbSpec, charges []Charge) (d Decision, err error) {
	if spec == &takeSpec && len(charges) == 1 && l.takeByCachedLimit(ctx, &d, charges[0]) {
		return d, nil // a deadline would cost more than this answer
	}
	// withDeadline would unwrap a waitingContext, and apply would then set a timeout.
	if _, waits := ctx.(waitingContext); !waits {
		timeout := l.timeout
		if !spec.fullTimeout {
			timeout = l.shortTimeout
		}
		var deadline callDeadline
		ctx, deadline = withDeadline(ctx, timeout)
		defer deadline.end(&err, store.ErrUnknownOutcome)
	}
	for a := (attempts{}); ; {
		resolved, err := l.resolve(ctx, charges, a)
		if err == nil {
			d, err = l.decideCharges(ctx, spec, resolved)
		}
		if !a.countFailure(err) {
			return d, err
		}
	}
}

// decideCharges compiles charges whose limits are resolved into a request, and has the store decide it.
func (l *Limiter) decideCharges(ctx context.Context, spec *verbSpec, charges []Charge) (d Decision, err error) {
	if spec == &takeSpec && len(charges) == 1 && l.takeOne(ctx, &d, &charges[0]) {
		return d, nil
	}
	s := scratches.Get().(*scratch)
	defer s.free()
	r := s.request(len(charges))
	if err := r.compile(l.clock, 1, spec, charges); err != nil {
		return d, err
	}
	if spec.prepare != nil {
		if err := spec.prepare(r); err != nil {
			return d, err
		}
	}
	if err := r.valid(); err != nil {
		return d, err
	}
	if err := l.decide(ctx, r); err != nil {
		return d, err
	}
	if spec.read != nil {
		return spec.read(ctx, r)
	}
	return r.decision(), nil
}

// decide applies the ops of a request. It returns the error of the call, or else the first of an outcome.
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

// apply applies requests, and repeats those whose calendar boundaries did not contain the store's time.
func (l *Limiter) apply(ctx context.Context, r *request) (err error) {
	ctx, deadline := withDeadline(ctx, l.timeoutFor(r.ops))
	defer deadline.end(&err, store.ErrUnknownOutcome)
	if err := l.store.Apply(ctx, r.ops, r.outs); err != nil {
		store.Void(r.outs)
		return err
	}
	if r.isStale() {
		l.refreshAll(ctx, r)
	}
	l.tellCrossings(ctx, r)
	return nil
}

// refreshAll repeats the requests whose calendar boundaries did not contain the store's time.
func (l *Limiter) refreshAll(ctx context.Context, r *request) {
	for i, j := 0, law.GroupEnd(r.ops, 0); i < len(r.ops); i, j = j, law.GroupEnd(r.ops, j) {
		l.refresh(ctx, r.part(i, j))
	}
}

// refresh repeats one request while the store's time lies outside its calendar boundaries. An error goes into the
// outcomes of this request, since others in the batch were decided. It clears Stale, which ends the loop.
func (l *Limiter) refresh(ctx context.Context, r *request) {
	for attempt := 1; r.isStale(); attempt++ {
		var err error
		switch stale := l.checkStale(r.ops, r.outs); {
		case attempt == maxAttempts: // the store's clock jumps
			err = fmt.Errorf("%w: the store's time keeps leaving the calendar of %q", store.ErrSetup,
				r.ops[0].Cell.Limit)
		case stale != nil:
			err = stale
		default:
			clock := int64(0) // for alternatives that were not tried
			for i := range r.ops {
				clock = max(clock, r.outs[i].Clock)
			}
			for i := range r.ops {
				if cal := r.limits[i].rule().calendar; cal != nil && (r.outs[i].Stale || r.ops[i].Alternative > 0) {
					r.ops[i].Window = cal.bounds(cmp.Or(r.outs[i].Clock, clock))
				}
			}
			err = l.store.Apply(ctx, r.ops, r.outs)
		}
		if err != nil {
			law.FailAll(r.outs, err)
		}
	}
}

// callOne applies one op that charges nothing to a key, and returns the limit in force with the op and its outcome. set
// completes the op; it may be nil.
func (l *Limiter) callOne(ctx context.Context, verb law.Verb, limit Limit, key string, set func(*law.Op)) (
	inForce Limit, op law.Op, out law.Outcome, err error,
) {
	spec := verbSpec{verb: verb, toCredits: Cost.chargeCredits, fullTimeout: true}
	spec.prepare = func(r *request) error {
		if set != nil {
			set(&r.ops[0])
		}
		return nil
	}
	spec.read = func(_ context.Context, r *request) (none Decision, err error) {
		inForce, op, out = r.limits[0], r.ops[0], r.outs[0]
		return none, nil
	}
	_, err = l.call(ctx, &spec, []Charge{{Limit: limit, Key: key}})
	return inForce, op, out, err
}

// takeOne decides a single charge within this process, if the store can, and writes the decision into d, which is zero.
// If it reports false, it has charged nothing, and the caller takes the long way, which also reports invalid charges.
func (l *Limiter) takeOne(ctx context.Context, d *Decision, c *Charge) bool {
	r := c.Limit.r
	if l.oneTaker == nil || r == nil || !r.plain || !c.Keep.IsZero() || c.Alternative != 0 {
		return false
	}
	credits := r.params.Unit
	if !c.Cost.IsZero() {
		var err error
		if credits, err = c.Cost.chargeCredits(&r.params); err != nil {
			return false
		}
	}
	b, decided := l.oneTaker.TakeOne(ctx, law.Cell{Limit: r.name, Key: c.Key}, &r.params, credits)
	if decided {
		d.LimitName, d.Key, d.Applied = r.name, c.Key, r.applied
		d.Capacity, d.CapacityNanos = r.capacity, r.capacityNanos
		d.derive(&r.params, &b, nil)
	}
	return decided
}

// takeByCachedLimit decides a charge of a limit given by name within this process, and reports whether it did. It does
// not look up a limit that is not in memory.
func (l *Limiter) takeByCachedLimit(ctx context.Context, d *Decision, c Charge) bool {
	if l.cachingNames == nil || !c.Limit.OnlyName() {
		return false
	}
	limit, ok := l.cachingNames.Known(c.Limit.r.name, c.Key)
	if !ok {
		return false
	}
	c.Limit = l.limitInForce(limit, attempts{}, 0)
	return l.takeOne(ctx, d, &c)
}

// needsLookup reports whether the limit of a charge has to be looked up: only its name is known, or it is in force for
// a limited time.
func (c Charge) needsLookup() bool { return c.Limit.OnlyName() || c.Limit.r.isTimed() }

// resolve returns a copy of the charges with the limits that are in force now, all of one version of the catalog.
func (l *Limiter) resolve(ctx context.Context, charges []Charge, a attempts) ([]Charge, error) {
	resolved := make([]Charge, len(charges)) // slices.Clone would move charges to the heap
	copy(resolved, charges)
	if err := l.find(ctx, resolved); err != nil {
		return nil, err
	}
	l.setLimitsInForce(resolved, a)
	return resolved, nil
}

// find replaces limits that have only a name by the limits that Names finds. Its errors say that nothing was charged,
// even if the context has ended.
func (l *Limiter) find(ctx context.Context, charges []Charge) error {
	onlyName := func(c Charge) bool { return c.Limit.OnlyName() }
	i := slices.IndexFunc(charges, onlyName)
	if i >= 0 && l.names != nil {
		if err := l.names.FindAll(ctx, charges); err != nil {
			if store.Class(err) == nil {
				err = fmt.Errorf("%w: the limit was not found out: %w", store.ErrUnavailable, err)
			}
			return err
		}
		i = slices.IndexFunc(charges, onlyName)
	}
	if i < 0 {
		return nil
	}
	return fmt.Errorf("%w: %q: the Limiter has no Names; make the limit with ParseNamed or NewLimit, or give it a "+
		"catalog.Catalog", ErrUnknownLimit, charges[i].Limit.Name())
}

// setLimitsInForce replaces each limit by the one in force at the store's time, as far as this process knows that time.
func (l *Limiter) setLimitsInForce(charges []Charge, a attempts) {
	for i := range charges {
		charges[i].Limit = l.limitInForce(charges[i].Limit, a, i)
	}
}

// limitInForce returns the limit in force for charge i at the store's time, as far as this process knows that time.
func (l *Limiter) limitInForce(limit Limit, a attempts, i int) Limit {
	if !limit.r.isTimed() {
		return limit
	}
	ahead := l.clockAhead.Load()
	if a.stale != nil && i < len(a.stale.ahead) {
		ahead = a.stale.ahead[i]
	}
	return Limit{limit.r.inForceAt(l.clock() + ahead)}
}

// staleError is the error of a request with a limit that is not in force at the store's time. Nothing was charged.
// ahead says for each charge how far, in microseconds, its decision time is ahead of the Limiter's clock. The values
// can differ: several servers have several clocks, and a cell may be ahead of its server's clock.
type staleError struct{ ahead []int64 }

func (e *staleError) Error() string {
	return store.ErrSetup.Error() + ": the store's time keeps leaving the time for which a limit holds"
}

func (e *staleError) Unwrap() error { return store.ErrSetup }

// maxAttempts is how often a request is sent at most while its limits are not in force at the store's time, or its
// calendar boundaries do not contain it.
const maxAttempts = 4

// attempts counts the attempts of a request.
type attempts struct {
	n     int
	stale *staleError // the error of the last attempt, if it is a staleError
}

// countFailure counts an attempt if it failed, and reports whether to retry by the limits in force at the store's time.
func (a *attempts) countFailure(err error) bool {
	if err == nil {
		return false
	}
	a.n++
	stale, ok := errors.AsType[*staleError](err)
	a.stale = stale
	return ok && a.n < maxAttempts
}

// checkStale returns an error if a limit of the request was not in force at the store's time, and then stores how far
// the store's clock is ahead; else it returns nil.
func (l *Limiter) checkStale(ops []law.Op, outs []law.Outcome) *staleError {
	isStale := func(i int) bool {
		now := outs[i].Clock
		return outs[i].Stale && (now < ops[i].From || ops[i].Until != 0 && now >= ops[i].Until)
	}
	localTime := l.clock()
	for i := range ops {
		if !isStale(i) {
			continue
		}
		l.clockAhead.Store(outs[i].Clock - localTime)
		e := &staleError{make([]int64, len(ops))}
		for k := range ops {
			if e.ahead[k] = l.clockAhead.Load(); outs[k].Clock > 0 {
				e.ahead[k] = ops[k].DecidedAt(&outs[k]) - localTime
			}
		}
		return e
	}
	return nil
}
