package headgate

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
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
		l.tell(ctx, &e, requests[i].Charges)
	}
	return answers, err
}

// batch asks again about those requests whose limits did not hold at the store's time.
func (l *Limiter) batch(ctx context.Context, requests []Request) (answers []Answer, err error) {
	if slices.ContainsFunc(requests, Request.unclear) {
		var b bound
		ctx, b = l.boundBy(ctx, l.soonest())
		defer func() {
			for i := range answers {
				if a := &answers[i]; errors.Is(a.Err, context.DeadlineExceeded) {
					a.Err = b.explain(a.Err, store.ErrUnknownOutcome)
				}
			}
			b.end(&err, store.ErrUnknownOutcome)
		}()
	}
	answers, err = l.batchOnce(ctx, requests, nil)
	var again []tries // of each request
	for err == nil {
		var late []Request
		var index []int
		for i := range answers {
			if !errors.Is(answers[i].Err, errUntimely) {
				continue
			}
			if again == nil {
				again = make([]tries, len(requests))
			}
			if again[i].again(answers[i].Err) {
				late, index = append(late, requests[i]), append(index, i)
			}
		}
		if late == nil {
			break
		}
		by := make([]tries, len(index))
		for k, i := range index {
			by[k] = again[i]
		}
		more, err := l.batchOnce(ctx, late, by)
		for k, i := range index {
			if answers[i].Err = err; err == nil { // of the others is known what was decided
				answers[i] = more[k]
			}
		}
	}
	return answers, err
}

// unclear reports whether it is to be found out which limits hold.
func (r Request) unclear() bool { return slices.ContainsFunc(r.Charges, Charge.unclear) }

// meaning is the charges of a request, as meant returns them.
type meaning struct {
	asked, charges []Charge
	err            error
}

// meantAll is meant for several requests; again are their tries, nil: the first. The names of all
// are looked up together. A look-up that finds fault with a request fails it alone.
func (l *Limiter) meantAll(ctx context.Context, requests []Request, again []tries) []meaning {
	list := make([]meaning, len(requests))
	unclear := 0
	for i := range requests {
		if list[i].charges = requests[i].Charges; requests[i].unclear() {
			unclear += len(requests[i].Charges)
		}
	}
	if unclear == 0 {
		return list
	}
	all := make([]Charge, 0, unclear)
	var changed []*meaning // those whose charges are parts of all, in its order
	for i := range requests {
		if requests[i].unclear() {
			n := len(all)
			all = append(all, requests[i].Charges...)
			list[i].asked, list[i].charges = requests[i].Charges, all[n:len(all):len(all)]
			changed = append(changed, &list[i])
		}
	}
	l.findAll(ctx, all, changed)
	for i := range list {
		if list[i].err == nil && requests[i].unclear() {
			var t tries
			if again != nil {
				t = again[i]
			}
			l.presentAll(list[i].charges, t)
		}
	}
	return list
}

// findAll is find for several requests, whose charges are parts of all. If one of them is wrong it
// looks up halves, until it is known which.
func (l *Limiter) findAll(ctx context.Context, all []Charge, list []*meaning) {
	err := l.find(ctx, all)
	switch {
	case err == nil:
	case len(list) == 1 || !errors.Is(err, ErrInvalid):
		for _, m := range list {
			m.err = err
		}
	default:
		half, n := len(list)/2, 0
		for k, m := range list {
			if copy(m.charges, m.asked); k < half {
				n += len(m.charges)
			}
		}
		l.findAll(ctx, all[:n], list[:half])
		l.findAll(ctx, all[n:], list[half:])
	}
}

func (l *Limiter) batchOnce(ctx context.Context, requests []Request, again []tries) ([]Answer, error) {
	answers := make([]Answer, len(requests))
	charges := 0
	for i := range requests {
		charges += len(requests[i].Charges)
	}
	ops := make([]law.Op, 0, charges)
	ends := make([]int, len(requests)) // in ops, of each request
	var cals []*calendar
	applied := make([][]string, len(requests))
	meant := l.meantAll(ctx, requests, again)
	for i := range requests {
		r := &requests[i]
		verb := law.Take
		if r.Check {
			verb = law.Check
		}
		start := len(ops)
		group := ops[start : start+len(r.Charges)]
		charges, err := meant[i].charges, meant[i].err
		if err == nil {
			err = takeable(charges)
		}
		if err == nil {
			err = l.compile(group, verb, uint32(i+1), charges)
		}
		if id := (once{r.ID, r.Life}); err == nil && id != (once{}) {
			err = id.name(group)
		}
		if answers[i].Err = err; err == nil {
			ops = ops[:start+len(group)]
			cals = calendars(cals, start, charges)
			applied[i] = reasons(charges)
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
				answers[i].Decision = decide(ops[start:end], outs[start:end], applied[i])
			}
		}
		start = end
	}
	return answers, nil
}
