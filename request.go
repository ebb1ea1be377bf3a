package headgate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// question describes what a verb does with charges.
type question struct {
	verb     law.Verb
	observed Verb // for observers; empty: not reported
	limits   limitKind
	credits  func(Cost, *law.Params) (int64, error) // converts the cost of a charge
	lasting  bool                                   // the store must remember the outcome: Config.Timeout applies

	prepare func(*request) error                              // completes the ops; nil: they are complete
	read    func(context.Context, *request) (Decision, error) // reads outcomes; nil: the decision only

	accepted Cost // see Event.Accepted; read sets it
}

// limitKind restricts the limits of charges.
type limitKind uint8

const (
	anyLimit  limitKind = iota
	takenOnly           // all but concurrency
	heldOnly            // concurrency alone
)

// request is a request to the store: for each charge an op, its limit, and later its outcome.
type request struct {
	ops    []law.Op
	outs   []law.Outcome
	limits []Limit
}

func newRequest(n int) *request {
	return &request{make([]law.Op, n), make([]law.Outcome, n), make([]Limit, n)}
}

// part returns the request of ops[i:j].
func (r *request) part(i, j int) *request { return &request{r.ops[i:j], r.outs[i:j], r.limits[i:j]} }

// clone returns a copy that stays valid when this request is reused.
func (r *request) clone() request {
	return request{slices.Clone(r.ops), slices.Clone(r.outs), slices.Clone(r.limits)}
}

// scratch is the memory of a request of few charges.
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
func (r *request) compile(clock store.Clock, group uint32, q *question, charges []Charge) error {
	if len(charges) == 0 {
		return Invalid("charges", "there is none")
	}
	for i, c := range charges {
		rule := c.Limit.r
		switch {
		case rule == nil:
			return Invalid("limit", "is missing")
		case q.limits == takenOnly && rule.params.Leased:
			return Invalid("limit", "%s is acquired and released, not taken", c.Limit.Algorithm())
		case q.limits == heldOnly && !rule.params.Leased:
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
		if rule.timed() { // credits taken up front would outlast it
			op.Params.Prefetch, op.Params.PrefetchLife = 0, 0
		}
		if rule.calendar != nil {
			op.Window = rule.calendar.bounds(clock())
		}
		r.limits[i] = c.Limit
	}
	return nil
}

// valid returns the first error in the ops of one or more requests.
func (r *request) valid() error {
	for i, j := 0, law.GroupEnd(r.ops, 0); i < len(r.ops); i, j = j, law.GroupEnd(r.ops, j) {
		if err := law.ValidGroup(r.ops[i:j]); err != nil {
			return err
		}
	}
	return nil
}

// unblock makes the ops those of a caller that waits: the block of a limit is for those
// who do not wait. Limits with a block take nothing up front, nor may the ops
// without it.
func (r *request) unblock() {
	for i := range r.ops {
		if p := &r.ops[i].Params; p.Block > 0 {
			p.Block, p.Prefetch, p.PrefetchLife = 0, 0, 0
		}
	}
}

// wasRead reports whether the cell of an outcome was read. Package deny reads none
// where it repeats the refusal of another charge.
func wasRead(out *law.Outcome) bool {
	return out.Clock != 0 && (out.Via != law.ViaLocal || out.Granted == 0)
}

// each returns the decision about each charge whose cell was read.
func (r *request) each(allowed bool) []ChargeDecision {
	ops, outs := r.ops, r.outs
	list := make([]ChargeDecision, 0, len(ops))
	for i := range ops {
		op, out := &ops[i], &outs[i]
		if !wasRead(out) {
			continue
		}
		f := figures{op, out, out.Granted == op.Count}
		d := f.decision(f.fits, r.untaken(i, allowed))
		list = append(list, ChargeDecision{
			Charge: i, Allowed: f.fits, LimitName: d.LimitName, Key: d.Key, Capacity: d.Capacity,
			Remaining: d.Remaining, RetryAfter: d.RetryAfter, NextAfter: d.NextAfter, ResetAfter: d.ResetAfter,
			Applied: r.limits[i].r.applied, CapacityNanos: d.CapacityNanos, RemainingNanos: d.RemainingNanos,
		})
	}
	return list
}

// untaken returns the credits in the level of outcome i that a check or a refusal counts but does not take,
// up to op i.
func (r *request) untaken(i int, allowed bool) (credits int64) {
	if allowed && r.ops[i].Verb != law.Check {
		return 0
	}
	for k := range i + 1 {
		if r.ops[k].Cell == r.ops[i].Cell && wasRead(&r.outs[k]) {
			credits += r.outs[k].Granted * r.ops[k].Cost
		}
	}
	return credits
}

// decision derives the decision about a request from its ops and their outcomes.
func (r *request) decision() Decision {
	ops, outs := r.ops, r.outs
	allowed, replayed := true, true
	var about figures
	which := 0
	for i := range ops {
		replayed = replayed && outs[i].Replayed
		f := figures{&ops[i], &outs[i], outs[i].Granted == ops[i].Count || ops[i].Partial && outs[i].Granted > 0}
		switch {
		case about.op == nil,
			allowed && !f.fits,
			allowed && f.outranks(about),
			!allowed && !f.fits && f.out.RetryAt-f.out.Clock > about.out.RetryAt-about.out.Clock:
			about, which = f, i
		}
		allowed = allowed && f.fits
	}
	d := about.decision(allowed, r.untaken(which, allowed))
	d.Replayed, d.EntryNumber, d.Applied = replayed, about.out.EntryNumber, r.limits[which].r.applied
	if len(ops) > 1 {
		d.Each = r.each(allowed)
	}
	return d
}

// DefaultLife is how long a store remembers an id by default.
const DefaultLife = time.Hour

// requestID names a request, so that it is charged once.
type requestID struct {
	id   string
	life time.Duration
}

// set gives a request its id.
func (o requestID) set(r *request) error {
	life, err := microsOf("life", cmp.Or(o.life, DefaultLife))
	if err != nil {
		return err
	}
	if o.id == "" {
		return Invalid("id", "is empty")
	}
	for i := range r.ops {
		r.ops[i].ID, r.ops[i].TTL = o.id, life
	}
	return nil
}

// startsLater returns an error if what an id admitted may not start yet.
func (r *request) startsLater() error {
	for i := range r.outs {
		if out := &r.outs[i]; out.StartAt > out.Clock {
			return fmt.Errorf("%w: it was reserved, and starts at %s", ErrReused,
				time.UnixMicro(out.StartAt).UTC().Format(time.RFC3339Nano))
		}
	}
	return nil
}

// settleOp returns the op that settles the charge of an op with an id.
func settleOp(op *law.Op, id string, actual int64) law.Op {
	return law.Op{
		Verb: law.Settle, Group: op.Group, Cell: op.Cell, Params: op.Params, Window: op.Window,
		ID: id, Cost: actual, Count: 1,
	}
}

// stale reports whether the store's time was outside an op's window or period.
func (r *request) stale() bool {
	for i := range r.outs {
		if r.outs[i].Stale {
			return true
		}
	}
	return false
}
