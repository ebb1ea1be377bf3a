package rest

import (
	"context"
	"net/http"

	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/load"
)

// usage answers what a key has used of its limits.
func (d *door) usage(w http.ResponseWriter, r *http.Request, s *load.Share) error {
	q := &api.UsageQuery{}
	if err := parameters(r.URL.RawQuery, q); err != nil {
		return err
	}
	return d.answering(w, r, s, 0, func(ctx context.Context) (any, error) {
		return d.service.Usage(ctx, q, func(limits int) error { return s.Hold(int64(perCell * limits)) })
	})
}
