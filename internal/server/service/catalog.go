package service

import (
	"context"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/store"
)

// CatalogHolder is implemented by the names of a [Service] that find limits in the catalog of a store.
type CatalogHolder interface {
	// StoreCatalog returns the catalog, or why it could not be read.
	StoreCatalog() (*catalog.Catalog, error)
}

func (s *Service) catalog() (*catalog.Catalog, error) {
	switch names := s.names.(type) {
	case *catalog.Catalog:
		return names, nil
	case CatalogHolder:
		return names.StoreCatalog()
	}
	return nil, headgate.ErrUnsupported
}

// Catalog returns the limits and plans of the store that the caller may use.
func (s *Service) Catalog(ctx context.Context, _ *struct{}) (*api.Catalog, error) {
	c, err := s.catalog()
	if err != nil {
		return nil, err
	}
	definitions := s.names.List()
	if err := s.names.Err(); err != nil && len(definitions) == 0 {
		return nil, err
	}
	out := &api.Catalog{Limits: []api.CatalogLimit{}, Plans: []api.CatalogPlan{}}
	out.Version, _ = c.Version()
	caller := auth.CallerOf(ctx)
	for _, d := range definitions {
		if s.checkLimit(caller, d.Name()) == nil {
			out.Limits = append(out.Limits, api.CatalogLimit{
				Name: d.Name(), RenamedTo: d.RenamedTo, Limit: d.String(), Description: d.Description,
				Bound: d.Bound().String(), Explain: d.Explain(), Origin: d.Origin, Retired: d.Retired,
			})
		}
	}
	for _, p := range c.Plans() {
		plan := api.CatalogPlan{Name: p.Name, Origin: p.Origin, Retired: p.Retired}
		for _, l := range p.Limits {
			if s.checkLimit(caller, l.Name()) == nil {
				plan.Limits = append(plan.Limits, api.Limit{
					Name: l.Name(), Limit: l.String(), Bound: l.Bound().String(),
				})
			}
		}
		if plan.Limits != nil {
			out.Plans = append(out.Plans, plan)
		}
	}
	return out, nil
}

// checkLimit returns auth.ErrForbidden if a caller may not touch a limit. Whoever may touch a limit by one of its names
// may by each: answers and leases have the name of its cells.
func (s *Service) checkLimit(caller *auth.Caller, name string) error {
	forbidden := caller.CheckLimit(name)
	if forbidden == nil {
		return nil
	}
	isAllowed := func(name string) bool { return caller.CheckLimit(name) == nil }
	if c, err := s.catalog(); err == nil && slices.ContainsFunc(c.NamesOf(name), isAllowed) {
		return nil
	}
	return forbidden
}

// Overrides lists the overrides that are in force, of limits that the caller may use.
func (s *Service) Overrides(ctx context.Context, q *api.OverridesQuery) (*api.Overrides, error) {
	c, err := s.catalog()
	if err != nil {
		return nil, err
	}
	var list []catalog.Override
	if q.AfterLimit == "" && q.AfterKey == "" {
		if list, err = c.PrefixOverrides(); err != nil {
			return nil, err
		}
	}
	caller, now := auth.CallerOf(ctx), c.Now()
	hidden := func(o catalog.Override) bool {
		return s.checkLimit(caller, o.Limit.Name()) != nil || !o.Until.IsZero() && !o.Until.After(now)
	}
	list = slices.DeleteFunc(list, hidden)
	out := &api.Overrides{Overrides: []api.OverrideInForce{}}
	// A page ends with an override that the caller may see, so that the start of the next page reveals no others.
	for limit, key, seen := q.AfterLimit, q.AfterKey, 0; q.Max > 0; {
		page := q.Max
		if !caller.AllLimits() {
			page = max(page, overridesPage) // many of them may be hidden
		}
		batch, err := c.Overrides(ctx, limit, key, page)
		if err != nil {
			return nil, err
		}
		end := len(batch) < page
		if !end {
			limit, key = batch[page-1].Limit.Name(), batch[page-1].Key
		}
		batch = slices.DeleteFunc(batch, hidden)
		if excess := seen + len(batch) - q.Max; excess > 0 || excess == 0 && !end {
			batch = batch[:q.Max-seen]
			end = true
			out.NextLimit, out.NextKey = batch[len(batch)-1].Limit.Name(), batch[len(batch)-1].Key
		}
		if list, seen = append(list, batch...), seen+len(batch); end {
			break
		}
	}
	for _, o := range list {
		out.Overrides = append(out.Overrides, api.OverrideInForce{
			Limit: o.Limit.Name(), Key: o.Key, Prefix: o.Prefix, Override: o.Limit.String(),
			Bound: o.Limit.Bound().String(), Until: instant(o.Until), Reason: o.Reason,
		})
	}
	return out, nil
}

// Versions lists the versions of the catalog that have changes which the caller may read, newest first.
func (s *Service) Versions(ctx context.Context, q *api.VersionsQuery) (*api.Versions, error) {
	c, err := s.catalog()
	if err != nil {
		return nil, err
	}
	caller := auth.CallerOf(ctx)
	if err := s.checkLimit(caller, q.Limit); q.Limit != "" && err != nil {
		return nil, err
	}
	out := &api.Versions{Versions: []api.Version{}}
	out.Next, err = scan(ctx, c.Versions, q.Before, versionsPage, maxScanned, q.Max,
		func(v *store.Version) (number int64, found int) {
			if e := s.changeEntry(c, v, &api.AuditQuery{Limit: q.Limit}, caller); e != nil {
				out.Versions = append(out.Versions, api.Version{
					Version: e.Version, At: e.At, By: e.By, Reason: e.Reason, Changes: e.Changes, More: e.More,
				})
			}
			return v.Number, len(out.Versions)
		})
	return out, err
}

// Difference returns the changes from one version of the catalog to another that the caller may read.
func (s *Service) Difference(ctx context.Context, q *api.DifferenceQuery) (*api.Difference, error) {
	const missing = "is missing; it is the number of a version, and 0 is before the first"
	switch {
	case q.NoFrom:
		return nil, headgate.Invalid("from", missing)
	case q.NoTo:
		return nil, headgate.Invalid("to", missing)
	}
	c, err := s.catalog()
	if err != nil {
		return nil, err
	}
	list, err := c.Between(ctx, q.From, q.To)
	if err != nil {
		return nil, err
	}
	return &api.Difference{From: q.From, To: q.To, Changes: s.itemChanges(list, auth.CallerOf(ctx))}, nil
}

// itemChanges converts for the API the changes that a caller may read, except those of records of applied files.
func (s *Service) itemChanges(list []store.Change, caller *auth.Caller) []api.ItemChange {
	out := []api.ItemChange{}
	for _, change := range list {
		i := &change.After
		if i.Kind == store.KindFile || !s.mayRead(caller, i) {
			continue
		}
		out = append(out, api.ItemChange{
			Kind: string(i.Kind), Name: i.Name, Key: i.Key, Before: catalog.Meaning(&change.Before),
			After: catalog.Meaning(i), Text: catalog.Describe(change),
		})
	}
	return out
}
