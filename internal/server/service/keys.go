package service

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
)

// A limit is shown from nearlyFull on, the fullest shownFull of them.
const (
	nearlyFull = 0.8
	shownFull  = 20
)

// NearlyFull returns the limits that have nearly as many keys as the store keeps of a limit, the fullest first. There
// are none where the store bounds no keys.
func (s *Service) NearlyFull(ctx context.Context) ([]api.Keys, error) {
	counts, err := s.limiter.KeyCounts(ctx)
	if errors.Is(err, headgate.ErrUnsupported) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []api.Keys
	for _, c := range counts {
		if c.Max > 0 && fill(c.Keys, c.Max) >= nearlyFull && c.Limit != probed.Name() {
			list = append(list, api.Keys{Limit: c.Limit, Keys: c.Keys, Max: c.Max})
		}
	}
	slices.SortStableFunc(list, func(a, b api.Keys) int {
		return cmp.Compare(fill(b.Keys, b.Max), fill(a.Keys, a.Max))
	})
	return list[:min(len(list), shownFull)], nil
}

func fill(keys, most int64) float64 { return float64(keys) / float64(most) }
