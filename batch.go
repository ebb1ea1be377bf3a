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

	// ID makes it a request that is charged once, and is remembered for Life: see [Limiter.Once]. A zero Life is
	// DefaultLife.
	ID   string
	Life time.Duration
}

// BatchResult is the result of one Request.
type BatchResult struct {
	Decision Decision
	Err      error // the error of this request alone: it was invalid, or the store returned an error for it
}

// Batch decides many requests in one round trip, as if they came one after another. An invalid request fails alone.
// An error of Batch itself means that nothing is known about any of them.
func (l *Limiter) Batch(ctx context.Context, requests []Request) ([]BatchResult, error) {
	if l.observer == nil {
		return l.batch(ctx, requests)
	}
	begin := sched.Now()
	answers, err := l.batch(ctx, requests)
	took := sched.Since(begin)
	for i := range requests {
		e := Event{Verb: VerbTake, Err: err, Took: took}
		if requests[i].Check {
			e.Verb = VerbCheck
		}
		if err == nil {
			e.Decision, e.Err = answers[i].Decision, answers[i].Err
		}
		l.report(ctx, &e, requests[i].Charges)
	}
	return answers, err
}

// batchRequest is the progress of one Request in a batch.
type batchRequest struct {
	*Request
	charges  []Charge // the charges with the limits in force
	attempts attempts
	request  request // this request's part of the round trip
	answer   *BatchResult
}

// batch decides requests, and retries those whose limits were not in force at the store's time.
func (l *Limiter) batch(ctx context.Context, requests []Request) (answers []BatchResult, err error) {
	if slices.ContainsFunc(requests, Request.needsLookup) {
		var deadline callDeadline
		ctx, deadline = withDeadline(ctx, l.shortTimeout)
		defer func() {
			for i := range answers {
				if answer := &answers[i]; errors.Is(answer.Err, context.DeadlineExceeded) {
					answer.Err = deadline.explain(answer.Err, store.ErrUnknownOutcome)
				}
			}
			deadline.end(&err, store.ErrUnknownOutcome)
		}()
	}
	answers = make([]BatchResult, len(requests))
	states, pending := make([]batchRequest, len(requests)), make([]*batchRequest, len(requests))
	for i := range requests {
		states[i].Request, states[i].answer = &requests[i], &answers[i]
		pending[i] = &states[i]
	}
	if err := l.decideBatch(ctx, pending); err != nil {
		return nil, err
	}
	for {
		pending = slices.DeleteFunc(pending, func(b *batchRequest) bool {
			return !b.attempts.shouldRetry(b.answer.Err)
		})
		if len(pending) == 0 {
			return answers, nil
		}
		if err := l.decideBatch(ctx, pending); err != nil {
			for _, b := range pending { // the others have their decisions
				b.answer.Err = err
			}
		}
	}
}

// decideBatch resolves the limits of requests, and decides the valid ones in one round trip.
func (l *Limiter) decideBatch(ctx context.Context, requests []*batchRequest) error {
	l.resolveBatch(ctx, requests)
	n := 0
	for _, b := range requests {
		n += len(b.charges)
	}
	combined, end := newRequest(n), 0
	for i, b := range requests {
		b.request = *combined.part(end, end+len(b.charges))
		if b.answer.Err == nil {
			b.answer.Err = b.compile(l.clock, uint32(i+1))
		}
		if b.answer.Err == nil {
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
		if a := b.answer; a.Err == nil {
			if a.Err = cmp.Or(b.request.outs[0].Err, b.request.startsLater()); a.Err == nil {
				a.Decision = b.request.decision()
			}
		}
	}
	return nil
}

// compile turns the request into valid ops of the group.
func (b *batchRequest) compile(clock store.Clock, group uint32) error {
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

// resolveBatch looks up the limits of all requests together, and sets the limits in force. An invalid request fails
// alone.
func (l *Limiter) resolveBatch(ctx context.Context, requests []*batchRequest) {
	var unresolved []*batchRequest
	var charges []Charge
	for _, b := range requests {
		*b.answer = BatchResult{}
		if b.charges = b.Charges; b.needsLookup() {
			unresolved, charges = append(unresolved, b), append(charges, b.Charges...)
		}
	}
	remaining := charges
	for _, b := range unresolved {
		b.charges, remaining = remaining[:len(b.Charges)], remaining[len(b.Charges):]
	}
	l.findBatch(ctx, charges, unresolved)
	for _, b := range unresolved {
		if b.answer.Err == nil {
			l.setCurrent(b.charges, b.attempts)
		}
	}
}

// findBatch finds the limits of requests, to which the charges belong. It bisects the list to find invalid requests.
func (l *Limiter) findBatch(ctx context.Context, charges []Charge, requests []*batchRequest) {
	err := l.find(ctx, charges)
	switch {
	case err == nil:
	case len(requests) == 1 || !errors.Is(err, ErrInvalid):
		for _, b := range requests {
			b.answer.Err = err
		}
	default:
		half, split := len(requests)/2, 0
		for k, b := range requests {
			if copy(b.charges, b.Charges); k < half {
				split += len(b.charges)
			}
		}
		l.findBatch(ctx, charges[:split], requests[:half])
		l.findBatch(ctx, charges[split:], requests[half:])
	}
}
