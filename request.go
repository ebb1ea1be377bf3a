package headgate

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// request is what is asked of the store at once: for each charge an op, its limit, and then its outcome.
type request struct {
	ops    []law.Op
	outs   []law.Outcome
	limits []Limit
}

func newRequest(n int) *request {
	return &request{make([]law.Op, n), make([]law.Outcome, n), make([]Limit, n)}
}

// part returns the ops from i to before j.
func (r *request) part(i, j int) *request { return &request{r.ops[i:j], r.outs[i:j], r.limits[i:j]} }

// clone returns a request that stays when this one is used for something else.
func (r *request) clone() request {
	return request{slices.Clone(r.ops), slices.Clone(r.outs), slices.Clone(r.limits)}
}

// scratch is where requests of few charges are written.
type scratch struct {
	r      request
	ops    [4]law.Op
	outs   [4]law.Outcome
	limits [4]Limit
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func (s *scratch) request(n int) *request {
	if n > len(s.ops) {
		return newRequest(n)
	}
	s.r = request{s.ops[:n], s.outs[:n], s.limits[:n]}
	return &s.r
}

// free gives the scratch to the next request. Stores keep nothing of a batch
// once they have answered.
func (s *scratch) free() {
	clear(s.r.ops)
	clear(s.r.outs)
	clear(s.r.limits)
	s.r = request{}
	scratches.Put(s)
}

// compile turns the charges of one request into its ops.
func (l *Limiter) compile(r *request, group uint32, q *question, charges []Charge) error {
	if len(charges) == 0 {
		return Invalid("charges", "there is none")
	}
	for i, c := range charges {
		rule := c.Limit.r
		switch {
		case rule == nil:
			return Invalid("limit", "is missing")
		case c.Limit.OnlyName():
			return errNameOnly(c.Limit)
		case q.limits == taken && rule.params.Leased:
			return Invalid("limit", "%s is acquired and released, not taken", c.Limit.Algorithm())
		case q.limits == held && !rule.params.Leased:
			return Invalid("limit", "%s is taken, not acquired", c.Limit.Algorithm())
		}
		cost, err := q.credits(c.Cost, &rule.params)
		if err != nil {
			return err
		}
		op := &r.ops[i]
		*op = law.Op{
			Verb:   q.verb,
			Group:  group,
			Cell:   law.Cell{Limit: rule.name, Key: c.Key},
			Params: rule.params,
			Cost:   cost,
			Count:  1,
			From:   rule.from,
			Until:  rule.until,
		}
		if err := c.Keep.leaves(op); err != nil {
			return err
		}
		if rule.timed() { // what is taken up front would outlast it
			op.Params.Prefetch, op.Params.PrefetchLife = 0, 0
		}
		if rule.calendar != nil {
			op.Window = rule.calendar.bounds(l.clock())
		}
		r.limits[i] = c.Limit
	}
	return nil
}

// valid says what is wrong with the ops of one or more requests, or nil.
func (r *request) valid() error {
	for i, j := 0, 0; i < len(r.ops); i = j {
		j = law.GroupEnd(r.ops, i)
		if err := law.ValidGroup(r.ops[i:j]); err != nil {
			return err
		}
	}
	return nil
}

// unblock makes the ops those of a caller that waits: the block of a limit is for those
// who try without waiting. Limits with a block have no tokens up front, which only
// they could give out.
func (r *request) unblock() error {
	for i := range r.ops {
		if p := &r.ops[i].Params; p.Block > 0 {
			p.Block, p.Prefetch, p.PrefetchLife = 0, 0, 0
		}
	}
	return nil
}

// decide asks the store about one request. An error of a single op is the request's.
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

// apply asks the store about requests, and asks again about those whose calendar boundaries did not contain the store's
// time.
func (l *Limiter) apply(ctx context.Context, r *request) (err error) {
	if l.store == nil {
		return errNoStore
	}
	ctx, d := withDeadline(ctx, l.within(r.ops))
	defer d.end(&err, store.ErrUnknownOutcome)
	if err := l.store.Apply(ctx, r.ops, r.outs); err != nil {
		store.Void(r.outs)
		return err
	}
	if !r.stale() {
		return nil
	}
	for i, j := 0, 0; i < len(r.ops); i = j {
		j = law.GroupEnd(r.ops, i)
		if err := l.refresh(ctx, r.part(i, j)); err != nil {
			return err
		}
	}
	return nil
}

// refresh asks the store about one request again while the store's time lies outside its calendar boundaries. Other
// requests have their answers: its error is that of its outcomes.
func (l *Limiter) refresh(ctx context.Context, r *request) error {
	for attempt := 1; r.stale(); attempt++ {
		if attempt == mostAttempts { // the store's clock is not one
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
			for i := range r.outs {
				r.outs[i] = law.Outcome{Err: err}
			}
		}
	}
	return nil
}

// stale reports whether the store's time was outside of what an op says of it.
func (r *request) stale() bool {
	for i := range r.outs {
		if r.outs[i].Stale {
			return true
		}
	}
	return false
}

// corrected returns by how much the costs of charges were corrected, and wakes those who wait for what was given back.
func (l *Limiter) corrected(r *request) []Cost {
	list := make([]Cost, len(r.ops))
	for i := range r.ops {
		list[i] = correction(&r.ops[i], &r.outs[i])
		l.queues.wake(r.ops[i].Cell)
	}
	return list
}

// correction returns by how much a cost was corrected, up or down.
func correction(op *law.Op, out *law.Outcome) Cost {
	if out.Granted == 0 {
		return nothing
	}
	return costOf(max(out.Granted, -out.Granted), &op.Params, false)
}
