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

// NewHandlers returns three handlers that share the bounds of a Config: public serves no admin actions, all serves
// every path, and health serves only the paths that anyone may read, such as /readyz, without access control.
func NewHandlers(s *service.Service, log *slog.Logger, c *Config) (public, all, health http.Handler) {
	srv := newServer(s, log, c)
	var publicRoutes, healthRoutes []route
	for _, r := range srv.routes() {
		switch {
		case r.role == auth.Anyone:
			healthRoutes = append(healthRoutes, r)
		case r.role == auth.RoleAdmin:
			r.handler = func(w http.ResponseWriter, r *http.Request) {
				edge.WriteProblem(w, service.NotServedProblem(r.URL.Path))
			}
		case r.pattern == mePath:
			r.handler = srv.requireRole(r.role, true, srv.me(false))
		}
		publicRoutes = append(publicRoutes, r)
	}
	return handler(publicRoutes), handler(srv.routes()), handler(healthRoutes)
}

// Beside returns a handler that serves GET and HEAD of a path by special, and all other requests by h.
func Beside(h http.Handler, path string, special http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == path && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			special.ServeHTTP(w, r)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// handler returns a handler of routes. It answers other paths and methods with problems.
func handler(routes []route) http.Handler {
	mux := http.NewServeMux()
	for _, r := range routes {
		mux.HandleFunc(r.pattern, r.handler)
	}
	return withProblems(mux)
}

// routes returns all routes, each with the check of its role.
func (srv *server) routes() []route {
	all := srv.ownRoutes()
	for _, r := range srv.OtherRoutes {
		h := srv.serveRoute(r)
		if r.AllLimits {
			h = srv.requireAllLimits(h)
		}
		all = append(all, route{r.Pattern, r.Role, h})
	}
	for i, r := range all {
		// Behind a proxy, Authorization is the end user's.
		all[i].handler = srv.requireRole(r.role, r.pattern != forwardauth.Path, r.handler)
	}
	return all
}

// serveRoute returns a handler that serves a route of another package within the bounds of the load.
func (srv *server) serveRoute(r Route) http.HandlerFunc {
	if r.Role == auth.Anyone {
		return r.Handler
	}
	return srv.withShare(func(w http.ResponseWriter, q *http.Request, s *load.Share) error {
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
			srv.write(w, text)
		}
		return err
	})
}

// ownRoutes returns the routes of this package without the check of their roles.
func (srv *server) ownRoutes() []route {
	s := srv.service
	return []route{
		{"POST /v1/take", auth.RoleTake, serveBody(srv, maxListBytes, s.Take)},
		{"POST /v1/check", auth.RoleTake, serveBody(srv, maxListBytes, s.Check)},
		{"POST /v1/fill-up", auth.RoleTake, serveBody(srv, maxBodyBytes, s.FillUp)},
		{"POST /v1/batch", auth.RoleTake, srv.withShare(srv.batch)},
		{"POST /v1/reserve", auth.RoleTake, serveBody(srv, maxListBytes, s.Reserve)},
		{"POST /v1/debit", auth.RoleTake, serveBody(srv, maxBodyBytes, s.Debit)},
		{"POST /v1/extend", auth.RoleTake, serveBody(srv, maxListBytes, s.Extend)},
		{"POST /v1/settle", auth.RoleTake, serveBody(srv, maxListBytes, s.Settle)},
		{"POST /v1/cancel", auth.RoleTake, serveBody(srv, maxListBytes, s.Cancel)},
		{"POST /v1/acquire", auth.RoleTake, serveBody(srv, maxListBytes, s.Acquire)},
		{"POST /v1/renew", auth.RoleTake, serveBody(srv, maxListBytes, s.Renew)},
		{"POST /v1/release", auth.RoleTake, serveBody(srv, maxListBytes, s.Release)},
		{"POST /v1/observe", auth.RoleTake, serveBody(srv, maxBodyBytes, s.Observe)},
		{"POST /v1/inspect", auth.RoleRead, serveBodyShare(srv, maxBodyBytes, srv.inspect)},
		{"POST /v1/explain", auth.RoleRead, serveBodyShare(srv, maxBodyBytes, srv.explain)},
		{"POST /v1/reset", auth.RoleAdmin, serveBody(srv, maxBodyBytes, s.Reset)},
		{"POST /v1/refund", auth.RoleAdmin, serveBody(srv, maxBodyBytes, s.Refund)},
		{"POST /v1/block", auth.RoleAdmin, serveBody(srv, maxBodyBytes, s.Block)},
		{"POST /v1/override", auth.RoleAdmin, serveBody(srv, maxBodyBytes, s.Override)},
		{"POST /v1/limit", auth.RoleAdmin, serveBody(srv, maxBodyBytes, s.SetLimit)},
		{"POST /v1/plan", auth.RoleAdmin, serveBody(srv, maxBodyBytes, s.SetPlan)},
		{mePath, auth.RoleRead, srv.me(true)},
		{"GET /v1/audit", auth.RoleRead, serveList(srv, api.AuditQuery{Max: 100}, s.Audit)},
		{"POST /v1/rollback", auth.RoleAdmin, serveBody(srv, maxBodyBytes, s.Rollback)},
		{"GET /v1/catalog", auth.RoleRead, serveWhole(srv, s.Catalog,
			func(c *api.Catalog) int { return len(c.Limits) + len(c.Plans) })},
		{"GET /v1/overrides", auth.RoleRead, serveList(srv, api.OverridesQuery{Max: 200}, s.Overrides)},
		{"GET /v1/versions", auth.RoleRead, serveList(srv, api.VersionsQuery{Max: 50}, s.Versions)},
		{"GET /v1/difference", auth.RoleRead, serveQuery(srv, api.DifferenceQuery{}, srv.difference)},
		{"GET /v1/limits", auth.RoleRead, serveWhole(srv, s.Limits, func(l *api.Limits) int { return len(l.Limits) })},
		{"GET /v1/cells", auth.RoleRead, serveList(srv, api.CellsQuery{Max: store.DefaultMax}, s.Cells)},
		{"GET /v1/usage", auth.RoleRead, serveQuery(srv, api.UsageQuery{}, srv.usage)},
		{"GET /v1/traffic", auth.RoleRead, serveQuery(srv, api.TrafficQuery{
			By: api.ByRefused, Top: 20, Seconds: traffic.Seconds,
		}, srv.traffic)},
		{forwardauth.Path, auth.RoleTake, srv.serveForward}, // whatever the method
		{"POST " + forwardauth.SettlePath, auth.RoleTake, srv.withShare(srv.settleForward)},
		// These are answered also under full load.
		{"GET /livez", auth.Anyone, srv.live},
		{"GET /readyz", auth.Anyone, srv.ready},
		{"GET /healthz", auth.Anyone, srv.ready},
		{"GET /openapi.yaml", auth.Anyone, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/yaml")
			_, _ = w.Write(api.OpenAPI)
		}},
	}
}
