package rest

import (
	"context"
	"net/http"

	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/edge"
	"github.com/headgate/headgate/internal/server/load"
)

// How many overrides and versions a list has, where nothing is said.
const (
	usualOverrides = 200
	usualVersions  = 50
)

// catalog answers with the limits and plans.
func (d *door) catalog(w http.ResponseWriter, r *http.Request, s *load.Share) error {
	return d.answering(w, r, s, 0, func(ctx context.Context) (any, error) {
		out, err := d.service.Catalog(ctx)
		if err != nil {
			return nil, err
		}
		return out, s.Hold(int64(load.PerObject * (len(out.Limits) + len(out.Plans))))
	})
}

// overrides lists overrides.
func (d *door) overrides(w http.ResponseWriter, r *http.Request, s *load.Share) error {
	q := &api.OverridesQuery{Max: usualOverrides}
	if err := parameters(r.URL.RawQuery, q); err != nil {
		return err
	}
	return d.answering(w, r, s, perEntry*q.Max, func(ctx context.Context) (any, error) {
		return d.service.Overrides(ctx, q)
	})
}

// versions lists versions of the catalog.
func (d *door) versions(w http.ResponseWriter, r *http.Request, s *load.Share) error {
	q := &api.VersionsQuery{Max: usualVersions}
	if err := parameters(r.URL.RawQuery, q); err != nil {
		return err
	}
	return d.answering(w, r, s, perEntry*q.Max, func(ctx context.Context) (any, error) {
		return d.service.Versions(ctx, q)
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
	return d.answering(w, r, s, 0, func(ctx context.Context) (any, error) {
		out, err := d.service.Difference(ctx, from, to)
		if err != nil {
			return nil, err
		}
		return out, s.Hold(int64(load.PerObject * len(out.Changes)))
	})
}
