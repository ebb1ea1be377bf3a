package rest

import (
	"context"

	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/load"
)

// usage answers what a key has used of its limits.
func (d *door) usage(ctx context.Context, q *api.UsageQuery, s *load.Share) (any, error) {
	return d.service.Usage(ctx, q, func(limits int) error { return s.Hold(int64(perEntry * limits)) })
}
