package envoy

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	descriptorpb "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/httpkey"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/store"
)

// verb is the action for a descriptor.
type verb uint8

const (
	check verb = iota
	take
	debit
	refund
)

// task charges one descriptor of a request; without a rule, nothing.
type task struct {
	rule *rule
	key  string
	verb verb
	cost headgate.Cost
	told bool // the decision looked at this limit
	d    headgate.Decision
	over bool
}

// find finds the rule of a descriptor, and the key of its cell.
func (t *task) find(d *domain, i int, asked *descriptorpb.RateLimitDescriptor) error {
	if asked.GetLimit() != nil {
		return t.override(d, i, asked)
	}
	entries := asked.GetEntries()
	var room [8]string
	parts := room[:0]
	n := &d.root
	for k, e := range entries {
		if n == nil {
			return nil
		}
		l := n.match(e.GetKey(), e.GetValue())
		if l == nil {
			return nil
		}
		if l.share {
			parts = append(parts, l.value)
		} else {
			parts = append(parts, e.GetValue())
		}
		if k == len(entries)-1 && l.rule != nil {
			t.rule, t.key = l.rule, httpkey.Join(parts...)
		}
		n = l.next
	}
	return nil
}

// match returns what an entry matches: its value, else the first wildcard, else its key alone.
func (n *node) match(key, value string) *level {
	if l := n.exact[entry{key, value}]; l != nil && value != "" {
		return l
	}
	if value != "" {
		for _, l := range n.patterns {
			if l.key == key && auth.Match(l.value, value) {
				return l
			}
		}
	}
	return n.any[key]
}

// overrideName is the limit of all descriptors that say their own numbers. They have a cell each, which keeps
// what was used when the numbers change.
const overrideName = limitPrefix + "override"

// override makes the rule of a descriptor that says its limit.
func (t *task) override(d *domain, i int, asked *descriptorpb.RateLimitDescriptor) error {
	o := asked.GetLimit()
	field := fmt.Sprintf("descriptors[%d].limit", i)
	u, ok := units[unitNames[int32(o.GetUnit())]]
	if !ok {
		return headgate.Invalid(field+".unit", "%d is not a unit of time", o.GetUnit())
	}
	times := uint32(1)
	if m := o.GetUnitMultiplier(); m != nil {
		if times = m.GetValue(); times == 0 {
			return headgate.Invalid(field+".unit_multiplier", "is 0; it must be above 0")
		}
	}
	limit, err := headgate.ParseNamed(overrideName, notation(d.algorithm, o.GetRequestsPerUnit(), u, times))
	if err != nil {
		return headgate.Invalid(field, "%s", problem(err))
	}
	parts := make([]string, 0, 1+2*len(asked.GetEntries()))
	parts = append(parts, d.name)
	for _, e := range asked.GetEntries() {
		parts = append(parts, e.GetKey(), e.GetValue())
	}
	t.key = httpkey.Join(parts...)
	t.rule = &rule{title: "override", refunds: refundable(limit) == byDefault}
	t.rule.use(limit, &policy{
		unit: unitNames[int32(o.GetUnit())], requests: o.GetRequestsPerUnit(), multiplier: times,
	})
	if d.together {
		t.rule.charge = whenAllowed
	}
	return nil
}

// hit sets what is done, by how many hits a request has.
func (t *task) hit(i int, addend uint32, asked *descriptorpb.RateLimitDescriptor) error {
	if t.rule.unlimited {
		return nil
	}
	hits := uint64(max(addend, 1))
	field := "hits_addend"
	if own := asked.GetHitsAddend(); own != nil {
		hits, field = own.GetValue(), fmt.Sprintf("descriptors[%d].hits_addend", i)
	}
	t.cost = headgate.Units(int64(hits))
	if int64(hits) < 0 || hits > 0 && !valid(t.cost) {
		return headgate.Invalid(field, "%d is too large", hits)
	}
	switch {
	case hits == 0:
		t.verb = check
	case asked.GetIsNegativeHits() && !t.rule.refunds:
		return headgate.Invalid(fmt.Sprintf("descriptors[%d].is_negative_hits", i),
			"%s gives nothing back unless refunds: true stands at its descriptor", t.rule.limit)
	case asked.GetIsNegativeHits():
		t.verb = refund
	case t.rule.charge == always || t.rule.charge == byHits && hits > 1:
		t.verb = debit
	default:
		t.verb = take
	}
	return nil
}

// valid reports whether a cost can be said.
func valid(c headgate.Cost) bool { return c.String() != "invalid" }

// charge returns what is asked about a task.
func (t *task) charge() headgate.Charge {
	return headgate.Charge{Limit: t.rule.limit, Key: t.key, Cost: t.cost}
}

// ask asks the service about all tasks at the same time. What takes is one round trip.
func (p *plan) ask(ctx context.Context, s *service.Service) error {
	if err := p.permitted(auth.From(ctx)); err != nil {
		return err
	}
	var requests []headgate.Request
	var of [][]*task // of each request
	var alone []*task
	together := -1
	for i := range p.tasks {
		t := &p.tasks[i]
		if t.rule == nil || t.rule.unlimited {
			continue
		}
		if t.verb != take {
			alone = append(alone, t)
			continue
		}
		if joined := p.together && !t.rule.shadow; joined && together >= 0 {
			requests[together].Charges = append(requests[together].Charges, t.charge())
			of[together] = append(of[together], t)
			continue
		} else if joined {
			together = len(requests)
		}
		requests = append(requests, headgate.Request{Charges: []headgate.Charge{t.charge()}})
		of = append(of, []*task{t})
	}
	switch {
	case len(alone) == 0:
		return p.settle(decide(ctx, s, requests, of))
	case len(alone) == 1 && len(requests) == 0:
		return alone[0].ask(ctx, s)
	}
	errs := make([]error, len(alone))
	var done sync.WaitGroup
	for worker := range min(len(alone), atOnce) {
		done.Go(func() {
			for i := worker; i < len(alone); i += atOnce {
				errs[i] = alone[i].ask(ctx, s)
			}
		})
	}
	all := decide(ctx, s, requests, of)
	done.Wait()
	return p.settle(append(all, errs...))
}

// settle returns the first error of several requests. It sets mixed if some of them were charged or may have been.
func (p *plan) settle(errs []error) error {
	first := cmp.Or(errs...)
	if first == nil {
		return nil
	}
	for i := range p.tasks {
		p.mixed = p.mixed || p.tasks[i].told
	}
	for _, err := range errs {
		p.mixed = p.mixed || err != nil && len(errs) > 1 && !store.NothingDone(err)
	}
	return first
}

// atOnce is how many descriptors of a request that are asked about alone are under way at a time.
const atOnce = 16

// permitted returns an error if the caller may not touch all of the limits.
func (p *plan) permitted(caller *auth.Caller) error {
	if caller.All() {
		return nil
	}
	for i := range p.tasks {
		if r := p.tasks[i].rule; r != nil && !r.unlimited {
			if err := caller.Touches(r.limit.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}

// ask does what is done for one descriptor alone.
func (t *task) ask(ctx context.Context, s *service.Service) error {
	switch t.verb {
	case debit:
		got, err := s.Limiter().Debit(ctx, t.charge())
		if err != nil {
			return err
		}
		t.told, t.d, t.over = true, got.Decision, got.Over || !got.Decision.Allowed
		if t.d.Allowed && t.over { // charged, but it did not fit: the wait is that of the next one
			t.d.Allowed, t.d.RetryAfter = false, t.d.NextAfter
			if u, err := t.used(ctx, s); err == nil { // else it is the longest that it can be
				t.d.RetryAfter = u.RetryAfter
			}
		}
		return nil
	case refund:
		if _, err := s.Limiter().Refund(ctx, t.charge()); err != nil {
			return err
		}
		// The refund is made. If an error were returned here, the caller would retry it.
		_ = t.look(ctx, s)
		t.over = false // what gives back is not limited
		return nil
	default:
		return t.look(ctx, s)
	}
}

// used returns what the key has used of the limit.
func (t *task) used(ctx context.Context, s *service.Service) (headgate.Usage, error) {
	list, err := s.Limiter().Usage(ctx, t.key, t.rule.limit)
	if err != nil {
		return headgate.Usage{}, err
	}
	return list[0], nil
}

// look takes nothing: a descriptor is over its limit unless the level is below the capacity.
func (t *task) look(ctx context.Context, s *service.Service) error {
	u, err := t.used(ctx, s)
	if err != nil {
		return err
	}
	t.over = u.Used.Float64() >= u.Capacity.Float64() || u.BlockedUntil.After(u.At)
	t.told, t.d = true, headgate.Decision{
		Allowed: !t.over, LimitName: u.Limit, Key: u.Key, Capacity: int64(u.Capacity.Float64()),
		Remaining: u.Remaining, NextAfter: u.RetryAfter, ResetAfter: u.ResetAfter, At: u.At, Applied: u.Applied,
	}
	if t.over {
		t.d.RetryAfter = u.RetryAfter
	}
	return nil
}

// decide asks about requests, and gives each task its decision.
func decide(ctx context.Context, s *service.Service, requests []headgate.Request, of [][]*task) (errs []error) {
	switch len(requests) {
	case 0:
		return nil
	case 1:
		d, err := s.Decide(ctx, &requests[0])
		if err == nil {
			setDecisions(&d, of[0])
		}
		return []error{err}
	}
	answers, err := s.Each(ctx, requests)
	if err != nil {
		return []error{err}
	}
	for i := range answers {
		errs = append(errs, answers[i].Err)
		if answers[i].Err == nil {
			setDecisions(&answers[i].Decision, of[i])
		}
	}
	return errs
}

// setDecisions sets the decisions of the tasks of a request. Of several, those that nobody looked at have none.
func setDecisions(d *headgate.Decision, of []*task) {
	if len(of) == 1 {
		of[0].told, of[0].d, of[0].over = true, *d, !d.Allowed
		return
	}
	for _, f := range d.Each {
		t := of[f.Charge]
		t.told, t.over = true, !f.Allowed
		t.d = headgate.Decision{
			Allowed: f.Allowed, LimitName: f.LimitName, Key: f.Key, Capacity: f.Capacity, Remaining: f.Remaining,
			RetryAfter: f.RetryAfter, NextAfter: f.NextAfter, ResetAfter: f.ResetAfter,
			At: d.At, Via: d.Via, Applied: f.Applied,
		}
	}
	if len(d.Each) == 0 { // a refusal that was repeated has one charge
		for _, t := range of {
			if t.rule.limit.Name() == d.LimitName && t.key == d.Key {
				t.told, t.d, t.over = true, *d, !d.Allowed
			}
		}
	}
}
