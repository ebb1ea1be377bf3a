package rest

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/edge"
	"github.com/headgate/headgate/internal/server/load"
	"github.com/headgate/headgate/law"
)

// Bounds of the lists of overrides and versions.
const (
	usualOverrides = 200
	maxOverrides   = 1000
	usualVersions  = 50
	maxVersions    = 500
)

// answering reserves hold bytes, calls do with the deadline of a read, and writes its result.
func (d *door) answering(w http.ResponseWriter, r *http.Request, s *load.Share, hold int,
	do func(context.Context) (any, error),
) error {
	if err := s.Enter(); err != nil {
		return err
	}
	if err := s.Hold(int64(hold)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), deadline)
	defer cancel()
	out, err := do(ctx)
	if err != nil {
		return err
	}
	s.Leave()
	return d.answer(w, out)
}

// catalogue tells of the limits and plans.
func (d *door) catalogue(w http.ResponseWriter, r *http.Request, s *load.Share) error {
	return d.answering(w, r, s, 0, func(ctx context.Context) (any, error) {
		out, err := d.service.Catalogue(ctx)
		if err != nil {
			return nil, err
		}
		return out, s.Hold(int64(load.PerObject * (len(out.Limits) + len(out.Plans))))
	})
}

// overrides lists overrides.
func (d *door) overrides(w http.ResponseWriter, r *http.Request, s *load.Share) error {
	v, err := edge.Query(r.URL.RawQuery, "max", "after_limit", "after_key")
	if err != nil {
		return err
	}
	q := &api.OverridesQuery{Max: usualOverrides, AfterLimit: v.Get("after_limit"), AfterKey: v.Get("after_key")}
	if err := valid("after_limit", law.Cell{Limit: q.AfterLimit}); err != nil {
		return err
	}
	if err := valid("after_key", law.Cell{Key: q.AfterKey}); err != nil {
		return err
	}
	if err := count(v, "max", maxOverrides, &q.Max); err != nil {
		return err
	}
	return d.answering(w, r, s, perEntry*q.Max, func(ctx context.Context) (any, error) {
		return d.service.Overrides(ctx, q)
	})
}

// versions lists versions of the catalogue.
func (d *door) versions(w http.ResponseWriter, r *http.Request, s *load.Share) error {
	v, err := edge.Query(r.URL.RawQuery, "limit", "max", "before")
	if err != nil {
		return err
	}
	q := &api.VersionsQuery{Max: usualVersions, Limit: v.Get("limit")}
	if err := valid("limit", law.Cell{Limit: q.Limit}); err != nil {
		return err
	}
	if err := count(v, "max", maxVersions, &q.Max); err != nil {
		return err
	}
	if q.Before, err = version(v, "before", 0); err != nil {
		return err
	}
	return d.answering(w, r, s, perEntry*q.Max, func(ctx context.Context) (any, error) {
		return d.service.Versions(ctx, q)
	})
}

// difference says what was changed between two versions of the catalogue.
func (d *door) difference(w http.ResponseWriter, r *http.Request, s *load.Share) error {
	v, err := edge.Query(r.URL.RawQuery, "from", "to")
	if err != nil {
		return err
	}
	from, err := version(v, "from", -1)
	if err != nil {
		return err
	}
	to, err := version(v, "to", -1)
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

// count reads how many are asked for, if that is said.
func count(v url.Values, name string, most int, to *int) (err error) {
	if !v.Has(name) {
		return nil
	}
	*to, err = number(name, v.Get(name), 1, most)
	return err
}

// version reads the number of a version. Where it is missing it is another one, and below 0 that is an error.
func version(v url.Values, name string, missing int64) (int64, error) {
	if !v.Has(name) {
		if missing < 0 {
			return 0, headgate.Invalid(name, "is missing; it is the number of a version, and 0 is before the first")
		}
		return missing, nil
	}
	n, err := strconv.ParseInt(v.Get(name), 10, 64)
	if err != nil || n < 0 {
		return 0, headgate.Invalid(name, "%+.40q is not the number of a version", v.Get(name))
	}
	return n, nil
}
