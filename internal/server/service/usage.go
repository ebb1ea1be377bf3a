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

// Usage returns how much a key has used of its limits, and its last refusals here. A query without limits is about all
// limits of the catalog, and the notations that were requested here and that the key has used. If the catalog is empty,
// it is about the limits of the key's cells, to find which the store may have to read all its cells. Usage calls hold
// with the greatest possible number of limits before it reads the store. It charges nothing.
func (s *Service) Usage(ctx context.Context, q *api.UsageQuery, hold func(limits int) error) (*api.Usage, error) {
	if q.NoKey {
		return nil, headgate.Invalid("key", "is missing; it may be empty, but it must be there")
	}
	limits, err := s.queriedLimits(ctx, q, hold)
	if err != nil {
		return nil, err
	}
	used, err := s.limiter.Usage(ctx, q.Key, limits...)
	if err != nil {
		return nil, err
	}
	if len(q.Limits) == 0 {
		used = slices.DeleteFunc(used, func(u headgate.Usage) bool {
			return !u.Exists && headgate.ValidName(u.Limit) != nil // other keys use the notation
		})
	}
	applied, err := s.replacements(ctx, q, used)
	if err != nil {
		return nil, err
	}
	caller := auth.CallerOf(ctx)
	include := func(limit string) bool { return s.checkLimit(caller, limit) == nil }
	out := &api.Usage{
		Key: q.Key, Limits: make([]api.LimitUsage, len(used)), Refusals: s.refusals.ofKey(q.Key, include),
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

func limitUsage(u *headgate.Usage) api.LimitUsage {
	out := api.LimitUsage{
		Status: *status(u.Status), RetryAfterMS: retryAfterMS(u.RetryAfter), ResetAfterMS: Millis(u.ResetAfter),
	}
	addHint(&out, u)
	return out
}

// queriedLimits returns the limits that a query is about. It calls hold with their number, or the most there can be.
func (s *Service) queriedLimits(ctx context.Context, q *api.UsageQuery, hold func(limits int) error) (
	limits []headgate.Limit, err error,
) {
	for _, name := range q.Limits {
		l, err := s.limitOfCell(ctx, name, false)
		if err != nil {
			return nil, err
		}
		limits = append(limits, l)
	}
	if limits != nil {
		return limits, hold(len(limits))
	}
	caller := auth.CallerOf(ctx)
	definitions := s.names.List()
	if err := s.names.Err(); err != nil && len(definitions) == 0 && !errors.Is(err, headgate.ErrUnsupported) {
		return nil, err
	}
	if len(definitions) == 0 {
		if err := hold(store.DefaultMax); err != nil {
			return nil, err
		}
		limits, err := s.cellLimits(ctx, q.Key)
		return s.permittedLimits(caller, limits), err
	}
	for _, d := range definitions {
		limits = append(limits, headgate.MustNamed(d.Name())) // the key may have another limit by that name
	}
	if limits = s.permittedLimits(caller, append(limits, s.resolver.cachedLimits()...)); len(limits) > api.MaxCharges {
		return nil, headgate.Invalid("limit", "%d are too many to tell of at once; name those that matter, at most %d",
			len(limits), api.MaxCharges)
	}
	return limits, hold(len(limits))
}

// permittedLimits removes the limits that a caller may not use from a list, in place.
func (s *Service) permittedLimits(caller *auth.Caller, limits []headgate.Limit) []headgate.Limit {
	return slices.DeleteFunc(limits, func(l headgate.Limit) bool { return s.checkLimit(caller, l.Name()) != nil })
}

// cellLimits returns the limits of a key's first store.DefaultMax cells. Without a catalog all of them are notations.
func (s *Service) cellLimits(ctx context.Context, key string) (limits []headgate.Limit, err error) {
	cells, err := s.limiter.List(ctx, store.Query{Key: key, HasKey: true})
	for _, c := range cells {
		if l, err := headgate.Parse(c.Limit); err == nil {
			limits = append(limits, l)
		}
	}
	return limits, err
}

// replacements returns the overrides and plans that may replace the limits that were used, if any is replaced.
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
	if err != nil { // only a catalog can replace a limit
		return nil, err
	}
	return c.Replacements(ctx, q.Key, q.Authors, replaced...)
}
