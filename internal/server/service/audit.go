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

// AdminAction is a reset or a block, for the audit.
type AdminAction struct {
	Verb       string // reset, block, unblock or refund
	Limit, Key string
	For        time.Duration // of a block
	Reason     string        // as the caller says it; empty: it says none
	Caller     string        // its name; empty: the server knows no callers, or it came by a Unix socket
	Err        error         // nil: it was done
	Unrecorded error         // why the store has no record of it, though it was done; nil: it has
}

// OnAdmin has a function called after each admin action, by the goroutine of its request. It must be
// set before the service is used.
func (s *Service) OnAdmin(f func(AdminAction)) { s.onAdmin = f }

// ActAs names the author of what callers do who have no name. It must be called before the service is used.
func (s *Service) ActAs(author string) { s.nameless = author }

// audit records an admin action, and logs it. What was done is recorded even if its caller has gone meanwhile.
func (s *Service) audit(ctx context.Context, a AdminAction, err error) {
	if c := auth.From(ctx); c != nil {
		a.Caller = c.Name
	}
	if a.Err = err; err == nil {
		a.Unrecorded = s.record(ctx, &a)
	}
	if s.onAdmin != nil {
		s.onAdmin(a)
	}
}

func (s *Service) record(ctx context.Context, a *AdminAction) error {
	c, err := s.catalog()
	if errors.Is(err, headgate.ErrUnsupported) {
		return nil // as the audit says
	} else if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Deadline)
	defer cancel()
	return c.Record(ctx, store.Action{
		Verb: a.Verb, Limit: a.Limit, Key: a.Key, For: a.For.Microseconds(), Author: cmp.Or(a.Caller, s.nameless),
		Reason: a.Reason,
	})
}

const (
	maxScanned   = 1000 // versions of the catalog that one question looks at
	versionsPage = 100  // of them are read at a time
	actionsPage  = 500  // actions that are read at a time; a question looks at all
	shownChanges = 50   // of one version
)

// scan reads pages of what is below before, the newest first, until one is not full, most were found, or bound were
// looked at. See returns the number of an entry, and how many were found so far. There may be more below next; 0: there
// is none.
func scan[T any](
	ctx context.Context, read func(ctx context.Context, before int64, n int) ([]T, error), before int64,
	page, bound, most int, see func(*T) (number int64, found int),
) (next int64, err error) {
	for scanned := 0; scanned < bound; scanned += page {
		list, err := read(ctx, before, page)
		if err != nil {
			return 0, err
		}
		for i := range list {
			number, found := see(&list[i])
			if found == most {
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

// Audit lists what was done by hand: the actions, and the changes of the catalog, the newest first. What is about
// limits that the caller may not touch is left out.
func (s *Service) Audit(ctx context.Context, q *api.AuditQuery) (*api.Audit, error) {
	caller := auth.From(ctx)
	if q.Limit != "" {
		if err := caller.Touches(q.Limit); err != nil {
			return nil, err
		}
	}
	out := &api.Audit{Entries: []api.AuditEntry{}}
	c, err := s.catalog()
	if errors.Is(err, headgate.ErrUnsupported) { // nothing is kept there
		return out, nil
	} else if err != nil {
		return nil, err
	}
	var done, changed []api.AuditEntry
	_, err = scan(ctx, c.Actions, 0, actionsPage, store.KeptActions, q.Max,
		func(a *store.Action) (int64, int) {
			wanted := (q.Limit == "" || a.Limit == q.Limit) && (!q.HasKey || a.Key == q.Key)
			if wanted && caller.Touches(a.Limit) == nil {
				done = append(done, api.AuditEntry{
					At: a.At, Verb: a.Verb, By: a.Author, Reason: a.Reason, Limit: a.Limit, Key: &a.Key,
					ForMS: Millis(time.Duration(a.For) * time.Microsecond),
				})
			}
			return a.Number, len(done)
		})
	if err != nil {
		return nil, err
	}
	_, err = scan(ctx, c.Versions, 0, versionsPage, maxScanned, q.Max,
		func(v *store.Version) (int64, int) {
			if e := changeEntry(v, q, caller); e != nil {
				changed = append(changed, *e)
			}
			return v.Number, len(changed)
		})
	if err != nil {
		return nil, err
	}
	out.Entries = append(append(out.Entries, done...), changed...)
	slices.SortStableFunc(out.Entries, func(a, b api.AuditEntry) int { return cmp.Compare(b.At, a.At) })
	out.Entries = out.Entries[:min(q.Max, len(out.Entries))]
	return out, nil
}

// changeEntry returns the entry of a version, or nil if nothing in it is requested.
func changeEntry(v *store.Version, q *api.AuditQuery, caller *auth.Caller) *api.AuditEntry {
	e := &api.AuditEntry{At: v.At, Verb: "change", By: v.Author, Reason: v.Reason, Version: v.Number}
	for _, c := range v.Changes {
		switch i := &c.After; {
		case q.Limit != "" && !catalog.Concerns(c, q.Limit),
			q.HasKey && (!i.Kind.PerKey() || i.Key != q.Key),
			!mayRead(caller, i):
		case len(e.Changes) == shownChanges:
			e.More++
		default:
			e.Changes = append(e.Changes, catalog.Describe(c))
		}
	}
	if e.Changes == nil {
		return nil
	}
	return e
}

// mayRead reports whether a caller may know of an item. What is about no single limit is for those who may touch
// all.
func mayRead(caller *auth.Caller, i *store.Item) bool {
	switch i.Kind {
	case store.KindLimit, store.KindOverride, store.KindPrefixOverride:
		return caller.Touches(i.Name) == nil
	case store.KindPlan:
		return caller.Touches(i.Key) == nil
	}
	return caller.All()
}
