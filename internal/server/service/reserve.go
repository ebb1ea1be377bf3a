package service

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/auth"
)

// Reserve takes charges for a start that may lie ahead.
func (s *Service) Reserve(ctx context.Context, r *api.Reserve) (*api.Reserved, error) {
	charges, id, life, err := s.parseRequest(ctx, &r.Request)
	if err != nil {
		return nil, err
	}
	wait, err := duration("wait", r.Wait)
	if err == nil {
		err = s.extendUses("wait", wait, charges)
	}
	if err != nil {
		return nil, err
	}
	reserve := s.limiter.Reserve
	if id != "" {
		reserve = s.limiter.Once(id, life).Reserve
	}
	reservation, err := reserve(ctx, wait, charges...)
	if err != nil {
		return nil, err
	}
	s.refusals.add(&reservation.Decision, charges)
	out := &api.Reserved{
		Decision: *decisionOf(&reservation.Decision, len(charges) > 1), Refundable: reservation.Refundable,
	}
	if reservation.Decision.Allowed {
		out.StartAt, out.DelayMS = new(reservation.StartAt.UnixMicro()), new(Millis(reservation.Delay()))
	}
	return out, nil
}

// Extend charges more under an id.
func (s *Service) Extend(ctx context.Context, r *api.Request) (*api.Extended, error) {
	if r.ID == "" {
		return nil, headgate.Invalid("id", "is missing")
	}
	charges, id, life, err := s.parseRequest(ctx, r)
	if err != nil {
		return nil, err
	}
	e, err := s.limiter.Once(id, life).Extend(ctx, charges...)
	if err != nil {
		return nil, err
	}
	s.refusals.add(&e.Decision, charges)
	return &api.Extended{Decision: *decisionOf(&e.Decision, len(charges) > 1), Charged: numbers(e.Charged)}, nil
}

func numbers(costs []headgate.Cost) []json.Number {
	list := make([]json.Number, len(costs))
	for i, c := range costs {
		list[i] = json.Number(c.String())
	}
	return list
}

// Settle corrects the costs of charges that were admitted under an id to their actual costs.
func (s *Service) Settle(ctx context.Context, r *api.Settle) (*api.Settled, error) {
	return s.correct(ctx, r, actualCost, headgate.Once.Settle)
}

// Cancel takes back charges that were admitted under an id.
func (s *Service) Cancel(ctx context.Context, r *api.Settle) (*api.Settled, error) {
	return s.correct(ctx, r, noCost, headgate.Once.Cancel)
}

// correct settles or cancels the charges of a request with verb. parse reads their costs.
func (s *Service) correct(ctx context.Context, r *api.Settle, parse costParser,
	verb func(headgate.Once, context.Context, ...headgate.Charge) ([]headgate.Cost, error),
) (*api.Settled, error) {
	if r.ID == "" {
		return nil, headgate.Invalid("id", "is missing")
	}
	charges, err := s.appendCharges(ctx, nil, &api.Request{Charge: r.Charge, Charges: r.Charges, Used: r.Used}, parse)
	if err != nil {
		return nil, err
	}
	corrected, err := verb(s.limiter.Once(auth.CallerOf(ctx).ID(r.ID), 0), ctx, charges...)
	if err != nil {
		return nil, err
	}
	return &api.Settled{Corrected: numbers(corrected)}, nil
}

// actualCost reads the cost of a charge that is settled, which is required and may be 0.
func actualCost(n json.Number) (headgate.Cost, error) {
	if n == "" {
		return headgate.Cost{}, headgate.Invalid("cost", "is missing: what has it cost in the end? 0 for nothing")
	}
	return headgate.ParseCostUp(n.String())
}

// noCost rejects a cost, since a charge that is cancelled has none.
func noCost(n json.Number) (headgate.Cost, error) {
	if n != "" {
		return headgate.Cost{}, headgate.Invalid("cost",
			"is not for a charge that is cancelled; to correct it, settle it")
	}
	return headgate.Units(0), nil
}

// idAndLife returns the id of a request as the store has it, and its life, for which it keeps notations in use.
func (s *Service) idAndLife(ctx context.Context, r *api.Request, charges []headgate.Charge) (
	id string, life time.Duration, err error,
) {
	if r.ID == "" && r.Life != "" {
		return "", 0, headgate.Invalid("life", "stands without an id")
	}
	if life, err = duration("life", r.Life); err == nil && r.ID != "" {
		err = s.extendUses("life", cmp.Or(life, headgate.DefaultLife), charges)
	}
	return auth.CallerOf(ctx).ID(r.ID), life, err
}

// duration parses a period; an empty text and 0 are zero.
func duration(field, text string) (time.Duration, error) {
	if text == "" || text == "0" {
		return 0, nil
	}
	d, err := headgate.ParsePeriod(text)
	if err != nil {
		return 0, headgate.Invalid(field, "%.100q is not a period such as 30s", text)
	}
	return d, nil
}
