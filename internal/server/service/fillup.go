package service

import (
	"context"
	"encoding/json"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
)

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
