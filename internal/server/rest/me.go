package rest

import (
	"context"
	"net/http"

	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/load"
)

// mePath is the route that describes the caller.
const mePath = "GET /v1/me"

// me answers with the caller, its permissions, and whether admin actions are served at this address.
func (d *door) me(actions bool) http.HandlerFunc {
	return d.with(func(w http.ResponseWriter, r *http.Request, s *load.Share) error {
		return d.answering(w, r, s, func(ctx context.Context) (any, error) {
			me := &api.Me{Role: auth.RoleAdmin.String(), Tokens: d.tokens != nil, Actions: actions, Away: d.away(nil)}
			if c := auth.From(ctx); c != nil {
				me.Name, me.Role, me.Limits = c.Name, c.Role.String(), c.Limits
			}
			return me, nil
		})
	})
}
