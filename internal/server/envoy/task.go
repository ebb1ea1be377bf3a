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

// verb is the operation on a descriptor's cell.
type verb uint8

const (
	check verb = iota
	take
	debit
	refund
)

// task is the operation for one descriptor of a request, and its decision. Without a rule nothing is charged.
type task struct {
	rule     *rule
	key      string
	verb     verb
	cost     headgate.Cost
	decided  bool // decision is set: the limit was evaluated
	decision headgate.Decision
	over     bool // over the limit
}

// findRule finds the rule of a descriptor, and the key of its cell.
func (t *task) findRule(d *domain, i int, descriptor *descriptorpb.RateLimitDescriptor) error {
	if descriptor.GetLimit() != nil {
		return t.override(d, i, descriptor)
	}
	entries := descriptor.GetEntries()
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

// match returns the branch that an entry matches, by its value, else the first wildcard, else its key alone; nil: none.
func (n *node) match(key, value string) *branch {
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
	return n.byKey[key]
}

// overrideName is the name of the limits of all descriptors with a limit of their own. Each descriptor has a cell,
// which keeps what was used when the numbers change.
const overrideName = limitPrefix + "override"

// override makes the rule of a descriptor that has a limit of its own.
func (t *task) override(d *domain, i int, descriptor *descriptorpb.RateLimitDescriptor) error {
	o := descriptor.GetLimit()
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
		return headgate.Invalid(field, "%s", problemOf(err))
	}
	parts := make([]string, 0, 1+2*len(descriptor.GetEntries()))
	parts = append(parts, d.name)
	for _, e := range descriptor.GetEntries() {
		parts = append(parts, e.GetKey(), e.GetValue())
	}
	t.key = httpkey.Join(parts...)
	t.rule = &rule{title: "override", refunds: refundModeOf(limit) == refundsByDefault}
	t.rule.setLimit(limit, &policy{
		unit: unitNames[int32(o.GetUnit())], requests: o.GetRequestsPerUnit(), multiplier: times,
	})
	if d.allOrNothing {
		t.rule.charge = chargeWhenAllowed
	}
	return nil
}

// setVerb sets the verb and the cost by the hits of the descriptor, or else of the request.
func (t *task) setVerb(i int, addend uint32, descriptor *descriptorpb.RateLimitDescriptor) error {
	if t.rule.unlimited {
		return nil
	}
	hits := uint64(max(addend, 1))
	field := "hits_addend"
	if descriptorHits := descriptor.GetHitsAddend(); descriptorHits != nil {
		hits, field = descriptorHits.GetValue(), fmt.Sprintf("descriptors[%d].hits_addend", i)
	}
	t.cost = headgate.Units(int64(hits))
	if int64(hits) < 0 || hits > 0 && t.cost.String() == "invalid" {
		return headgate.Invalid(field, "%d is too large", hits)
	}
	switch {
	case hits == 0:
		t.verb = check
	case descriptor.GetIsNegativeHits() && !t.rule.refunds:
		return headgate.Invalid(fmt.Sprintf("descriptors[%d].is_negative_hits", i),
			"%s gives nothing back unless refunds: true stands at its descriptor", t.rule.limit)
	case descriptor.GetIsNegativeHits():
		t.verb = refund
	case t.rule.charge == chargeAlways || t.rule.charge == chargeByHits && hits > 1:
		t.verb = debit
	default:
		t.verb = take
	}
	return nil
}

func (t *task) charge() headgate.Charge {
	return headgate.Charge{Limit: t.rule.limit, Key: t.key, Cost: t.cost}
}

// execute executes all tasks concurrently. All tasks that take are one round trip.
func (p *preparedRequest) execute(ctx context.Context, s *service.Service) error {
	if err := p.checkPermitted(auth.CallerOf(ctx)); err != nil {
		return err
	}
	var requests []headgate.Request
	var groups [][]*task // tasks of each request
	var singles []*task  // tasks that do not take
	joined := -1         // index of the request of tasks that take all or nothing
	for i := range p.tasks {
		t := &p.tasks[i]
		if t.rule == nil || t.rule.unlimited {
			continue
		}
		if t.verb != take {
			singles = append(singles, t)
			continue
		}
		if join := p.allOrNothing && !t.rule.shadow; join && joined >= 0 {
			requests[joined].Charges = append(requests[joined].Charges, t.charge())
			groups[joined] = append(groups[joined], t)
			continue
		} else if join {
			joined = len(requests)
		}
		requests = append(requests, headgate.Request{Charges: []headgate.Charge{t.charge()}})
		groups = append(groups, []*task{t})
	}
	switch {
	case len(singles) == 0:
		return p.firstError(decideAll(ctx, s, requests, groups))
	case len(singles) == 1 && len(requests) == 0:
		return singles[0].execute(ctx, s)
	}
	errs := make([]error, len(singles))
	var workers sync.WaitGroup
	for worker := range min(len(singles), maxWorkers) {
		workers.Go(func() {
			for i := worker; i < len(singles); i += maxWorkers {
				errs[i] = singles[i].execute(ctx, s)
			}
		})
	}
	takeErrs := decideAll(ctx, s, requests, groups)
	workers.Wait()
	return p.firstError(append(takeErrs, errs...))
}

// firstError returns the first error of several requests. It sets mixed if some of them were charged, or may have been.
func (p *preparedRequest) firstError(errs []error) error {
	first := cmp.Or(errs...)
	if first == nil {
		return nil
	}
	for i := range p.tasks {
		p.mixed = p.mixed || p.tasks[i].decided
	}
	for _, err := range errs {
		p.mixed = p.mixed || err != nil && len(errs) > 1 && !store.NothingDone(err)
	}
	return first
}

// maxWorkers is how many tasks of a request that do not take are executed concurrently.
const maxWorkers = 16

// checkPermitted returns an error if the caller may not use all of the limits.
func (p *preparedRequest) checkPermitted(caller *auth.Caller) error {
	if caller.AllLimits() {
		return nil
	}
	for i := range p.tasks {
		if r := p.tasks[i].rule; r != nil && !r.unlimited {
			if err := caller.CheckLimit(r.limit.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}

// execute executes a task that does not take.
func (t *task) execute(ctx context.Context, s *service.Service) error {
	switch t.verb {
	case debit:
		got, err := s.Limiter().Debit(ctx, t.charge())
		if err != nil {
			return err
		}
		t.decided, t.decision, t.over = true, got.Decision, got.Over || !got.Decision.Allowed
		if t.decision.Allowed && t.over { // charged, but it did not fit: return the wait of the next request
			t.decision.Allowed, t.decision.RetryAfter = false, t.decision.NextAfter
			if u, err := t.usage(ctx, s); err == nil { // else the longest possible wait stays
				t.decision.RetryAfter = u.RetryAfter
			}
		}
		return nil
	case refund:
		if _, err := s.Limiter().Refund(ctx, t.charge()); err != nil {
			return err
		}
		// The refund was made. If an error were returned here, the caller would retry it.
		_ = t.inspect(ctx, s)
		t.over = false // a refund is not limited
		return nil
	default:
		return t.inspect(ctx, s)
	}
}

// usage returns what the key has used of the limit.
func (t *task) usage(ctx context.Context, s *service.Service) (headgate.Usage, error) {
	list, err := s.Limiter().Usage(ctx, t.key, t.rule.limit)
	if err != nil {
		return headgate.Usage{}, err
	}
	return list[0], nil
}

// inspect decides without charging: a descriptor is over its limit unless the level is below the capacity.
func (t *task) inspect(ctx context.Context, s *service.Service) error {
	u, err := t.usage(ctx, s)
	if err != nil {
		return err
	}
	t.over = u.Used.Float64() >= u.Capacity.Float64() || u.BlockedUntil.After(u.At)
	t.decided, t.decision = true, headgate.Decision{
		Allowed: !t.over, LimitName: u.Limit, Key: u.Key, Capacity: int64(u.Capacity.Float64()),
		Remaining: u.Remaining, NextAfter: u.RetryAfter, ResetAfter: u.ResetAfter, At: u.At, Applied: u.Applied,
	}
	if t.over {
		t.decision.RetryAfter = u.RetryAfter
	}
	return nil
}

// decideAll decides requests, and sets the decisions of the group of tasks of each.
func decideAll(ctx context.Context, s *service.Service, requests []headgate.Request, groups [][]*task) (errs []error) {
	switch len(requests) {
	case 0:
		return nil
	case 1:
		d, err := s.Decide(ctx, &requests[0])
		if err == nil {
			setDecisions(&d, groups[0])
		}
		return []error{err}
	}
	answers, err := s.DecideBatch(ctx, requests)
	if err != nil {
		return []error{err}
	}
	for i := range answers {
		errs = append(errs, answers[i].Err)
		if answers[i].Err == nil {
			setDecisions(&answers[i].Decision, groups[i])
		}
	}
	return errs
}

// setDecisions sets the decisions of the tasks of a request. Tasks whose limits were not evaluated get none.
func setDecisions(d *headgate.Decision, group []*task) {
	if len(group) == 1 {
		group[0].decided, group[0].decision, group[0].over = true, *d, !d.Allowed
		return
	}
	for _, f := range d.Each {
		t := group[f.Charge]
		t.decided, t.over = true, !f.Allowed
		t.decision = headgate.Decision{
			Allowed: f.Allowed, LimitName: f.LimitName, Key: f.Key, Capacity: f.Capacity, Remaining: f.Remaining,
			RetryAfter: f.RetryAfter, NextAfter: f.NextAfter, ResetAfter: f.ResetAfter,
			At: d.At, Via: d.Via, Applied: f.Applied,
		}
	}
	if len(d.Each) == 0 { // a refusal from a cache has only the charge that was refused
		for _, t := range group {
			if t.rule.limit.Name() == d.LimitName && t.key == d.Key {
				t.decided, t.decision, t.over = true, *d, !d.Allowed
			}
		}
	}
}
