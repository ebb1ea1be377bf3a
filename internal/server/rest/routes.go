package rest

import (
	"log/slog"
	"net/http"

	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/edge"
	"github.com/headgate/headgate/internal/server/forwardauth"
	"github.com/headgate/headgate/internal/server/load"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/internal/server/traffic"
	"github.com/headgate/headgate/store"
)

// route is a pattern of http.ServeMux, the role that it needs, and what it serves.
type route struct {
	pattern string
	role    auth.Role
	handler http.HandlerFunc
}

// Split returns three handlers that share the bounds of a Config: public serves no admin actions, all
// serves every path, and health serves only the paths that anyone may read, such as /readyz, without
// access control.
func Split(s *service.Service, log *slog.Logger, c *Config) (public, all, health http.Handler) {
	d := newServer(s, log, c)
	var publicRoutes, healthRoutes []route
	for _, r := range d.routes() {
		switch {
		case r.role == auth.Anyone:
			healthRoutes = append(healthRoutes, r)
		case r.role == auth.RoleAdmin:
			r.handler = notServedHere
		case r.pattern == mePath:
			r.handler = d.requireRole(r.role, true, d.me(false))
		}
		publicRoutes = append(publicRoutes, r)
	}
	return handler(publicRoutes), handler(d.routes()), handler(healthRoutes)
}

// Beside returns a handler that serves GET and HEAD of a path by more, and all other requests by h.
func Beside(h http.Handler, path string, more http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == path && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			more.ServeHTTP(w, r)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// notServedHere refuses an admin action at a public address.
func notServedHere(w http.ResponseWriter, r *http.Request) {
	edge.WriteProblem(w, service.NotServedHere(r.URL.Path))
}

// handler serves routes.
func handler(routes []route) http.Handler {
	mux := http.NewServeMux()
	for _, r := range routes {
		mux.HandleFunc(r.pattern, r.handler)
	}
	return withProblems(mux)
}

// routes returns all routes, each with the check of its role.
func (d *server) routes() []route {
	all := d.ownRoutes()
	for _, r := range d.More {
		h := d.serveRoute(r)
		if r.All {
			h = d.requireAllLimits(h)
		}
		all = append(all, route{r.Pattern, r.Role, h})
	}
	for i, r := range all {
		// Behind a proxy, Authorization is the end user's.
		all[i].handler = d.requireRole(r.role, r.pattern != forwardauth.Path, r.handler)
	}
	return all
}

// serveRoute returns a handler that serves a route of another package within the bounds of the load.
func (d *server) serveRoute(r Route) http.HandlerFunc {
	if r.Role == auth.Anyone {
		return r.Handler
	}
	return d.withShare(func(w http.ResponseWriter, q *http.Request, s *load.Share) error {
		if r.Turn != nil {
			end, err := r.Turn(q)
			if err != nil {
				return err
			}
			defer end()
		}
		n := q.ContentLength
		if n < 0 || n > r.MaxBody {
			n = r.MaxBody
		}
		if n > load.FreeBytes {
			if err := s.Hold(n); err != nil {
				return err
			}
		}
		if err := s.Enter(); err != nil {
			return err
		}
		if r.Answer == nil {
			r.Handler(w, q)
			return nil
		}
		text, err := r.Answer(w, q)
		if err == nil {
			d.write(w, text)
		}
		return err
	})
}

// ownRoutes returns the routes of this package without the check of their roles.
func (d *server) ownRoutes() []route {
	s := d.service
	return []route{
		{"POST /v1/take", auth.RoleTake, serveBody(d, maxListBytes, s.Take)},
		{"POST /v1/check", auth.RoleTake, serveBody(d, maxListBytes, s.Check)},
		{"POST /v1/fill-up", auth.RoleTake, serveBody(d, maxBodyBytes, s.FillUp)},
		{"POST /v1/batch", auth.RoleTake, d.withShare(d.batch)},
		{"POST /v1/reserve", auth.RoleTake, serveBody(d, maxListBytes, s.Reserve)},
		{"POST /v1/debit", auth.RoleTake, serveBody(d, maxBodyBytes, s.Debit)},
		{"POST /v1/extend", auth.RoleTake, serveBody(d, maxListBytes, s.Extend)},
		{"POST /v1/settle", auth.RoleTake, serveBody(d, maxListBytes, s.Settle)},
		{"POST /v1/cancel", auth.RoleTake, serveBody(d, maxListBytes, s.Cancel)},
		{"POST /v1/acquire", auth.RoleTake, serveBody(d, maxListBytes, s.Acquire)},
		{"POST /v1/renew", auth.RoleTake, serveBody(d, maxListBytes, s.Renew)},
		{"POST /v1/release", auth.RoleTake, serveBody(d, maxListBytes, s.Release)},
		{"POST /v1/observe", auth.RoleTake, serveBody(d, maxBodyBytes, s.Observe)},
		{"POST /v1/inspect", auth.RoleRead, serveBodyShare(d, maxBodyBytes, d.inspect)},
		{"POST /v1/explain", auth.RoleRead, serveBodyShare(d, maxBodyBytes, d.explain)},
		{"POST /v1/reset", auth.RoleAdmin, serveBody(d, maxBodyBytes, s.Reset)},
		{"POST /v1/refund", auth.RoleAdmin, serveBody(d, maxBodyBytes, s.Refund)},
		{"POST /v1/block", auth.RoleAdmin, serveBody(d, maxBodyBytes, s.Block)},
		{"POST /v1/override", auth.RoleAdmin, serveBody(d, maxBodyBytes, s.Override)},
		{"POST /v1/limit", auth.RoleAdmin, serveBody(d, maxBodyBytes, s.SetLimit)},
		{"POST /v1/plan", auth.RoleAdmin, serveBody(d, maxBodyBytes, s.SetPlan)},
		{mePath, auth.RoleRead, d.me(true)},
		{"GET /v1/audit", auth.RoleRead, list(d, api.AuditQuery{Max: 100}, s.Audit)},
		{"POST /v1/rollback", auth.RoleAdmin, serveBody(d, maxBodyBytes, s.Rollback)},
		{"GET /v1/catalog", auth.RoleRead, serveWhole(d, s.Catalog,
			func(c *api.Catalog) int { return len(c.Limits) + len(c.Plans) })},
		{"GET /v1/overrides", auth.RoleRead, list(d, api.OverridesQuery{Max: 200}, s.Overrides)},
		{"GET /v1/versions", auth.RoleRead, list(d, api.VersionsQuery{Max: 50}, s.Versions)},
		{"GET /v1/difference", auth.RoleRead, serveQuery(d, api.DifferenceQuery{}, d.difference)},
		{"GET /v1/limits", auth.RoleRead, serveWhole(d, s.Limits, func(l *api.Limits) int { return len(l.Limits) })},
		{"GET /v1/cells", auth.RoleRead, list(d, api.CellsQuery{Max: store.DefaultMax}, s.Cells)},
		{"GET /v1/usage", auth.RoleRead, serveQuery(d, api.UsageQuery{}, d.usage)},
		{"GET /v1/traffic", auth.RoleRead, serveQuery(d, api.TrafficQuery{
			By: api.ByRefused, Top: 20, Seconds: traffic.Seconds,
		}, d.traffic)},
		{forwardauth.Path, auth.RoleTake, d.serveForward}, // whatever the method
		{"POST " + forwardauth.SettlePath, auth.RoleTake, d.withShare(d.settleForward)},
		// These are answered also under full load.
		{"GET /livez", auth.Anyone, d.live},
		{"GET /readyz", auth.Anyone, d.ready},
		{"GET /healthz", auth.Anyone, d.ready},
		{"GET /openapi.yaml", auth.Anyone, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/yaml")
			_, _ = w.Write(api.OpenAPI)
		}},
	}
}
