package service

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/server/api"
)

// longestPause returns the longest block that one response can cause: an hour, or the longest period of a notation if
// that period is shorter.
func (s *Service) longestPause() time.Duration {
	const bound = httplimit.DefaultMaxRetryAfter
	return min(cmp.Or(s.config.NotationBounds.MaxPeriod, bound), bound)
}

// Observe blocks a key if a provider's response says so, such as with Retry-After: see [httplimit.Observer].
func (s *Service) Observe(ctx context.Context, r *api.Observe) (*api.Observed, error) {
	if r.Status < 100 || r.Status > 599 {
		return nil, headgate.Invalid("status", "is no status of HTTP: %d", r.Status)
	}
	limit, err := s.limitOfCell(ctx, r.Limit, r.NoKey)
	if err != nil {
		return nil, err
	}
	if err := s.extendUse("status", s.longestPause(), limit); err != nil {
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
	return &api.Observed{BlockedForMS: Millis(b.For), Field: b.Field}, nil
}
