package service

import (
	"context"
	"errors"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/auth"
)

// Acquire acquires leases of concurrency limits. The service does not renew them; the client has to.
func (s *Service) Acquire(ctx context.Context, r *api.Request) (*api.Acquired, error) {
	if r.ID != "" || r.Life != "" {
		return nil, headgate.Invalid("id", "is not for what is held: it ends by itself")
	}
	charges, _, _, err := s.parseRequest(ctx, r)
	if err != nil {
		return nil, err
	}
	lease, err := s.limiter.Acquire(ctx, charges...)
	if err != nil {
		return nil, err
	}
	s.refusals.add(&lease.Decision, charges)
	out := &api.Acquired{Decision: *decisionOf(&lease.Decision, len(charges) > 1)}
	caller := auth.CallerOf(ctx)
	for _, h := range lease.Detach() {
		if ttl := Millis(h.Limit.Algorithm().(headgate.Concurrency).TTL); out.TTLMS == 0 || ttl < out.TTLMS {
			out.TTLMS = ttl
		}
		out.Held = append(out.Held, api.LeaseToken{
			Limit: h.Limit.Name(), Key: h.Key, Number: caller.SealLease(h.Number),
		})
	}
	return out, nil
}

// Renew renews leases.
func (s *Service) Renew(ctx context.Context, r *api.Leases) (*api.Lost, error) {
	return s.applyToLeases(ctx, r, s.limiter.Renew)
}

// Release releases leases.
func (s *Service) Release(ctx context.Context, r *api.Leases) (*api.Lost, error) {
	return s.applyToLeases(ctx, r, s.limiter.Release)
}

// applyToLeases calls do with the leases of a request that are its caller's. It reports if any is lost, or another's.
func (s *Service) applyToLeases(ctx context.Context, r *api.Leases,
	do func(context.Context, ...headgate.LeaseToken) error,
) (*api.Lost, error) {
	if len(r.Held) > api.MaxCharges {
		return nil, headgate.Invalid("held", "are more than %d", api.MaxCharges)
	}
	tokens := make([]headgate.LeaseToken, 0, len(r.Held))
	caller, lost := auth.CallerOf(ctx), false
	for _, h := range r.Held {
		limit, err := s.limitOfCell(ctx, h.Limit, h.NoKey)
		if err != nil {
			return nil, err
		}
		number, ok := caller.OpenLease(h.Number)
		if !ok {
			lost = true
			continue
		}
		tokens = append(tokens, headgate.LeaseToken{Limit: limit, Key: h.Key, Number: number})
	}
	if len(tokens) == 0 && lost {
		return &api.Lost{Lost: true}, nil
	}
	err := do(ctx, tokens...)
	if errors.Is(err, headgate.ErrLeaseLost) {
		err, lost = nil, true
	}
	if err != nil {
		return nil, err
	}
	return &api.Lost{Lost: lost}, nil
}
