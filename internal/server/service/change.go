package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/store"
)

// Override gives a key another limit in the place of a named one, or removes the override. It makes a version of the
// catalog with the caller as its author.
func (s *Service) Override(ctx context.Context, r *api.Override) (*api.Changed, error) {
	limit, err := s.limitOfCell(ctx, r.Limit, r.NoKey)
	if err != nil {
		return nil, err
	}
	if err := headgate.ValidName(limit.Name()); err != nil {
		return nil, headgate.Invalid("limit", "%.100q is no name; an override stands in the place of a named limit",
			r.Limit)
	}
	return s.change(ctx, func(c *catalog.Catalog) (int64, error) {
		by := s.author(ctx, r.Reason)
		if r.Remove {
			if r.Override != "" || r.For != "" {
				return 0, headgate.Invalid("remove", "stands beside a limit or an end; say one or the other")
			}
			return c.RemoveOverride(ctx, by, limit.Name(), r.Key, r.Prefix)
		}
		o := catalog.Override{Key: r.Key, Prefix: r.Prefix, Reason: r.Reason}
		if o.Limit, err = headgate.ParseNamed(limit.Name(), r.Override); err != nil {
			return 0, InField("override", err)
		}
		if o.Until, err = endTime(c, r.For, r.Until); err != nil {
			return 0, err
		}
		return c.Override(ctx, by, o)
	})
}

// SetLimit defines, changes or renames a limit. It makes a version by the caller, unless nothing differs or r is a dry
// run.
func (s *Service) SetLimit(ctx context.Context, r *api.SetLimit) (*api.Changed, error) {
	if err := headgate.ValidName(r.Name); err != nil {
		return nil, err
	}
	for _, name := range []string{r.Name, cmp.Or(r.RenamedFrom, r.Name)} {
		if err := s.checkLimit(auth.CallerOf(ctx), name); err != nil {
			return nil, err
		}
	}
	c, err := s.catalog()
	if err != nil {
		return nil, err
	}
	var limit headgate.Limit
	if r.Limit != "" || r.RenamedFrom == "" {
		if limit, err = headgate.ParseNamed(cmp.Or(r.RenamedFrom, r.Name), r.Limit); err != nil {
			return nil, InField("limit", err)
		}
	}
	if err := c.Refresh(ctx); err != nil {
		return nil, err
	}
	for try := 1; ; try++ { // again, at most five times in all, if others changed the catalog meanwhile
		d := catalog.Definition{Limit: limit}
		if old, ok := c.Lookup(cmp.Or(r.RenamedFrom, r.Name)); ok {
			d.Origin, d.Description = old.Origin, old.Description
			d.Limit = cmp.Or(limit, old.Limit)
		} else if r.RenamedFrom != "" {
			_, err := c.Get(r.RenamedFrom)
			return nil, err
		}
		if r.RenamedFrom != "" {
			d.RenamedTo = r.Name
		}
		if r.Description != nil {
			d.Description = *r.Description
		}
		changes, err := c.Difference(d)
		if err != nil {
			return nil, err
		}
		out := &api.Changed{Changes: s.itemChanges(changes, nil)} // a caller who may change it may see it
		if out.Version, _ = c.Version(); r.DryRun || len(changes) == 0 {
			return out, nil
		}
		by := s.author(ctx, r.Reason)
		by.Seen = cmp.Or(r.Seen, &out.Version)
		out.Version, err = c.Set(ctx, by, d)
		switch {
		case !errors.Is(err, store.ErrVersion):
			return out, err
		case r.Seen != nil || try == 5:
			return nil, err
		}
	}
}

// SetPlan gives a key a plan, or takes its plan away. It makes a version with the caller as its author.
func (s *Service) SetPlan(ctx context.Context, r *api.SetPlan) (*api.Changed, error) {
	switch caller := auth.CallerOf(ctx); {
	case !caller.AllLimits():
		return nil, fmt.Errorf("%w: %s may not give plans, which may concern all limits", auth.ErrForbidden, caller)
	case r.NoKey:
		return nil, headgate.Invalid("key", "is missing")
	case r.Remove && (r.Plan != "" || r.For != ""):
		return nil, headgate.Invalid("remove", "stands beside a plan or an end; say one or the other")
	}
	return s.change(ctx, func(c *catalog.Catalog) (version int64, err error) {
		by := s.author(ctx, r.Reason)
		if r.Remove {
			return c.Unassign(ctx, by, r.Key, r.Prefix)
		}
		a := catalog.Assignment{Plan: r.Plan, Key: r.Key, Prefix: r.Prefix, Reason: r.Reason}
		if a.Until, err = endTime(c, r.For, r.Until); err != nil {
			return 0, err
		}
		return c.Assign(ctx, by, a)
	})
}

// endTime returns the end by the store's clock: until, or after a period from now; zero: never.
func endTime(c *catalog.Catalog, after string, until *time.Time) (time.Time, error) {
	switch {
	case until != nil:
		return *until, nil
	case after == "":
		return time.Time{}, nil
	}
	d, err := headgate.ParsePeriod(after)
	return c.Now().Add(d), InField("for", err)
}

// change calls do to make a version of the catalog, and returns the version with its changes. The changes are empty if
// the version was there before, or if they could not be read.
func (s *Service) change(ctx context.Context, do func(*catalog.Catalog) (version int64, err error)) (
	*api.Changed, error,
) {
	c, err := s.catalog()
	if err != nil {
		return nil, err
	}
	if err := c.Refresh(ctx); err != nil { // so that a later version is the one that do makes
		return nil, err
	}
	before, _ := c.Version()
	version, err := do(c)
	if err != nil {
		return nil, err
	}
	out := &api.Changed{Version: version, Changes: []api.ItemChange{}}
	if version == before {
		return out, nil
	}
	if list, err := c.Between(ctx, version-1, version); err == nil {
		out.Changes = s.itemChanges(list, auth.CallerOf(ctx))
	}
	return out, nil
}

// Rollback restores limits, plans and overrides, all or those of r.Limits, as they were after a version. It makes a new
// version with the caller as its author, unless r is a dry run.
func (s *Service) Rollback(ctx context.Context, r *api.Rollback) (*api.Changed, error) {
	c, err := s.catalog()
	if err != nil {
		return nil, err
	}
	caller := auth.CallerOf(ctx)
	if r.Limits != nil && len(r.Limits) == 0 { // an empty list does not stand for all
		return nil, headgate.Invalid("limits", "is empty; leave it out to roll back all limits")
	}
	if r.Limits == nil && !caller.AllLimits() {
		return nil, fmt.Errorf("%w: %s may not roll back all limits; name some", auth.ErrForbidden, caller)
	}
	for _, name := range r.Limits {
		if err := s.checkLimit(caller, name); err != nil {
			return nil, err
		}
	}
	if r.NoVersion {
		return nil, headgate.Invalid("version", "is missing")
	}
	list, err := c.PreviewRollback(ctx, r.Version, r.Limits...)
	if err != nil {
		return nil, err
	}
	for i := range list { // of limits with these names then, which may be names of other limits now
		if !s.mayRead(caller, &list[i].After) {
			return nil, fmt.Errorf("%w: %s may not touch all limits that had one of these names", auth.ErrForbidden,
				caller)
		}
	}
	out := &api.Changed{Changes: s.itemChanges(list, caller)}
	out.Version, _ = c.Version()
	if r.DryRun {
		return out, nil
	}
	by := s.author(ctx, r.Reason)
	by.Seen = r.Seen
	out.Version, err = c.Rollback(ctx, by, r.Version, r.Limits...)
	return out, err
}

// author returns the author of a change that a caller makes.
func (s *Service) author(ctx context.Context, reason string) catalog.By {
	name := cmp.Or(s.anonymousAuthor, "a caller without a name")
	if c := auth.CallerOf(ctx); c != nil {
		name = cmp.Or(c.Name, name)
	}
	return catalog.By{Author: name, Reason: reason}
}

// InField returns an error that names another field, if err is an InvalidError, else err.
func InField(field string, err error) error {
	if wrong, ok := errors.AsType[*headgate.InvalidError](err); ok {
		return headgate.Invalid(field, "%s", wrong.Problem)
	}
	return err
}
