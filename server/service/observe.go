package service

import (
	"context"
	"net/http"
	"time"

	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/server/api"
)

// longestPause is for how long one answer can hold a key back: as long as a notation may count, and at most
// an hour.
func (s *Service) longestPause() time.Duration {
	if most := s.config.Notations.MaxPeriod; most > 0 {
		return min(most, httplimit.DefaultMaxRetryAfter)
	}
	return httplimit.DefaultMaxRetryAfter
}

// Observe holds a key back if an answer from elsewhere asks for that: see [httplimit.Observer].
func (s *Service) Observe(ctx context.Context, r *api.Observe) (*api.Observed, error) {
	limit, err := s.cell(ctx, r.Limit, r.NoKey)
	if err != nil {
		return nil, err
	}
	if err := s.beside("status", s.longestPause(), limit); err != nil {
		return nil, err
	}
	fields := make(http.Header, len(r.Headers))
	for name, value := range r.Headers {
		fields.Add(name, value)
	}
	b := s.observer.Observe(ctx, limit, r.Key, r.Status, fields)
	if b.Err != nil {
		return nil, b.Err
	}
	return &api.Observed{BlockedForMS: int64((b.For + time.Millisecond - 1) / time.Millisecond), Field: b.Field}, nil
}
