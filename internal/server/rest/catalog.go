package rest

import (
	"context"
	"net/http"

	"github.com/headgate/headgate/internal/server/edge"
	"github.com/headgate/headgate/internal/server/load"
)

// catalog answers with the limits and plans.
func (d *door) catalog(w http.ResponseWriter, r *http.Request, s *load.Share) error {
	return d.answering(w, r, s, func(ctx context.Context) (any, error) {
		out, err := d.service.Catalog(ctx)
		if err != nil {
			return nil, err
		}
		return out, s.Hold(int64(load.PerObject * (len(out.Limits) + len(out.Plans))))
	})
}

// difference says what was changed between two versions of the catalog.
func (d *door) difference(w http.ResponseWriter, r *http.Request, s *load.Share) error {
	v, err := edge.Query(r.URL.RawQuery, "from", "to")
	if err != nil {
		return err
	}
	from, err := version(v, "from")
	if err != nil {
		return err
	}
	to, err := version(v, "to")
	if err != nil {
		return err
	}
	return d.answering(w, r, s, func(ctx context.Context) (any, error) {
		out, err := d.service.Difference(ctx, from, to)
		if err != nil {
			return nil, err
		}
		return out, s.Hold(int64(load.PerObject * len(out.Changes)))
	})
}
