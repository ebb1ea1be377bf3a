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

// Split returns three handlers in the place of that of [New], which share its bounds: one of the paths
// that no admin action has, one of all paths, and one that says only how the server is, without
// access control.
func Split(s *service.Service, log *slog.Logger, c *Config) (public, all, health http.Handler) {
	d := newDoor(s, log, c)
	var open, about []route
	for _, r := range d.routes() {
		switch {
		case r.role == auth.Anyone:
			about = append(about, r)
		case r.role == auth.RoleAdmin:
			r.handler = elsewhere
		case r.pattern == mePath:
			r.handler = d.guard(r.role, true, d.me(false))
		}
		open = append(open, r)
	}
	return handler(open), handler(d.routes()), handler(about)
}

// Beside serves GET and HEAD of one more path before a handler.
func Beside(h http.Handler, path string, more http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == path && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			more.ServeHTTP(w, r)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// elsewhere refuses an admin action at a public address.
func elsewhere(w http.ResponseWriter, r *http.Request) {
	edge.WriteProblem(w, service.Elsewhere(r.URL.Path))
}

// handler serves routes.
func handler(routes []route) http.Handler {
	mux := http.NewServeMux()
	for _, r := range routes {
		mux.HandleFunc(r.pattern, r.handler)
	}
	return problems(mux)
}

// routes checks on each route the role that it needs.
func (d *door) routes() []route {
	all := d.unguarded()
	for _, r := range d.More {
		h := d.bounded(r)
		if r.All {
			h = d.ofAll(h)
		}
		all = append(all, route{r.Pattern, r.Role, h})
	}
	for i, r := range all {
		// Behind a proxy, Authorization is the end user's.
		all[i].handler = d.guard(r.role, r.pattern != forwardauth.Path, r.handler)
	}
	return all
}

// bounded serves a route of another package within the bounds of what requests take together.
func (d *door) bounded(r Route) http.HandlerFunc {
	if r.Role == auth.Anyone {
		return r.Handler
	}
	return d.with(func(w http.ResponseWriter, q *http.Request, s *load.Share) error {
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

// unguarded returns the routes as they are served to callers who have the role.
func (d *door) unguarded() []route {
	s := d.service
	return []route{
		{"POST /v1/take", auth.RoleTake, post(d, maxList, s.Take)},
		{"POST /v1/check", auth.RoleTake, post(d, maxList, s.Check)},
		{"POST /v1/fill-up", auth.RoleTake, post(d, maxBody, s.FillUp)},
		{"POST /v1/batch", auth.RoleTake, d.with(d.batch)},
		{"POST /v1/reserve", auth.RoleTake, post(d, maxList, s.Reserve)},
		{"POST /v1/debit", auth.RoleTake, post(d, maxBody, s.Debit)},
		{"POST /v1/extend", auth.RoleTake, post(d, maxList, s.Extend)},
		{"POST /v1/settle", auth.RoleTake, post(d, maxList, s.Settle)},
		{"POST /v1/cancel", auth.RoleTake, post(d, maxList, s.Cancel)},
		{"POST /v1/acquire", auth.RoleTake, post(d, maxList, s.Acquire)},
		{"POST /v1/renew", auth.RoleTake, post(d, maxList, s.Renew)},
		{"POST /v1/release", auth.RoleTake, post(d, maxList, s.Release)},
		{"POST /v1/observe", auth.RoleTake, post(d, maxBody, s.Observe)},
		{"POST /v1/inspect", auth.RoleRead, posted(d, maxBody, d.inspect)},
		{"POST /v1/explain", auth.RoleRead, posted(d, maxBody, d.explain)},
		{"POST /v1/reset", auth.RoleAdmin, post(d, maxBody, s.Reset)},
		{"POST /v1/refund", auth.RoleAdmin, post(d, maxBody, s.Refund)},
		{"POST /v1/block", auth.RoleAdmin, post(d, maxBody, s.Block)},
		{"POST /v1/override", auth.RoleAdmin, post(d, maxBody, s.Override)},
		{"POST /v1/limit", auth.RoleAdmin, post(d, maxBody, s.SetLimit)},
		{"POST /v1/plan", auth.RoleAdmin, post(d, maxBody, s.SetPlan)},
		{mePath, auth.RoleRead, d.me(true)},
		{"GET /v1/audit", auth.RoleRead, list(d, api.AuditQuery{Max: 100}, s.Audit)},
		{"POST /v1/rollback", auth.RoleAdmin, post(d, maxBody, s.Rollback)},
		{"GET /v1/catalog", auth.RoleRead, whole(d, s.Catalog,
			func(c *api.Catalog) int { return len(c.Limits) + len(c.Plans) })},
		{"GET /v1/overrides", auth.RoleRead, list(d, api.OverridesQuery{Max: 200}, s.Overrides)},
		{"GET /v1/versions", auth.RoleRead, list(d, api.VersionsQuery{Max: 50}, s.Versions)},
		{"GET /v1/difference", auth.RoleRead, asked(d, api.DifferenceQuery{}, d.difference)},
		{"GET /v1/limits", auth.RoleRead, whole(d, s.Limits, func(l *api.Limits) int { return len(l.Limits) })},
		{"GET /v1/cells", auth.RoleRead, list(d, api.CellsQuery{Max: store.DefaultMax}, s.Cells)},
		{"GET /v1/usage", auth.RoleRead, asked(d, api.UsageQuery{}, d.usage)},
		{"GET /v1/traffic", auth.RoleRead, asked(d, api.TrafficQuery{
			By: api.ByRefused, Top: 20, Seconds: traffic.Seconds,
		}, d.traffic)},
		{forwardauth.Path, auth.RoleTake, d.forward}, // whatever the method
		{"POST " + forwardauth.SettlePath, auth.RoleTake, d.with(d.settleForwarded)},
		// These are answered however much there is to do.
		{"GET /livez", auth.Anyone, d.live},
		{"GET /readyz", auth.Anyone, d.ready},
		{"GET /healthz", auth.Anyone, d.ready},
		{"GET /openapi.yaml", auth.Anyone, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/yaml")
			_, _ = w.Write(api.OpenAPI)
		}},
	}
}
