package rest

import (
	"context"
	"net/http"

	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/edge"
	"github.com/headgate/headgate/internal/server/load"
	"github.com/headgate/headgate/law"
)

// mePath is the route that describes the caller.
const mePath = "GET /v1/me"

// me answers with the caller, its permissions, and whether admin actions are served at this address.
func (d *door) me(actions bool) http.HandlerFunc {
	return d.with(func(w http.ResponseWriter, r *http.Request, s *load.Share) error {
		if err := s.Enter(); err != nil {
			return err
		}
		me := &api.Me{Role: auth.RoleAdmin.String(), Tokens: d.tokens != nil, Actions: actions}
		if c := auth.From(r.Context()); c != nil {
			me.Name, me.Role, me.Limits = c.Name, c.Role.String(), c.Limits
		}
		me.Away = d.away(nil)
		s.Leave()
		return d.answer(w, me)
	})
}

// Bounds of a list of what was done.
const (
	usualAudit = 100
	maxAudit   = 1000
	perEntry   = 4 << 10 // bytes of one on its way into the answer
)

// audit lists what was done by hand.
func (d *door) audit(w http.ResponseWriter, r *http.Request, s *load.Share) error {
	q, err := auditQuery(r.URL.RawQuery)
	if err != nil {
		return err
	}
	return d.answering(w, r, s, perEntry*q.Max, func(ctx context.Context) (any, error) {
		return d.service.Audit(ctx, q)
	})
}

// auditQuery reads the parameters of the audit.
func auditQuery(raw string) (*api.AuditQuery, error) {
	values, err := edge.Query(raw, "limit", "key", "max")
	if err != nil {
		return nil, err
	}
	q := &api.AuditQuery{Max: usualAudit}
	for name := range values {
		switch value := values.Get(name); name {
		case "limit":
			q.Limit, err = value, valid(name, law.Cell{Limit: value})
		case "key":
			q.Key, q.HasKey, err = value, true, valid(name, law.Cell{Key: value})
		case "max":
			q.Max, err = number(name, value, 1, maxAudit)
		}
		if err != nil {
			return nil, err
		}
	}
	return q, nil
}
