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
	if slices.ContainsFunc(requests, Request.unresolved) {
		var d callDeadline
		ctx, d = withDeadline(ctx, l.soonest())
		defer func() {
			for i := range answers {
				if a := &answers[i]; errors.Is(a.Err, context.DeadlineExceeded) {
					a.Err = d.explain(a.Err, store.ErrUnknownOutcome)
				}
			}
			d.end(&err, store.ErrUnknownOutcome)
		}()
	}
	answers, err = l.batchOnce(ctx, requests, nil)
	var retried []attempts // of each request
	for err == nil {
		var stale []Request
		var index []int
		for i := range answers {
			if !errors.Is(answers[i].Err, errStale) {
				continue
			}
			if retried == nil {
				retried = make([]attempts, len(requests))
			}
			if retried[i].another(answers[i].Err) {
				stale, index = append(stale, requests[i]), append(index, i)
			}
		}
		if stale == nil {
			break
		}
		by := make([]attempts, len(index))
		for k, i := range index {
			by[k] = retried[i]
		}
		more, err := l.batchOnce(ctx, stale, by)
		for k, i := range index {
			if answers[i].Err = err; err == nil { // of the others is known what was decided
				answers[i] = more[k]
			}
		}
	}
	return answers, err
}

// unresolved reports whether it is to be found out which limits hold.
func (r Request) unresolved() bool { return slices.ContainsFunc(r.Charges, Charge.unresolved) }

// resolution is the charges of a request with the limits that hold now.
type resolution struct {
	asked, charges []Charge
	err            error
}

// resolveAll resolves several requests; retried says how often each was made again, nil: none was. The names of all
// are looked up together. A look-up that finds fault with a request fails it alone.
func (l *Limiter) resolveAll(ctx context.Context, requests []Request, retried []attempts) []resolution {
	list := make([]resolution, len(requests))
	unresolved := 0
	for i := range requests {
		if list[i].charges = requests[i].Charges; requests[i].unresolved() {
			unresolved += len(requests[i].Charges)
		}
	}
	if unresolved == 0 {
		return list
	}
	all := make([]Charge, 0, unresolved)
	var changed []*resolution // those whose charges are parts of all, in its order
	for i := range requests {
		if requests[i].unresolved() {
			n := len(all)
			all = append(all, requests[i].Charges...)
			list[i].asked, list[i].charges = requests[i].Charges, all[n:len(all):len(all)]
			changed = append(changed, &list[i])
		}
	}
	l.findAll(ctx, all, changed)
	for i := range list {
		if list[i].err == nil && requests[i].unresolved() {
			var r attempts
			if retried != nil {
				r = retried[i]
			}
			l.setCurrent(list[i].charges, r)
		}
	}
	return list
}

// findAll finds the limits of several requests, whose charges are parts of all. If one of them is wrong it
// looks up halves, until it is known which.
func (l *Limiter) findAll(ctx context.Context, all []Charge, list []*resolution) {
	err := l.find(ctx, all)
	switch {
	case err == nil:
	case len(list) == 1 || !errors.Is(err, ErrInvalid):
		for _, r := range list {
			r.err = err
		}
	default:
		half, n := len(list)/2, 0
		for k, r := range list {
			if copy(r.charges, r.asked); k < half {
				n += len(r.charges)
			}
		}
		l.findAll(ctx, all[:n], list[:half])
		l.findAll(ctx, all[n:], list[half:])
	}
}

func (l *Limiter) batchOnce(ctx context.Context, requests []Request, retried []attempts) ([]Answer, error) {
	answers := make([]Answer, len(requests))
	n := 0
	for i := range requests {
		n += len(requests[i].Charges)
	}
	all := newRequest(n)
	ends := make([]int, len(requests)) // in all, of each request
	start := 0
	for i, resolved := range l.resolveAll(ctx, requests, retried) {
		err := resolved.err
		if err == nil {
			r := all.part(start, start+len(resolved.charges))
			if err = l.compileOne(r, uint32(i+1), &requests[i], resolved.charges); err == nil {
				start += len(r.ops)
			}
		}
		answers[i].Err, ends[i] = err, start
	}
	all = all.part(0, start)
	if start > 0 {
		if err := l.apply(ctx, all); err != nil {
			return nil, err
		}
	}
	start = 0
	for i, end := range ends {
		if a := &answers[i]; a.Err == nil {
			r := all.part(start, end)
			if a.Err = cmp.Or(r.outs[0].Err, r.startsLater()); a.Err == nil {
				a.Decision = r.decision()
			}
		}
		start = end
	}
	return answers, nil
}

// compileOne turns one request of several into its ops.
func (l *Limiter) compileOne(r *request, group uint32, asked *Request, charges []Charge) error {
	q := &takeQuestion
	if asked.Check {
		q = &checkQuestion
	}
	if err := l.compile(r, group, q, charges); err != nil {
		return err
	}
	if id := (requestID{asked.ID, asked.Life}); id != (requestID{}) {
		if err := id.set(r); err != nil {
			return err
		}
	}
	return r.valid()
}
