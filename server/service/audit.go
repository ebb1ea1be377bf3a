package service

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/server/api"
	"github.com/headgate/headgate/server/auth"
	"github.com/headgate/headgate/store"
)

// AdminAction is a reset or a block that was asked for, for the audit.
type AdminAction struct {
	Verb       string // reset, block, or unblock
	Limit, Key string
	For        time.Duration // of a block
	Reason     string        // as the caller says it; empty: it says none
	Caller     string        // its name; empty: the server knows no callers, or it came by a Unix socket
	Err        error         // nil: it was done
}

// OnAdmin has a function called after each admin action, by the goroutine of its request. It must be
// set before the service is used.
func (s *Service) OnAdmin(f func(AdminAction)) { s.onAdmin = f }

// audit tells of an admin action, and remembers it.
func (s *Service) audit(ctx context.Context, a AdminAction, err error) {
	if c := auth.From(ctx); c != nil {
		a.Caller = c.Name
	}
	a.Err = err
	s.actions.add(&a)
	if s.onAdmin != nil {
		s.onAdmin(a)
	}
}

const (
	keptActions  = 1000 // admin actions that are remembered
	maxScanned   = 1000 // versions of the catalogue that one question looks at
	versionsPage = 100  // of them are read at a time
	shownChanges = 50   // of one version
)

// actions are the last admin actions, the oldest first. The zero value has none. It is safe for concurrent use.
type actions struct {
	mu   sync.Mutex
	last []api.AuditEntry // guarded by mu
}

func (a *actions) add(one *AdminAction) {
	e := api.AuditEntry{
		At: time.Now().UnixMicro(), Verb: one.Verb, By: one.Caller, Reason: one.Reason, Limit: one.Limit, Key: &one.Key,
		ForMS: Millis(one.For), Failed: one.Err != nil,
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.last) == keptActions {
		a.last = slices.Delete(a.last, 0, 1)
	}
	a.last = append(a.last, e)
}

// Audit lists the admin actions that this server remembers and the changes of the catalogue, the newest
// first. What is about limits that the caller may not touch is left out.
func (s *Service) Audit(ctx context.Context, q *api.AuditQuery) (*api.Audit, error) {
	if q.Limit != "" {
		if err := auth.From(ctx).Touches(q.Limit); err != nil {
			return nil, err
		}
	}
	out := &api.Audit{Entries: []api.AuditEntry{}}
	caller := auth.From(ctx)
	s.actions.mu.Lock()
	for _, e := range s.actions.last {
		if (q.Limit == "" || e.Limit == q.Limit) && (!q.HasKey || *e.Key == q.Key) && caller.Touches(e.Limit) == nil {
			out.Entries = append(out.Entries, e)
		}
	}
	s.actions.mu.Unlock()
	versions, ok := s.names.(interface {
		Versions(ctx context.Context, before int64, n int) ([]store.Version, error)
	})
	before, found := int64(0), 0
	for scanned := 0; ok && scanned < maxScanned && found < q.Max; {
		list, err := versions.Versions(ctx, before, versionsPage)
		if err != nil {
			return nil, err
		}
		for i := range list {
			if e := changeEntry(&list[i], q, caller); e != nil {
				out.Entries = append(out.Entries, *e)
				found++
			}
		}
		if len(list) < versionsPage {
			break
		}
		scanned += len(list)
		before = list[len(list)-1].Number
	}
	slices.SortStableFunc(out.Entries, func(a, b api.AuditEntry) int { return int(b.At - a.At) })
	out.Entries = out.Entries[:min(q.Max, len(out.Entries))]
	return out, nil
}

// changeEntry tells of a version, or is nil if nothing in it is asked for.
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
