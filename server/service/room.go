package service

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/api"
)

// A limit is shown from nearlyFull on, the fullest shownRooms of them.
const (
	nearlyFull = 0.8
	shownRooms = 20
)

// Fullness returns the limits that are full or nearly: those that share a cell first,
// then the fullest. There are none where the store counts no keys.
func (s *Service) Fullness(ctx context.Context) ([]api.Room, error) {
	rooms, err := s.limiter.Fullness(ctx)
	if errors.Is(err, headgate.ErrUnsupported) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []api.Room
	for _, r := range rooms {
		if r.Fill() >= nearlyFull && r.Limit != probed.Name() {
			list = append(list, api.Room{
				Limit: r.Limit, Keys: r.Keys, Max: r.Max, CountedAt: r.CountedAt, Sharing: r.Sharing, Since: r.Since,
				Shared: r.Shared,
			})
		}
	}
	slices.SortStableFunc(list, func(a, b api.Room) int {
		return cmp.Or(-compareBool(a.Sharing, b.Sharing), -cmp.Compare(fill(a), fill(b)))
	})
	return list[:min(len(list), shownRooms)], nil
}

func fill(r api.Room) float64 { return float64(r.Keys) / float64(max(r.Max, 1)) }

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
