package headgate

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// call is one call about charges, of any verb.
type call struct {
	l        *Limiter
	asked    []Charge // the caller's
	resolved []Charge // nil: as asked
}

// charges returns the charges by the limits that hold now, within do.
func (c *call) charges() []Charge {
	if c.resolved != nil {
		return c.resolved
	}
	return c.asked
}

// do calls decide with the charges resolved, and again if the store decided at a time at which their limits did not
// hold. All of it may take so long; 0: as long as the context lasts. The charges are no parameter
// of decide, and are not written to c: those of each caller would be on the heap.
func (c *call) do(ctx context.Context, most time.Duration, decide func(context.Context) error) (err error) {
	if !slices.ContainsFunc(c.asked, Charge.unresolved) {
		return decide(ctx) // asks one question, which has a deadline of its own
	}
	if _, waits := ctx.(waiter); !waits {
		var d deadline
		ctx, d = withDeadline(ctx, most)
		defer d.end(&err, store.ErrUnknownOutcome)
	}
	for r := (retries{}); ; {
		if c.resolved, err = c.l.resolve(ctx, c.asked, r); err == nil {
			err = decide(ctx)
		}
		if !r.due(err) {
			return err
		}
	}
}

// observed does what decides, and tells the observer.
func (l *Limiter) observed(ctx context.Context, verb Verb, charges []Charge, do func() (Decision, error)) (
	Decision, error,
) {
	if l.observer == nil {
		return do()
	}
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
	e.Charges = *list
	if len(charges) > 0 {
		e.Limit = charges[0].Limit.Name()
	}
	l.observer.Decided(ctx, *e)
	clear(*list)
	told.Put(list)
}

// told are lists of charges that observers were told of.
var told = sync.Pool{New: func() any { return new([]Charge) }}

// waiter is the context of a call that waits: only its deadline bounds the requests to
// the store.
type waiter struct{ context.Context }

// deadline is the Limiter's own for one call. The zero deadline is none.
type deadline struct {
	asked   context.Context // the caller's
	own     context.Context
	cancel  context.CancelFunc
	timeout time.Duration
}

// withDeadline returns the context to ask the store with, for what may take so long; 0: as long as the context lasts.
func withDeadline(ctx context.Context, most time.Duration) (context.Context, deadline) {
	if w, ok := ctx.(waiter); ok {
		return store.WithPatience(w.Context), deadline{}
	}
	if most == 0 {
		return ctx, deadline{}
	}
	if end, ok := ctx.Deadline(); ok && sched.Until(end) <= most {
		return ctx, deadline{}
	}
	d := deadline{asked: ctx, timeout: most}
	d.own, d.cancel = sched.WithTimeout(ctx, most)
	return d.own, d
}

// end ends the deadline, and explains an error that came by it. A context
// error alone does not tell whether the store was asked: its class is otherwise.
func (d *deadline) end(err *error, otherwise error) {
	if d.cancel == nil {
		return
	}
	defer d.cancel()
	*err = d.explain(*err, otherwise)
}

// explain says of an error that came by the deadline how long it was.
func (d *deadline) explain(err, otherwise error) error {
	if d.cancel == nil || err == nil || d.own.Err() == nil || d.asked.Err() != nil {
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
		return l.soonest
	}
	return l.timeout // what the store must know later is not answered by anything else
}
