package headgate

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// request is a request on its way to the store and back: it is compiled into ops, done,
// and read as a decision, as corrections, or op by op.
type request struct {
	l    *Limiter
	ops  []law.Op
	outs []law.Outcome
	cals []*calendar
	// why the limits apply: see Decision.Applied; nil: none says
	applied []string
}

func (l *Limiter) request(charges []Charge) request {
	return request{
		l: l, ops: make([]law.Op, len(charges)), outs: make([]law.Outcome, len(charges)),
		cals: calendars(nil, 0, charges), applied: reasons(charges),
	}
}

// again is a request as large, about the same limits.
func (r request) again() request {
	return request{
		l: r.l, ops: make([]law.Op, len(r.ops)), outs: make([]law.Outcome, len(r.ops)), cals: r.cals,
		applied: r.applied,
	}
}

// compile makes ops of the charges.
func (r *request) compile(verb law.Verb, charges []Charge) error {
	return r.l.compile(r.ops, verb, 1, charges)
}

// decision is what was decided.
func (r *request) decision() Decision { return decide(r.ops, r.outs, r.applied) }

// do asks the store. An error of a single op is the request's.
func (r *request) do(ctx context.Context) error {
	if err := r.l.apply(ctx, r.ops, r.outs, r.cals); err != nil {
		return err
	}
	for i := range r.outs {
		if err := r.outs[i].Err; err != nil {
			return err
		}
	}
	return nil
}

// settle asks the store to settle, and returns by how much it did.
func (r *request) settle(ctx context.Context) (corrected []Cost, err error) {
	if err := r.do(ctx); err != nil {
		return nil, err
	}
	corrected = make([]Cost, len(r.ops))
	for i := range r.ops {
		corrected[i] = changed(&r.ops[i], &r.outs[i])
		r.l.turns.wake(r.ops[i].Cell)
	}
	return corrected, nil
}

// changed is by how much a cost was corrected, up or down.
func changed(op *law.Op, out *law.Outcome) Cost {
	if out.Granted == 0 {
		return nothing
	}
	return costOf(max(out.Granted, -out.Granted), &op.Params, false)
}

// takeable refuses charges that are not taken but acquired.
func takeable(charges []Charge) error {
	for _, c := range charges {
		if c.Limit.Concurrency() {
			return Invalid("limit", "%s is acquired and released, not taken", c.Limit.Algorithm())
		}
	}
	return nil
}

// compile turns the charges of one request into ops.
func (l *Limiter) compile(ops []law.Op, verb law.Verb, group uint32, charges []Charge) error {
	if err := l.compileWith(ops, verb, group, charges, Cost.charged); err != nil {
		return err
	}
	return law.ValidGroup(ops)
}

// compileWith is compile with another meaning of the costs, and not yet valid.
func (l *Limiter) compileWith(ops []law.Op, verb law.Verb, group uint32, charges []Charge,
	credits func(Cost, *law.Params) (int64, error),
) error {
	if len(charges) == 0 {
		return Invalid("charges", "there is none")
	}
	for i, c := range charges {
		if c.Limit.IsZero() {
			return Invalid("limit", "is missing")
		}
		r := c.Limit.r
		if r.algorithm == nil {
			return r.errNameOnly()
		}
		cost, err := credits(c.Cost, &r.params)
		if err != nil {
			return err
		}
		ops[i] = law.Op{
			Verb:   verb,
			Group:  group,
			Cell:   law.Cell{Limit: r.name, Key: c.Key},
			Params: r.params,
			Cost:   cost,
			Count:  1,
			From:   r.from,
			Until:  r.until,
		}
		if err := c.Keep.leaves(&ops[i]); err != nil {
			return err
		}
		if r.timed() { // what is taken up front would outlast it
			ops[i].Params.Prefetch, ops[i].Params.PrefetchLife = 0, 0
		}
		if r.calendar != nil {
			ops[i].Window = r.calendar.bounds(l.clock())
		}
	}
	return nil
}

// calendars notes at index i and up which calendars the charges follow. It
// stays nil as long as none does, as mostly.
func calendars(list []*calendar, i int, charges []Charge) []*calendar {
	for k, c := range charges {
		if c.Limit.IsZero() {
			continue // which is found out later
		}
		if cal := c.Limit.r.calendar; cal != nil {
			list = slices.Grow(list, i+len(charges)-len(list))[:i+len(charges)]
			list[i+k] = cal
		}
	}
	return list
}

// reasons returns why the limits of the charges apply; nil if none says.
func reasons(charges []Charge) (list []string) {
	for i, c := range charges {
		if !c.Limit.IsZero() && c.Limit.r.applied != "" {
			if list == nil {
				list = make([]string, len(charges))
			}
			list[i] = c.Limit.r.applied
		}
	}
	return list
}

// apply asks the store, and asks again about those requests whose calendar
// boundaries did not contain the store's time: cals says which calendars the
// ops follow, as far as it reaches.
func (l *Limiter) apply(ctx context.Context, ops []law.Op, outs []law.Outcome, cals []*calendar) (err error) {
	if l.store == nil {
		return errNoStore
	}
	ctx, d := withDeadline(ctx, l.within(ops))
	defer d.end(&err, store.ErrUnknownOutcome)
	if err := l.store.Apply(ctx, ops, outs); err != nil {
		store.Void(outs)
		return err
	}
	if !anyStale(outs) {
		return nil
	}
	for i := 0; i < len(ops); {
		j := law.GroupEnd(ops, i)
		for try := 0; anyStale(outs[i:j]); try++ {
			if try == 3 { // the store's clock is not one
				return fmt.Errorf("%w: the store's time keeps leaving the calendar of %q", store.ErrSetup,
					ops[i].Cell.Limit)
			}
			if stale := l.stale(ops[i:j], outs[i:j]); stale != nil {
				for k := i; k < j; k++ {
					outs[k] = law.Outcome{Err: stale}
				}
				break
			}
			for k := i; k < j; k++ {
				if k < len(cals) && cals[k] != nil && outs[k].Stale {
					ops[k].Window = cals[k].bounds(outs[k].Clock)
				}
			}
			if err := l.store.Apply(ctx, ops[i:j], outs[i:j]); err != nil {
				for k := i; k < j; k++ { // the other requests have their answers
					outs[k] = law.Outcome{Err: err}
				}
			}
		}
		i = j
	}
	return nil
}

func anyStale(outs []law.Outcome) bool {
	for i := range outs {
		if outs[i].Stale {
			return true
		}
	}
	return false
}

// sheet is where the ops and outcomes of a request are written.
type sheet struct {
	ops  [4]law.Op
	outs [4]law.Outcome
	used int
}

var sheets = sync.Pool{New: func() any { return new(sheet) }}

// request is that of Limiter, written on the sheet.
func (s *sheet) request(l *Limiter, charges []Charge) request {
	n := len(charges)
	if n > len(s.ops) {
		return l.request(charges)
	}
	s.used = n
	return request{l: l, ops: s.ops[:n], outs: s.outs[:n], cals: calendars(nil, 0, charges), applied: reasons(charges)}
}

// free gives the sheet to the next request. Stores keep nothing of a batch
// once they have answered.
func (s *sheet) free() {
	clear(s.ops[:s.used])
	clear(s.outs[:s.used])
	s.used = 0
	sheets.Put(s)
}

// ahead says that what was admitted under an id may not start yet, or nil.
func ahead(outs []law.Outcome) error {
	for i := range outs {
		if outs[i].StartAt > outs[i].Clock {
			return fmt.Errorf("%w: it was reserved, and starts at %s", ErrReused,
				time.UnixMicro(outs[i].StartAt).UTC().Format(time.RFC3339Nano))
		}
	}
	return nil
}

// unblocking makes ops those of a caller that waits: the block of a limit is for those
// who try without waiting. Limits with a block have no tokens up front, which only
// they could give out.
func unblocking(ops []law.Op) {
	for i := range ops {
		if p := &ops[i].Params; p.Block > 0 {
			p.Block, p.Prefetch, p.PrefetchLife = 0, 0, 0
		}
	}
}

// DefaultLife is for how long a store remembers an id unless told otherwise.
const DefaultLife = time.Hour

type once struct {
	id   string
	life time.Duration
}

// name gives a request its id.
func (o once) name(ops []law.Op) error {
	life := o.life
	if life == 0 {
		life = DefaultLife
	}
	if err := checkPeriod("life", life); err != nil {
		return err
	}
	if o.id == "" {
		return Invalid("id", "is empty")
	}
	for i := range ops {
		ops[i].ID, ops[i].TTL = o.id, life.Microseconds()
	}
	return law.ValidGroup(ops)
}

// settleOp returns the op that settles the charge of an op with an id.
func settleOp(op *law.Op, id string, actual int64) law.Op {
	return law.Op{
		Verb: law.Settle, Group: op.Group, Cell: op.Cell, Params: op.Params, Window: op.Window,
		ID: id, Cost: actual, Count: 1,
	}
}
