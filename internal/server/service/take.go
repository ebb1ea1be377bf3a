package service

import (
	"cmp"
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

// take takes or checks the charges of a request.
func (s *Service) take(ctx context.Context, r *api.Request, check bool) (*api.Decision, error) {
	charges, id, life, err := s.parseRequest(ctx, r)
	if err != nil {
		return nil, err
	}
	d, err := s.Decide(ctx, &headgate.Request{Charges: charges, Check: check, ID: id, Life: life})
	if err != nil {
		return nil, err
	}
	return decisionOf(&d, len(charges) > 1), nil
}

// parseRequest returns the charges of a request that is not in a batch, and its id and life for the store, if any.
func (s *Service) parseRequest(ctx context.Context, r *api.Request) (
	charges []headgate.Charge, id string, life time.Duration, err error,
) {
	if r.Check {
		return nil, "", 0, headgate.Invalid("check", "stands only in the requests of a batch; ask /v1/check")
	}
	if charges, err = s.Charges(ctx, r); err == nil {
		id, life, err = s.idAndLife(ctx, r, charges)
	}
	return charges, id, life, err
}

// Decide takes or checks the charges of a request, which [Service.Charges] has returned. It records refusals of takes.
func (s *Service) Decide(ctx context.Context, r *headgate.Request) (headgate.Decision, error) {
	decide := s.limiter.Take
	switch {
	case r.Check && r.ID != "":
		return headgate.Decision{}, headgate.Invalid("id", "stands only in a request that takes")
	case r.Check:
		decide = s.limiter.Check
	case r.ID != "":
		decide = s.limiter.Once(r.ID, r.Life).Take
	}
	d, err := decide(ctx, r.Charges...)
	if err == nil && !r.Check {
		s.refusals.add(&d, r.Charges)
	}
	return d, err
}

// Charges returns the charges of a request, with their limits. An error is a headgate.ErrInvalid that names the field,
// or auth.ErrForbidden if the caller may not use a limit.
func (s *Service) Charges(ctx context.Context, r *api.Request) ([]headgate.Charge, error) {
	return s.appendCharges(ctx, nil, r, costOf)
}

// Batch answers many requests, each with a decision or a problem. It calls failed for each problem that is not the
// client's fault. It returns an error if the batch as a whole is too large, or was not decided.
func (s *Service) Batch(ctx context.Context, b *api.Batch, failed func(error)) (*api.Answers, error) {
	switch n := len(b.Requests); {
	case n == 0:
		return nil, headgate.Invalid("requests", "there is none")
	case n > api.MaxCharges: // invalid requests count too
		return nil, headgate.Invalid("requests", "are more than %d", api.MaxCharges)
	}
	answers := &api.Answers{Answers: make([]api.Answer, len(b.Requests))}
	requests := make([]headgate.Request, 0, len(b.Requests))
	index := make([]int, 0, len(b.Requests))               // of each valid request in b.Requests
	charges := make([]headgate.Charge, 0, len(b.Requests)) // of all requests
	for i := range b.Requests {
		r := &b.Requests[i]
		start := len(charges)
		extended, err := s.appendCharges(ctx, charges, r, costOf)
		var id string
		var life time.Duration
		if err == nil {
			id, life, err = s.idAndLife(ctx, r, extended[start:])
		}
		if err != nil {
			answers.Answers[i].Problem = batchProblem(err)
			continue
		}
		if charges = extended; len(charges) > api.MaxCharges {
			return nil, headgate.Invalid("requests", "carry more than %d charges", api.MaxCharges)
		}
		requests = append(requests, headgate.Request{
			Charges: charges[start:len(charges):len(charges)], Check: r.Check, ID: id, Life: life,
		})
		index = append(index, i)
	}
	got, err := s.DecideBatch(ctx, requests)
	if err != nil {
		return nil, err
	}
	for k := range got {
		a := &answers.Answers[index[k]]
		if err := got[k].Err; err != nil {
			if a.Problem = batchProblem(err); a.Problem.Status >= http.StatusInternalServerError {
				failed(err)
			}
			continue
		}
		a.Decision = decisionOf(&got[k].Decision, len(requests[k].Charges) > 1)
	}
	return answers, nil
}

// appendCharges appends the charges of a request to a list, with costs that parse reads.
func (s *Service) appendCharges(ctx context.Context, list []headgate.Charge, r *api.Request, parse costParser) (
	[]headgate.Charge, error,
) {
	switch {
	case len(r.Charges) == 0 && r.Limit == "":
		return nil, headgate.Invalid("limit", "is missing")
	case len(r.Charges) == 0:
		return s.appendCounted(ctx, list, &r.Charge, &r.Used, parse)
	case r.Charge != api.Charge{NoKey: r.NoKey}:
		return nil, headgate.Invalid("charges", "stand beside limit, key, cost, count or keep; say one or the other")
	case len(r.Charges) > api.MaxCharges:
		return nil, headgate.Invalid("charges", "are more than %d", api.MaxCharges)
	}
	var err error
	for i := range r.Charges {
		if list, err = s.appendCounted(ctx, list, &r.Charges[i], &r.Used, parse); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// costParser reads the cost of a charge.
type costParser func(json.Number) (headgate.Cost, error)

// costOf reads a cost that defaults to 1.
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

// appendCharge appends a charge to a list, with a cost that parse reads.
func (s *Service) appendCharge(ctx context.Context, list []headgate.Charge, c *api.Charge, parse costParser) (
	[]headgate.Charge, error,
) {
	limit, err := s.limitOfCell(ctx, c.Limit, c.NoKey)
	if err != nil {
		return nil, err
	}
	cost, err := parse(c.Cost)
	if err != nil {
		return nil, err
	}
	charge := headgate.Charge{Limit: limit, Key: c.Key, Cost: cost, Alternative: c.Alternative}
	if err := charge.Keep.UnmarshalText([]byte(c.Keep)); err != nil {
		return nil, err
	}
	return append(list, charge), nil
}

// decisionOf converts a decision about one charge, or about several, for the API.
func decisionOf(d *headgate.Decision, several bool) *api.Decision {
	out := &api.Decision{
		Allowed: d.Allowed, Limit: d.LimitName,
		Capacity: api.Number(d.Capacity, d.CapacityNanos), Remaining: api.Number(d.Remaining, d.RemainingNanos),
		RetryAfterMS: retryAfterMS(d.RetryAfter), ResetAfterMS: Millis(d.ResetAfter), At: d.At.UnixMicro(),
		Entry: d.EntryNumber, Replayed: d.Replayed, Applied: d.Applied, Alternative: d.Alternative,
		Crossed: d.Crossed,
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
			Capacity: api.Number(f.Capacity, f.CapacityNanos), Remaining: api.Number(f.Remaining, f.RemainingNanos),
			RetryAfterMS: retryAfterMS(f.RetryAfter), ResetAfterMS: Millis(f.ResetAfter), Applied: f.Applied,
			Crossed: f.Crossed,
		}
	}
	return out
}

// retryAfterMS converts a duration to milliseconds, rounded up; nil: never.
func retryAfterMS(d time.Duration) *int64 {
	if d == headgate.Never {
		return nil
	}
	return new(Millis(d))
}

// Millis converts a duration to milliseconds, rounded up.
func Millis(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}

// DecideBatch decides requests with [headgate.Limiter.Batch], and records the refusals of requests that take. The
// charges must be of limits that the caller may use.
func (s *Service) DecideBatch(ctx context.Context, requests []headgate.Request) ([]headgate.BatchResult, error) {
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

// Limiter returns the limiter that decides. Refusals of direct calls of it are not recorded.
func (s *Service) Limiter() *headgate.Limiter { return s.limiter }

// Debit charges work that is already done, whatever the level. It needs an id: without one, a request that is sent
// again would be charged twice.
func (s *Service) Debit(ctx context.Context, r *api.Request) (*api.Debited, error) {
	switch {
	case r.ID == "":
		return nil, headgate.Invalid("id", "is missing: a debit that is sent again would be charged twice")
	case len(r.Charges) > 1:
		return nil, headgate.Invalid("charges", "are %d; one can be debited at a time", len(r.Charges))
	}
	charges, id, life, err := s.parseRequest(ctx, r)
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

// Refund gives back, up to a cost, what a key has in use. It is audited.
func (s *Service) Refund(ctx context.Context, r *api.Refund) (*api.Refunded, error) {
	named := &api.Charge{Limit: r.Limit, Key: r.Key, NoKey: r.NoKey, Cost: r.Cost}
	charges, err := s.appendCharge(ctx, nil, named, costOf)
	if err != nil {
		return nil, err
	}
	c := charges[0]
	c.Cost = cmp.Or(c.Cost, headgate.Units(1))
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
	charges, _, _, err := s.parseRequest(ctx, r)
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
