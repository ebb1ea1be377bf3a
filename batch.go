package headgate

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/store"
)

// Request is one request of [Limiter.Batch].
type Request struct {
	Charges []Charge // admitted all or none
	Check   bool     // decide without consuming

	// ID lets the request be charged once, however often it is sent: see [Limiter.Once]. Empty: it has none. The store
	// remembers it for Life; zero: DefaultLife. A Check has neither; a Life needs an ID.
	ID   string
	Life time.Duration
}

// BatchResult is the result of one Request.
type BatchResult struct {
	Decision Decision
	Err      error // the error of this request alone: it was invalid, or the store returned an error for it
}

// Batch decides many requests in one round trip, as if they came one after another. An invalid request fails alone. An
// error of Batch itself is that of all requests: store.NothingDone reports whether it says that nothing was charged.
func (l *Limiter) Batch(ctx context.Context, requests []Request) ([]BatchResult, error) {
	if l.store == nil {
		return nil, errNoStore
	}
	if l.observer == nil {
		return l.batch(ctx, requests)
	}
	begin := sched.Now()
	results, err := l.batch(ctx, requests)
	took := sched.Since(begin)
	for i := range requests {
		e := Event{Verb: VerbTake, Err: err, Took: took}
		if requests[i].Check {
			e.Verb = VerbCheck
		}
		if err == nil {
			e.Decision, e.Err = results[i].Decision, results[i].Err
		}
		l.report(ctx, &e, requests[i].Charges)
	}
	return results, err
}

// requestState is the state of one Request in a batch.
type requestState struct {
	*Request
	charges  []Charge // the charges with the limits in force
	attempts attempts
	request  request // this request's part of the round trip
	result   *BatchResult
}

// batch decides requests, and retries those whose limits were not in force at the store's time.
func (l *Limiter) batch(ctx context.Context, requests []Request) (results []BatchResult, err error) {
	if slices.ContainsFunc(requests, Request.needsLookup) {
		var deadline callDeadline
		ctx, deadline = withDeadline(ctx, l.shortTimeout)
		defer func() {
			for i := range results {
				if result := &results[i]; errors.Is(result.Err, context.DeadlineExceeded) {
					result.Err = deadline.explain(result.Err, store.ErrUnknownOutcome)
				}
			}
			deadline.end(&err, store.ErrUnknownOutcome)
		}()
	}
	results = make([]BatchResult, len(requests))
	states, pending := make([]requestState, len(requests)), make([]*requestState, len(requests))
	for i := range requests {
		states[i].Request, states[i].result = &requests[i], &results[i]
		pending[i] = &states[i]
	}
	if err := l.decideBatch(ctx, pending); err != nil {
		return nil, err
	}
	for {
		pending = slices.DeleteFunc(pending, func(b *requestState) bool {
			return !b.attempts.countFailure(b.result.Err)
		})
		if len(pending) == 0 {
			return results, nil
		}
		if err := l.decideBatch(ctx, pending); err != nil {
			for _, b := range pending { // the others have their decisions
				b.result.Err = err
			}
		}
	}
}

// decideBatch resolves the limits of requests, and decides the valid ones in one round trip. It sets the result of
// each, or returns the error of the round trip.
func (l *Limiter) decideBatch(ctx context.Context, requests []*requestState) error {
	l.resolveBatch(ctx, requests)
	n := 0
	for _, b := range requests {
		n += len(b.charges)
	}
	combined, end := newRequest(n), 0
	for i, b := range requests {
		b.request = *combined.part(end, end+len(b.charges)) // the next one overwrites it if this one is invalid
		if b.result.Err == nil {
			b.result.Err = b.compile(l.clock, uint32(i+1))
		}
		if b.result.Err == nil {
			end += len(b.charges)
		}
	}
	if end == 0 {
		return nil
	}
	if err := l.apply(ctx, combined.part(0, end)); err != nil {
		return err
	}
	for _, b := range requests {
		if r := b.result; r.Err == nil {
			if r.Err = cmp.Or(b.request.outs[0].Err, b.request.checkStart()); r.Err == nil {
				r.Decision = b.request.decision()
			}
		}
	}
	return nil
}

// compile turns the request into ops with the group number, or returns what is wrong with it.
func (b *requestState) compile(clock store.Clock, group uint32) error {
	spec := &takeSpec
	if b.Check {
		spec = &checkSpec
	}
	if err := b.request.compile(clock, group, spec, b.charges); err != nil {
		return err
	}
	if id := (requestID{b.ID, b.Life}); id != (requestID{}) {
		if err := id.set(&b.request); err != nil {
			return err
		}
	}
	return b.request.valid()
}

// needsLookup reports whether the limit of a charge has to be looked up.
func (r Request) needsLookup() bool { return slices.ContainsFunc(r.Charges, Charge.needsLookup) }

// resolveBatch clears the results of requests, looks their limits up, and sets those in force. Invalid ones fail alone.
func (l *Limiter) resolveBatch(ctx context.Context, requests []*requestState) {
	var unresolved []*requestState
	var charges []Charge
	for _, b := range requests {
		*b.result = BatchResult{}
		if b.charges = b.Charges; b.needsLookup() {
			unresolved = append(unresolved, b)
			charges = append(charges, b.Charges...)
		}
	}
	remaining := charges
	for _, b := range unresolved {
		b.charges, remaining = remaining[:len(b.Charges)], remaining[len(b.Charges):]
	}
	l.findLimits(ctx, charges, unresolved)
	for _, b := range unresolved {
		if b.result.Err == nil {
			l.setLimitsInForce(b.charges, b.attempts)
		}
	}
}

// findLimits replaces limits that have only a name in charges, which are those of the requests in their order. If that
// fails since one is invalid, it bisects the requests, so that only the invalid ones fail.
func (l *Limiter) findLimits(ctx context.Context, charges []Charge, requests []*requestState) {
	err := l.find(ctx, charges)
	switch {
	case err == nil:
	case len(requests) == 1 || !errors.Is(err, ErrInvalid):
		for _, b := range requests {
			b.result.Err = err
		}
	default:
		half, chargesOfHalf := len(requests)/2, 0
		for k, b := range requests {
			if copy(b.charges, b.Charges); k < half { // undo what find has replaced before it failed
				chargesOfHalf += len(b.charges)
			}
		}
		l.findLimits(ctx, charges[:chargesOfHalf], requests[:half])
		l.findLimits(ctx, charges[chargesOfHalf:], requests[half:])
	}
}
