package headgate

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// verbSpec specifies what a verb does with charges.
type verbSpec struct {
	verb     law.Verb
	reportAs Verb // the verb for observers; empty: the call is not reported
	limits   limitKind
	// fullTimeout says that a call that looks up limits has Limiter.timeout, not shortTimeout.
	fullTimeout bool

	toCredits func(Cost, *law.Params) (int64, error)            // converts the cost of a charge
	prepare   func(*request) error                              // completes the compiled ops; may be nil
	read      func(context.Context, *request) (Decision, error) // reads the outcomes; nil: request.decision does

	accepted Cost // set by read, for Event.Accepted
}

// limitKind says which limits the charges of a verb may have.
type limitKind uint8

const (
	anyLimit        limitKind = iota
	notConcurrency            // all but concurrency
	onlyConcurrency           // concurrency alone
)

// request is one or more requests to the store: for each charge its op, its limit, and after the call its outcome.
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

// clone returns a deep copy, which stays valid when this request is reused.
func (r *request) clone() request {
	return request{slices.Clone(r.ops), slices.Clone(r.outs), slices.Clone(r.limits)}
}

// scratch is reusable memory for a request of up to four charges.
type scratch struct {
	r      request
	ops    [4]law.Op
	outs   [4]law.Outcome
	limits [4]Limit
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// request returns a request of n charges, in this memory if it is large enough.
func (s *scratch) request(n int) *request {
	if n > len(s.ops) {
		return newRequest(n)
	}
	s.r = request{s.ops[:n], s.outs[:n], s.limits[:n]}
	return &s.r
}

// free returns the scratch to the pool. Stores do not keep a batch after they have answered.
func (s *scratch) free() {
	clear(s.r.ops)
	clear(s.r.outs)
	clear(s.r.limits)
	s.r = request{}
	scratches.Put(s)
}

// compile turns the charges of one request into its ops and limits, as spec says.
func (r *request) compile(clock store.Clock, group uint32, spec *verbSpec, charges []Charge) error {
	if len(charges) == 0 {
		return Invalid("charges", "there is none")
	}
	for i, c := range charges {
		rule := c.Limit.r
		switch {
		case rule == nil:
			return Invalid("limit", "is missing")
		case spec.limits == notConcurrency && rule.params.Leased:
			return Invalid("limit", "%s is acquired and released, not taken", c.Limit.Algorithm())
		case spec.limits == onlyConcurrency && !rule.params.Leased:
			return Invalid("limit", "%s is taken, not acquired", c.Limit.Algorithm())
		}
		cost, err := spec.toCredits(c.Cost, &rule.params)
		if err != nil {
			return err
		}
		op := &r.ops[i]
		*op = law.Op{
			Verb:   spec.verb,
			Group:  group,
			Cell:   law.Cell{Limit: rule.name, Key: c.Key},
			Params: rule.params,
			Cost:   cost,
			Count:  1,
			From:   rule.from,
			Until:  rule.until,
		}
		if err := c.Keep.applyTo(op); err != nil {
			return err
		}
		if spec.verb == law.Take || spec.verb == law.Check {
			switch {
			case c.Alternative < 0 || c.Alternative > math.MaxUint8:
				return Invalid("alternative", "is %d; it is numbered from 1 to %d", c.Alternative, math.MaxUint8)
			case c.Alternative > 0 && rule.params.Leased:
				return Invalid("alternative", "is set; alternatives are taken, not acquired")
			}
			op.Alternative = uint8(c.Alternative)
		}
		if rule.isTimed() { // credits taken up front would outlast the rule
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

// dropBlocks changes the ops so that their refusal blocks no key: for callers that wait, and for debits. It removes the
// prefetch of limits with a block too: they take nothing up front, which package prefetch tells by the block.
func (r *request) dropBlocks() {
	for i := range r.ops {
		if p := &r.ops[i].Params; p.Block > 0 {
			p.Block, p.Prefetch, p.PrefetchLife = 0, 0, 0
		}
	}
}

// wasRead reports whether an outcome tells the state of its cell. When package deny repeats the refusal of one charge,
// the outcomes of the other charges do not.
func wasRead(out *law.Outcome) bool {
	return out.Clock != 0 && (out.Via != law.ViaLocal || out.Granted == 0)
}

// chargeDecisions returns the decision about each charge whose cell [wasRead].
func (r *request) chargeDecisions(allowed bool) []ChargeDecision {
	ops, outs := r.ops, r.outs
	list := make([]ChargeDecision, 0, len(ops))
	for i := range ops {
		op, out := &ops[i], &outs[i]
		if !wasRead(out) {
			continue
		}
		f := chargeFigures{op, out, out.Granted == op.Count}
		d := f.decision(f.fits, r.untakenCredits(i, allowed))
		list = append(list, ChargeDecision{
			Charge: i, Allowed: f.fits, LimitName: d.LimitName, Key: d.Key, Capacity: d.Capacity,
			Remaining: d.Remaining, RetryAfter: d.RetryAfter, NextAfter: d.NextAfter, ResetAfter: d.ResetAfter,
			Applied: r.limits[i].r.applied, CapacityNanos: d.CapacityNanos, RemainingNanos: d.RemainingNanos,
			Crossed: int(out.Crossed),
		})
	}
	return list
}

// untakenCredits returns the credits that outcome i counts as used but that are not taken, since the request is a check
// or refused: the grants of the ops up to i on the same cell.
func (r *request) untakenCredits(i int, allowed bool) (credits int64) {
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
func (r *request) decision() (d Decision) {
	if r.ops[0].Alternative == 0 {
		d = r.decisionOfAll()
		if len(r.ops) > 1 {
			d.Each = r.chargeDecisions(d.Allowed)
		}
		return d
	}
	var each []ChargeDecision
	for i, j := 0, law.AlternativeEnd(r.ops, 0); i < len(r.ops) && !d.Allowed; i, j = j, law.AlternativeEnd(r.ops, j) {
		if !wasRead(&r.outs[i]) {
			continue // the ID was admitted with another one
		}
		alternative := r.part(i, j)
		this := alternative.decisionOfAll()
		if d.Alternative == 0 || this.Allowed || this.RetryAfter < d.RetryAfter {
			d = this
			d.Alternative = int(r.ops[i].Alternative)
		}
		for _, c := range alternative.chargeDecisions(this.Allowed) {
			c.Charge += i
			each = append(each, c)
		}
	}
	if d.Each = each; len(r.ops) == 1 {
		d.Each = nil
	}
	return d
}

// decisionOfAll derives the decision, but for Each, about a request without alternatives, or about one alternative.
func (r *request) decisionOfAll() Decision {
	ops, outs := r.ops, r.outs
	allowed, replayed := true, true
	var chosen chargeFigures // the charge that the decision is about
	index := 0               // its index
	var crossed uint8
	for i := range ops {
		replayed = replayed && outs[i].Replayed
		f := chargeFigures{&ops[i], &outs[i], outs[i].Granted == ops[i].Count || ops[i].Partial && outs[i].Granted > 0}
		switch {
		case chosen.op == nil,
			allowed && !f.fits,
			allowed && f.isTighter(chosen),
			!allowed && !f.fits && f.out.RetryAt-f.out.Clock > chosen.out.RetryAt-chosen.out.Clock:
			chosen, index = f, i
		}
		allowed, crossed = allowed && f.fits, max(crossed, outs[i].Crossed)
	}
	d := chosen.decision(allowed, r.untakenCredits(index, allowed))
	d.Crossed = int(crossed)
	d.Replayed, d.EntryNumber, d.Applied = replayed, chosen.out.EntryNumber, r.limits[index].r.applied
	return d
}

// DefaultLife is how long a store remembers an id by default.
const DefaultLife = time.Hour

// requestID is the idempotency key of a request, and how long the store remembers it; zero: DefaultLife.
type requestID struct {
	id   string
	life time.Duration
}

// set writes the id into the ops of a request.
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

// checkStart returns ErrReused if the id was reserved before, for a start that is still ahead.
func (r *request) checkStart() error {
	for i := range r.outs {
		if out := &r.outs[i]; out.StartAt > out.Clock {
			return fmt.Errorf("%w: it was reserved, and starts at %s", ErrReused,
				time.UnixMicro(out.StartAt).UTC().Format(time.RFC3339Nano))
		}
	}
	return nil
}

// settleOp returns an op that settles the charge that op made under id, at the actual credits.
func settleOp(op *law.Op, id string, actual int64) law.Op {
	return law.Op{
		Verb: law.Settle, Group: op.Group, Cell: op.Cell, Params: op.Params, Window: op.Window,
		ID: id, Cost: actual, Count: 1,
	}
}

// isStale reports whether any outcome is stale.
func (r *request) isStale() bool {
	for i := range r.outs {
		if r.outs[i].Stale {
			return true
		}
	}
	return false
}
