// Package forwardauth answers proxies that ask about each request of an end user before they pass it
// on: auth_request of nginx, forward_auth of Caddy, ForwardAuth of Traefik, a Lua action of HAProxy.
//
// The status is the answer: 204, or 429 for a refusal, or another status that the proxy understands.
// What is charged stands in the query of the URL (?limit=NAME&key=KEY), which the operator of the
// proxy writes, or follows from rules about the original request.
//
// Proxies may pass the headers of an end user on. Idempotency-Key, Authorization, Origin and Cookie
// of these change nothing here: an id that a stranger can choose would make requests free of charge.
package forwardauth

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/httpkey"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/service"
)

// Path is where a Handler is served.
const Path = "/v1/auth"

// Config adjusts a Handler. A nil Config, and every zero field, is fine.
type Config struct {
	// Proxies are the peers whose X-Forwarded-* and X-Original-* count. Those of a Unix socket
	// always do. Nil: those on loopback addresses; to list none, an empty list that is not nil.
	Proxies httpkey.Proxies
	// Fields says which fields answers have.
	Fields Fields
	// Log gets the requests that rules in shadow mode would have refused. Nil: they are not logged.
	Log *slog.Logger
}

// Handler answers proxies, whatever the method. It is safe for concurrent use.
type Handler struct {
	service *service.Service
	config  Config
}

// New returns a Handler that charges through a service. Its rules decide about requests whose query names
// no limit.
func New(s *service.Service, c *Config) *Handler {
	h := &Handler{service: s, config: *cmp.Or(c, &Config{})}
	h.config.Log = cmp.Or(h.config.Log, slog.New(slog.DiscardHandler))
	if h.config.Proxies == nil {
		h.config.Proxies = httpkey.Proxies{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	}
	return h
}

// Serve answers a request. With an error it has written nothing, and the answer is the Problem of that
// error. A body is not read.
func (h *Handler) Serve(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	if fromPage(r.Header) {
		return errPage
	}
	q, err := parseQuery(r.URL.RawQuery)
	if err != nil {
		return err
	}
	if usersQuery(r) {
		return errUsersQuery
	}
	if len(q.charges) > 0 {
		return h.byQuery(ctx, w, r, &q)
	}
	return h.byRules(ctx, w, r, q.refused)
}

// usersQuery reports whether the proxy has passed on the query of the original request, instead of replacing it.
func usersQuery(r *http.Request) bool {
	for _, name := range proxied.uri {
		for _, uri := range r.Header[name] {
			_, query, _ := strings.Cut(uri, "?")
			if query != "" && (r.URL.RawQuery == query || strings.HasSuffix(r.URL.RawQuery, "&"+query)) {
				return true
			}
		}
	}
	return false
}

// errUsersQuery is returned for a query that the end user may have chosen.
var errUsersQuery = headgate.Invalid("query", "is the end user's; the proxy has to replace it, or users could choose "+
	"what they are charged. With Caddy, rewrite to %s? with a question mark", Path)

// errPage: the request may be that of a web page.
var errPage = &api.Problem{
	Title: "Not a proxy's request", Status: http.StatusForbidden,
	Detail: "Nothing was charged. " + Path + " answers requests with a header X-Forwarded-Uri, X-Original-Uri or " +
		auth.TokenHeader + ", since no web page can send these.",
}

// byQuery charges what the query says.
func (h *Handler) byQuery(ctx context.Context, w http.ResponseWriter, r *http.Request, q *query) error {
	for i := range q.charges {
		if q.byIP[i] == 0 {
			continue
		}
		client, err := h.client(r)
		if err != nil {
			return err
		}
		q.charges[i].Key, q.charges[i].NoKey = httpkey.NetworkOf(client, q.byIP[i]), false
	}
	charges, err := h.service.Charges(ctx, &api.Request{Charges: q.charges})
	if err != nil {
		return err
	}
	d, err := h.service.Decide(ctx, &headgate.Request{Charges: charges})
	if err != nil {
		return err
	}
	h.answer(w, &d, charges, q.refused)
	return nil
}

// answer writes a decision.
func (h *Handler) answer(w http.ResponseWriter, d *headgate.Decision, charges []headgate.Charge, refused int) {
	h.config.Fields.set(w.Header(), d, h.service.Limited(charges))
	if d.Allowed {
		allow(w)
		return
	}
	httplimit.SetRetryAfter(w.Header(), d, h.config.Fields.NoRetryBeyond)
	httplimit.WriteRefusal(w, d, refused)
}

// noStore is in the headers of many answers, so nothing may change it.
var noStore = []string{"no-store"}

// allow answers that a request may pass.
func allow(w http.ResponseWriter) {
	w.Header()["Cache-Control"] = noStore
	w.WriteHeader(http.StatusNoContent)
}

// Problem describes an error of Serve. Many proxies pass it to the end user, who is
// answered with what is wrong with the request and nothing about the store: whatever is wrong there is 503.
func Problem(err error) *api.Problem {
	p := service.Problem(err)
	if p.Status < http.StatusInternalServerError {
		return p
	}
	return &api.Problem{
		Type: httplimit.TemporaryReducedCapacity, Title: "The rate limiter is not available",
		Status: http.StatusServiceUnavailable,
		Detail: "The request was not let through.",
	}
}
