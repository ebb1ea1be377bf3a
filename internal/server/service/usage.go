package service

import (
	"context"
	"errors"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/store"
)

// Usage tells what a key has used of its limits, and of its last refusals here. All limits of a key
// are those of the catalog, used or not, and the notations that were asked by here and that it
// has used. Without limits in the catalog they are those of which the store lists a cell of the
// key, for which it may read all it has. Before the store is read, hold gets the number of limits
// there may be. Nothing is charged.
func (s *Service) Usage(ctx context.Context, q *api.UsageQuery, hold func(limits int) error) (*api.Usage, error) {
	if q.NoKey {
		return nil, headgate.Invalid("key", "is missing; it may be empty, but it must be there")
	}
	limits, err := s.limitsOf(ctx, q, hold)
	if err != nil {
		return nil, err
	}
	used, err := s.limiter.Usage(ctx, q.Key, limits...)
	if err != nil {
		return nil, err
	}
	if len(q.Limits) == 0 {
		used = slices.DeleteFunc(used, func(u headgate.Usage) bool {
			return !u.Exists && headgate.ValidName(u.Limit) != nil // a notation that others use
		})
	}
	applied, err := s.replacements(ctx, q, used)
	if err != nil {
		return nil, err
	}
	out := &api.Usage{
		Key: q.Key, Limits: make([]api.LimitUsage, len(used)), Refusals: s.refusals.of(q.Key, auth.From(ctx)),
	}
	for i := range used {
		u := &used[i]
		out.Limits[i] = limitUsage(u)
		k := slices.IndexFunc(applied, func(r catalog.Replacement) bool {
			return r.Applied == u.Applied && (r.Limit == "" || r.Limit == u.Limit)
		})
		if k >= 0 {
			r := &applied[k]
			l := &out.Limits[i]
			l.AppliedUntil, l.AppliedReason, l.AppliedBy = instant(r.Until), r.Reason, r.Author
		}
	}
	return out, nil
}

// limitUsage returns a usage on the wire.
func limitUsage(u *headgate.Usage) api.LimitUsage {
	out := api.LimitUsage{
		Status: *status(u.Status), RetryAfterMS: retryAfter(u.RetryAfter),
		ResetAfterMS: Millis(u.ResetAfter),
	}
	explain(&out, u)
	return out
}

// limitsOf returns the limits that a query is about, for which hold made room.
func (s *Service) limitsOf(ctx context.Context, q *api.UsageQuery, hold func(limits int) error) (
	limits []headgate.Limit, err error,
) {
	for _, name := range q.Limits {
		l, err := s.cell(ctx, name, false)
		if err != nil {
			return nil, err
		}
		limits = append(limits, l)
	}
	if limits != nil {
		return limits, hold(len(limits))
	}
	caller := auth.From(ctx)
	named := s.names.List()
	if err := s.names.Err(); err != nil && len(named) == 0 && !errors.Is(err, headgate.ErrUnsupported) {
		return nil, err
	}
	if len(named) == 0 {
		if err := hold(store.DefaultMax); err != nil {
			return nil, err
		}
		limits, err := s.listed(ctx, q.Key)
		return touched(caller, limits), err
	}
	for _, d := range named {
		l, err := headgate.Named(d.Name()) // which means another limit for some keys
		if err != nil {
			return nil, err
		}
		limits = append(limits, l)
	}
	if limits = touched(caller, append(limits, s.known.used()...)); len(limits) > api.MaxCharges {
		return nil, headgate.Invalid("limit", "%d are too many to tell of at once; name those that matter, at most %d",
			len(limits), api.MaxCharges)
	}
	return limits, hold(len(limits))
}

// touched returns the limits that a caller may touch.
func touched(caller *auth.Caller, limits []headgate.Limit) []headgate.Limit {
	return slices.DeleteFunc(limits, func(l headgate.Limit) bool { return caller.Touches(l.Name()) != nil })
}

// listed returns the limits of which the store has cells of a key. Without a catalog these are
// notations.
func (s *Service) listed(ctx context.Context, key string) (limits []headgate.Limit, err error) {
	cells, err := s.limiter.List(ctx, store.Query{Key: key, HasKey: true})
	for _, c := range cells {
		if l, err := headgate.Parse(c.Limit); err == nil {
			limits = append(limits, l)
		}
	}
	return limits, err
}

// replacements returns what may be in force in the place of limits, if anything is.
func (s *Service) replacements(ctx context.Context, q *api.UsageQuery, used []headgate.Usage) (
	[]catalog.Replacement, error,
) {
	var replaced []string
	for i := range used {
		if used[i].Applied != "" {
			replaced = append(replaced, used[i].Limit)
		}
	}
	if replaced == nil {
		return nil, nil
	}
	c, err := s.catalog()
	if err != nil { // what replaces a limit is in a catalog
		return nil, err
	}
	return c.Replacements(ctx, q.Key, q.Authors, replaced...)
}
