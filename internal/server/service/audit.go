package service

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/store"
)

// AdminAction is an admin action for the audit.
type AdminAction struct {
	Verb       string // reset, block, unblock or refund
	Limit, Key string
	For        time.Duration // duration of a block
	Reason     string        // as the caller gave it; empty: none
	Caller     string        // name; empty: the server knows no callers, or the action came by a Unix socket
	Err        error         // nil: the action was done
	Unrecorded error         // why recording an action that was done has failed; nil: it has not
}

// OnAdmin sets a function that is called after each admin action, done or failed, on the goroutine of the request. Call
// it before the service is used.
func (s *Service) OnAdmin(f func(AdminAction)) { s.onAdmin = f }

// ActAs sets the author of the actions of callers without a name. Call it before the service is used.
func (s *Service) ActAs(author string) { s.anonymousAuthor = author }

// audit records an admin action in the store if it was done, also if its caller has gone, and passes it to OnAdmin.
func (s *Service) audit(ctx context.Context, a AdminAction, err error) {
	if c := auth.CallerOf(ctx); c != nil {
		a.Caller = c.Name
	}
	if a.Err = err; err == nil {
		a.Unrecorded = s.record(ctx, &a)
	}
	if s.onAdmin != nil {
		s.onAdmin(a)
	}
}

// record records an admin action in the store, if the store keeps an audit.
func (s *Service) record(ctx context.Context, a *AdminAction) error {
	c, err := s.catalog()
	if errors.Is(err, headgate.ErrUnsupported) {
		return nil // Audit lists no entries either
	} else if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Deadline)
	defer cancel()
	return c.Record(ctx, store.Action{
		Verb: a.Verb, Limit: c.CellsOf(a.Limit), Key: a.Key, For: a.For.Microseconds(), Reason: a.Reason,
		Author: cmp.Or(a.Caller, s.anonymousAuthor),
	})
}

const (
	maxScanned    = 1000 // versions of the catalog that one query reads
	versionsPage  = 100  // versions that are read at a time
	actionsPage   = 500  // actions that are read at a time; a query may read all
	shownChanges  = 50   // changes that are shown of one version
	overridesPage = 100  // overrides that are read at a time, at least, for callers who may not use all limits
)

// scan reads pages of entries with numbers below before, newest first, until a page is not full, maxFound entries were
// found, or maxScan entries were read. before is 0 for the newest. visit returns the number of an entry, and how many
// entries it has found so far. Older entries may have numbers below next; 0: there are none.
func scan[T any](
	ctx context.Context, read func(ctx context.Context, before int64, n int) ([]T, error), before int64,
	page, maxScan, maxFound int, visit func(*T) (number int64, found int),
) (next int64, err error) {
	for scanned := 0; scanned < maxScan; scanned += page {
		list, err := read(ctx, before, page)
		if err != nil {
			return 0, err
		}
		for i := range list {
			number, found := visit(&list[i])
			if found == maxFound {
				return number, nil
			}
			before = number
		}
		if len(list) < page {
			return 0, nil
		}
	}
	return before, nil
}

// Audit lists admin actions and changes of the catalog, newest first, as far as they are about the caller's limits.
func (s *Service) Audit(ctx context.Context, q *api.AuditQuery) (*api.Audit, error) {
	caller := auth.CallerOf(ctx)
	if q.Limit != "" {
		if err := s.checkLimit(caller, q.Limit); err != nil {
			return nil, err
		}
	}
	out := &api.Audit{Entries: []api.AuditEntry{}}
	c, err := s.catalog()
	if errors.Is(err, headgate.ErrUnsupported) { // the store keeps no audit
		return out, nil
	} else if err != nil {
		return nil, err
	}
	var actions, changes []api.AuditEntry
	_, err = scan(ctx, c.Actions, 0, actionsPage, store.KeptActions, q.Max,
		func(a *store.Action) (int64, int) {
			wanted := (q.Limit == "" || c.CellsOf(a.Limit) == c.CellsOf(q.Limit)) && (!q.HasKey || a.Key == q.Key)
			if wanted && s.checkLimit(caller, a.Limit) == nil {
				actions = append(actions, api.AuditEntry{
					At: a.At, Verb: a.Verb, By: a.Author, Reason: a.Reason, Limit: a.Limit, Key: &a.Key,
					ForMS: Millis(time.Duration(a.For) * time.Microsecond),
				})
			}
			return a.Number, len(actions)
		})
	if err != nil {
		return nil, err
	}
	_, err = scan(ctx, c.Versions, 0, versionsPage, maxScanned, q.Max,
		func(v *store.Version) (int64, int) {
			if e := s.changeEntry(c, v, q, caller); e != nil {
				changes = append(changes, *e)
			}
			return v.Number, len(changes)
		})
	if err != nil {
		return nil, err
	}
	out.Entries = append(append(out.Entries, actions...), changes...)
	slices.SortStableFunc(out.Entries, func(a, b api.AuditEntry) int { return cmp.Compare(b.At, a.At) })
	out.Entries = out.Entries[:min(q.Max, len(out.Entries))]
	return out, nil
}

// changeEntry returns the entry of a version with the changes that q is about and caller may read; nil: there are none.
func (s *Service) changeEntry(
	c *catalog.Catalog, v *store.Version, q *api.AuditQuery, caller *auth.Caller,
) *api.AuditEntry {
	e := &api.AuditEntry{At: v.At, Verb: "change", By: v.Author, Reason: v.Reason, Version: v.Number}
	for _, change := range v.Changes {
		switch i := &change.After; {
		case q.Limit != "" && !c.Concerns(change, q.Limit),
			q.HasKey && (!i.Kind.PerKey() || i.Key != q.Key),
			!s.mayRead(caller, i):
		case len(e.Changes) == shownChanges:
			e.More++
		default:
			e.Changes = append(e.Changes, catalog.Describe(change))
		}
	}
	if e.Changes == nil {
		return nil
	}
	return e
}

// mayRead reports whether a caller may read an item. Items not about one limit need a caller who may use all limits.
func (s *Service) mayRead(caller *auth.Caller, i *store.Item) bool {
	switch i.Kind {
	case store.KindLimit, store.KindOverride, store.KindPrefixOverride:
		return s.checkLimit(caller, i.Name) == nil
	case store.KindPlan:
		return s.checkLimit(caller, i.Key) == nil
	}
	return caller.AllLimits()
}
