package service

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/server/api"
	"github.com/headgate/headgate/server/auth"
)

// Override gives a key another limit in the place of a named one, or takes that away. It is a version of the
// catalogue, with the caller as its author.
func (s *Service) Override(ctx context.Context, r *api.Override) (*api.Changed, error) {
	limit, err := s.cell(ctx, r.Limit, r.NoKey)
	if err != nil {
		return nil, err
	}
	if err := headgate.ValidName(limit.Name()); err != nil {
		return nil, headgate.Invalid("limit", "%.100q is no name; an override stands in the place of a named limit",
			r.Limit)
	}
	limits, ok := s.names.(interface {
		Now() time.Time
		Override(ctx context.Context, by catalog.By, list ...catalog.Override) (int64, error)
		RemoveOverride(ctx context.Context, by catalog.By, limit, key string, prefix bool) (int64, error)
	})
	if !ok {
		return nil, headgate.ErrUnsupported
	}
	by := author(ctx, r.Reason)
	if r.Remove {
		if r.Override != "" || r.For != "" {
			return nil, headgate.Invalid("remove", "stands beside a limit or an end; say one or the other")
		}
		version, err := limits.RemoveOverride(ctx, by, limit.Name(), r.Key, false)
		return &api.Changed{Version: version}, err
	}
	o := catalog.Override{Key: r.Key, Reason: r.Reason}
	if o.Limit, err = headgate.ParseNamed(limit.Name(), r.Override); err != nil {
		return nil, inField("override", err)
	}
	if r.For != "" {
		d, err := headgate.ParsePeriod(r.For)
		if err != nil {
			return nil, inField("for", err)
		}
		o.Until = limits.Now().Add(d)
	}
	version, err := limits.Override(ctx, by, o)
	return &api.Changed{Version: version}, err
}

// author is the author of a change that a caller makes.
func author(ctx context.Context, reason string) catalog.By {
	name := "a caller without a name"
	if c := auth.From(ctx); c != nil {
		name = cmp.Or(c.Name, name)
	}
	return catalog.By{Author: name, Reason: reason}
}

// inField says that a field has what is wrong.
func inField(field string, err error) error {
	if wrong, ok := errors.AsType[*headgate.InvalidError](err); ok {
		return headgate.Invalid(field, "%s", wrong.Problem)
	}
	return err
}
