package rest

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/server/api"
	"github.com/headgate/headgate/server/auth"
	"github.com/headgate/headgate/server/load"
	"github.com/headgate/headgate/server/service"
)

// mePath tells who asks.
const mePath = "GET /v1/me"

// me tells a caller who it is, and whether admin actions are served at this address.
func (d *door) me(actions bool) http.HandlerFunc {
	return d.with(func(w http.ResponseWriter, r *http.Request, s *load.Share) error {
		if err := s.Enter(); err != nil {
			return err
		}
		me := &api.Me{Role: auth.RoleAdmin.String(), Tokens: d.tokens != nil, Actions: actions}
		if c := auth.From(r.Context()); c != nil {
			me.Name, me.Role, me.Limits = c.Name, c.Role.String(), c.Limits
		}
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
	if err := s.Enter(); err != nil {
		return err
	}
	if err := s.Hold(int64(perEntry * q.Max)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), deadline)
	defer cancel()
	out, err := d.service.Audit(ctx, q)
	if err != nil {
		return err
	}
	s.Leave()
	return d.answer(w, out)
}

// auditQuery reads the parameters of the audit.
func auditQuery(raw string) (*service.AuditQuery, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, headgate.Invalid("query", "%v", err)
	}
	q := &service.AuditQuery{Max: usualAudit}
	for name, list := range values {
		value := list[0]
		if len(list) > 1 {
			return nil, headgate.Invalid(name, "stands %d times in the query", len(list))
		}
		switch name {
		case "limit":
			q.Limit, err = value, valid(name, law.Cell{Limit: value})
		case "key":
			q.Key, q.HasKey, err = value, true, valid(name, law.Cell{Key: value})
		case "max":
			if q.Max, err = strconv.Atoi(value); err != nil || q.Max < 1 || q.Max > maxAudit {
				err = headgate.Invalid(name, "%+.40q is not a number from 1 to %d", value, maxAudit)
			}
		default:
			err = headgate.Invalid("query", "has an unknown parameter %+.40q; known are limit, key, max", name)
		}
		if err != nil {
			return nil, err
		}
	}
	return q, nil
}
