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

// Debit charges a cost whatever the level, as [headgate.Limiter.Debit] does.
func (s *Service) Debit(ctx context.Context, c headgate.Charge) (headgate.DebitResult, error) {
	return s.limiter.Debit(ctx, c)
}

// Refund gives back what is in use, as [headgate.Limiter.Refund] does.
func (s *Service) Refund(ctx context.Context, c headgate.Charge) (headgate.Cost, error) {
	return s.limiter.Refund(ctx, c)
}

// Used returns what a key has used of a limit, as [headgate.Limiter.Usage] does.
func (s *Service) Used(ctx context.Context, key string, limit headgate.Limit) (headgate.Usage, error) {
	list, err := s.limiter.Usage(ctx, key, limit)
	if err != nil {
		return headgate.Usage{}, err
	}
	return list[0], nil
}
