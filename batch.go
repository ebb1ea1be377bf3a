package headgate

import (
	"cmp"
	"context"
	"time"

	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/law"
)

// Request is one of several that are asked together.
type Request struct {
	Charges []Charge // admitted all or none
	Check   bool     // ask without consuming

	// ID and Life make it a request that is charged once: see [Limiter.Once]. A
	// zero Life is DefaultLife.
	ID   string
	Life time.Duration
}

// Answer is what became of a Request.
type Answer struct {
	Decision Decision
	Err      error // the request failed alone: invalid, or refused by the store
}

// Batch asks about many requests in one round trip, as if they were asked one
// after another in order. A request that is invalid fails alone; an error of
// Batch itself means that nothing is known about any of them.
func (l *Limiter) Batch(ctx context.Context, requests []Request) ([]Answer, error) {
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
		l.observer.Decided(ctx, e)
	}
	return answers, err
}

func (l *Limiter) batch(ctx context.Context, requests []Request) ([]Answer, error) {
	answers := make([]Answer, len(requests))
	charges := 0
	for i := range requests {
		charges += len(requests[i].Charges)
	}
	ops := make([]law.Op, 0, charges)
	ends := make([]int, len(requests)) // in ops, of each request
	var cals []*calendar
	for i := range requests {
		r := &requests[i]
		verb := law.Take
		if r.Check {
			verb = law.Check
		}
		start := len(ops)
		group := ops[start : start+len(r.Charges)]
		err := takeable(r.Charges)
		if err == nil {
			err = l.compile(group, verb, uint32(i+1), r.Charges)
		}
		if id := (once{r.ID, r.Life}); err == nil && id != (once{}) {
			err = id.name(group)
		}
		if answers[i].Err = err; err == nil {
			ops = ops[:start+len(group)]
			cals = calendars(cals, start, r.Charges)
		}
		ends[i] = len(ops)
	}
	outs := make([]law.Outcome, len(ops))
	if len(ops) > 0 {
		if err := l.apply(ctx, ops, outs, cals); err != nil {
			return nil, err
		}
	}
	start := 0
	for i, end := range ends {
		if answers[i].Err == nil {
			if err := cmp.Or(outs[start].Err, ahead(outs[start:end])); err != nil {
				answers[i].Err = err
			} else {
				answers[i].Decision = decide(ops[start:end], outs[start:end])
			}
		}
		start = end
	}
	return answers, nil
}
