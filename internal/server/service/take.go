package service

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// Take takes the charges of a request.
func (s *Service) Take(ctx context.Context, r *api.Request) (*api.Decision, error) {
	return s.take(ctx, r, false)
}

// Check decides the charges of a request, and takes nothing.
func (s *Service) Check(ctx context.Context, r *api.Request) (*api.Decision, error) {
	return s.take(ctx, r, true)
}

func (s *Service) take(ctx context.Context, r *api.Request, check bool) (*api.Decision, error) {
	charges, id, life, err := s.asked(ctx, r)
	if err != nil {
		return nil, err
	}
	d, err := s.Decide(ctx, &headgate.Request{Charges: charges, Check: check, ID: id, Life: life})
	if err != nil {
		return nil, err
	}
	return decisionOf(&d, len(charges) > 1), nil
}

// asked returns the charges of a request that is alone, and the id and its life as the store knows them, if it has one.
func (s *Service) asked(ctx context.Context, r *api.Request) (
	charges []headgate.Charge, id string, life time.Duration, err error,
) {
	if r.Check {
		return nil, "", 0, headgate.Invalid("check", "stands only in the requests of a batch; ask /v1/check")
	}
	if charges, err = s.Charges(ctx, r); err == nil {
		id, life, err = s.identity(ctx, r, charges)
	}
	return charges, id, life, err
}

// Decide takes or checks the charges of a request, and remembers a refusal of what would
// have been taken. Its charges are those of [Service.Charges].
func (s *Service) Decide(ctx context.Context, r *headgate.Request) (headgate.Decision, error) {
	ask := s.limiter.Take
	switch {
	case r.Check && r.ID != "":
		return headgate.Decision{}, headgate.Invalid("id", "stands only in a request that takes")
	case r.Check:
		ask = s.limiter.Check
	case r.ID != "":
		ask = s.limiter.Once(r.ID, r.Life).Take
	}
	d, err := ask(ctx, r.Charges...)
	if err == nil && !r.Check {
		s.refusals.add(&d, r.Charges)
	}
	return d, err
}

// Charges returns the charges of a request, with the limits that it names. Errors are
// headgate.ErrInvalid and name the field, or auth.ErrForbidden if the caller may not touch a limit.
func (s *Service) Charges(ctx context.Context, r *api.Request) ([]headgate.Charge, error) {
	return s.chargesOf(ctx, nil, r, costOf)
}

// Batch answers many requests; those that are wrong fail alone. failed gets
// each that failed for a reason that is not the client's.
func (s *Service) Batch(ctx context.Context, b *api.Batch, failed func(error)) (*api.Answers, error) {
	switch n := len(b.Requests); {
	case n == 0:
		return nil, headgate.Invalid("requests", "there is none")
	case n > api.MaxCharges: // wrong ones count too
		return nil, headgate.Invalid("requests", "are more than %d", api.MaxCharges)
	}
	answers := &api.Answers{Answers: make([]api.Answer, len(b.Requests))}
	requests := make([]headgate.Request, 0, len(b.Requests))
	index := make([]int, 0, len(b.Requests))
	all := make([]headgate.Charge, 0, len(b.Requests)) // of all requests
	for i := range b.Requests {
		r := &b.Requests[i]
		start := len(all)
		with, err := s.chargesOf(ctx, all, r, costOf)
		var id string
		var life time.Duration
		if err == nil {
			id, life, err = s.identity(ctx, r, with[start:])
		}
		if err != nil {
			answers.Answers[i].Problem = brief(err)
			continue
		}
		if all = with; len(all) > api.MaxCharges {
			return nil, headgate.Invalid("requests", "carry more than %d charges", api.MaxCharges)
		}
		requests = append(requests, headgate.Request{
			Charges: all[start:len(all):len(all)], Check: r.Check, ID: id,
			Life: life,
		})
		index = append(index, i)
	}
	got, err := s.Each(ctx, requests)
	if err != nil {
		return nil, err
	}
	for k := range got {
		a := &answers.Answers[index[k]]
		if err := got[k].Err; err != nil {
			if a.Problem = brief(err); a.Problem.Status >= http.StatusInternalServerError {
				failed(err)
			}
			continue
		}
		a.Decision = decisionOf(&got[k].Decision, len(requests[k].Charges) > 1)
	}
	return answers, nil
}

// chargesOf appends what a request asks for to a list, and reads costs by their meaning.
func (s *Service) chargesOf(ctx context.Context, list []headgate.Charge, r *api.Request, cost meaning) (
	[]headgate.Charge, error,
) {
	switch {
	case len(r.Charges) == 0 && r.Limit == "":
		return nil, headgate.Invalid("limit", "is missing")
	case len(r.Charges) == 0:
		return s.charge(ctx, list, &r.Charge, cost)
	case r.Charge != api.Charge{NoKey: r.NoKey}:
		return nil, headgate.Invalid("charges", "stand beside limit, key, cost or keep; say one or the other")
	case len(r.Charges) > api.MaxCharges:
		return nil, headgate.Invalid("charges", "are more than %d", api.MaxCharges)
	}
	var err error
	for i := range r.Charges {
		if list, err = s.charge(ctx, list, &r.Charges[i], cost); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// meaning reads the cost of a charge.
type meaning func(json.Number) (headgate.Cost, error)

// costOf returns what a charge costs: 1 if nothing is said.
func costOf(n json.Number) (headgate.Cost, error) {
	if n == "" {
		return headgate.Cost{}, nil
	}
	c, err := headgate.ParseCostUp(n.String())
	if err == nil && c == headgate.Units(0) {
		err = headgate.Invalid("cost", "is 0; it must be above 0")
	}
	return c, err
}

func (s *Service) charge(ctx context.Context, list []headgate.Charge, c *api.Charge, cost meaning) (
	[]headgate.Charge, error,
) {
	limit, err := s.cell(ctx, c.Limit, c.NoKey)
	if err != nil {
		return nil, err
	}
	units, err := cost(c.Cost)
	if err != nil {
		return nil, err
	}
	charge := headgate.Charge{Limit: limit, Key: c.Key, Cost: units}
	if err := charge.Keep.UnmarshalText([]byte(c.Keep)); err != nil {
		return nil, err
	}
	return append(list, charge), nil
}

// decisionOf returns a decision on the wire, about one charge, or about several.
func decisionOf(d *headgate.Decision, several bool) *api.Decision {
	out := &api.Decision{
		Allowed: d.Allowed, Limit: d.LimitName,
		Capacity:     api.Number(d.Capacity, d.CapacityNanos),
		Remaining:    api.Number(d.Remaining, d.RemainingNanos),
		RetryAfterMS: retryAfter(d.RetryAfter), ResetAfterMS: Millis(d.ResetAfter), At: d.At.UnixMicro(),
		Entry: d.EntryNumber, Replayed: d.Replayed, Applied: d.Applied,
	}
	if d.Via != headgate.ViaStore {
		out.Via = d.Via.String()
	}
	if !several {
		return out
	}
	out.Key, out.Each = d.Key, make([]api.Figures, len(d.Each))
	for i := range d.Each {
		f := &d.Each[i]
		out.Each[i] = api.Figures{
			Charge: f.Charge, Allowed: f.Allowed, Limit: f.LimitName, Key: f.Key,
			Capacity:     api.Number(f.Capacity, f.CapacityNanos),
			Remaining:    api.Number(f.Remaining, f.RemainingNanos),
			RetryAfterMS: retryAfter(f.RetryAfter), ResetAfterMS: Millis(f.ResetAfter), Applied: f.Applied,
		}
	}
	return out
}

// retryAfter returns a time in milliseconds; nil is never.
func retryAfter(d time.Duration) *int64 {
	if d == headgate.Never {
		return nil
	}
	return new(Millis(d))
}

// Millis returns milliseconds, rounded up.
func Millis(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}

// Each decides requests as [headgate.Limiter.Batch] does, and remembers the refusals of what would have
// been taken. Its charges are of limits that the caller may touch.
func (s *Service) Each(ctx context.Context, requests []headgate.Request) ([]headgate.BatchResult, error) {
	answers, err := s.limiter.Batch(ctx, requests)
	if err != nil {
		return nil, err
	}
	for i := range answers {
		if answers[i].Err == nil && !requests[i].Check {
			s.refusals.add(&answers[i].Decision, requests[i].Charges)
		}
	}
	return answers, nil
}

// Limiter returns the limiter that decides. A refusal by it does not appear among the recent ones.
func (s *Service) Limiter() *headgate.Limiter { return s.limiter }

// Debit charges work that is done already, whatever the level. It needs an id: without one, what is sent again would be
// charged twice.
func (s *Service) Debit(ctx context.Context, r *api.Request) (*api.Debited, error) {
	switch {
	case r.ID == "":
		return nil, headgate.Invalid("id", "is missing: a debit that is sent again would be charged twice")
	case len(r.Charges) > 1:
		return nil, headgate.Invalid("charges", "are %d; one can be debited at a time", len(r.Charges))
	}
	charges, id, life, err := s.asked(ctx, r)
	if err != nil {
		return nil, err
	}
	d, err := s.limiter.Once(id, life).Debit(ctx, charges[0])
	if err != nil {
		return nil, err
	}
	return &api.Debited{
		Decision: *decisionOf(&d.Decision, false), Charged: json.Number(d.Charged.String()),
		Level: json.Number(d.Level.String()), Over: d.Over,
	}, nil
}

// Refund gives back what is in use of a key, up to a cost.
func (s *Service) Refund(ctx context.Context, r *api.Refund) (*api.Refunded, error) {
	charges, err := s.charge(ctx, nil, &api.Charge{Limit: r.Limit, Key: r.Key, NoKey: r.NoKey, Cost: r.Cost}, costOf)
	if err != nil {
		return nil, err
	}
	c := charges[0]
	if c.Cost.IsZero() {
		c.Cost = headgate.Units(1)
	}
	note := "up to " + c.Cost.String()
	if r.Reason != "" {
		note += ": " + r.Reason
	}
	if err := law.ValidText("reason", note, store.MaxNote); err != nil {
		return nil, err
	}
	returned, err := s.limiter.Refund(ctx, c)
	s.audit(ctx, AdminAction{Verb: "refund", Limit: c.Limit.Name(), Key: c.Key, Reason: note}, err)
	if err != nil {
		return nil, err
	}
	return &api.Refunded{Returned: json.Number(returned.String())}, nil
}

// FillUp takes as much of a charge as fits, up to the capacity.
func (s *Service) FillUp(ctx context.Context, r *api.Request) (*api.Filled, error) {
	switch {
	case r.ID != "" || r.Life != "":
		return nil, headgate.Invalid("id", "is not for a fill-up: what fits differs when it is sent again")
	case len(r.Charges) > 1:
		return nil, headgate.Invalid("charges", "are %d; one can be filled up at a time", len(r.Charges))
	}
	charges, _, _, err := s.asked(ctx, r)
	if err != nil {
		return nil, err
	}
	f, err := s.limiter.FillUp(ctx, charges[0])
	if err != nil {
		return nil, err
	}
	s.refusals.add(&f.Decision, charges)
	return &api.Filled{
		Decision: *decisionOf(&f.Decision, false), Accepted: json.Number(f.Accepted.String()),
		Level: json.Number(f.Level.String()), Brim: f.Brim,
	}, nil
}
