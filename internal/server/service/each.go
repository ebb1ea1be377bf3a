package service

import (
	"context"

	"github.com/headgate/headgate"
)

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

// Limiter is that of the service, for what remembers no refusals.
func (s *Service) Limiter() *headgate.Limiter { return s.limiter }
