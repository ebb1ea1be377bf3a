// Package forwardauth answers the subrequests that proxies send before they forward a request of an end user:
// auth_request of nginx, forward_auth of Caddy, ForwardAuth of Traefik, a Lua action of HAProxy.
//
// The status is the answer: 204, or 429 for a refusal, or another status that the proxy understands. The charges are in
// the query of the URL (?limit=NAME&key=KEY), which the operator of the proxy writes, or follow from rules about the
// original request.
//
// Proxies may pass on the headers of an end user. Idempotency-Key, Authorization, Origin and Cookie among them are
// ignored here, unless a rule names them: with an id of their choice, users could send requests free of charge.
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

// Config adjusts a Handler. It may be nil, and every field may be zero.
type Config struct {
	// Proxies are the peers whose X-Forwarded-* and X-Original-* are trusted, beside peers by a Unix socket. Nil: peers
	// on loopback addresses. An empty list that is not nil: none.
	Proxies httpkey.Proxies
	// Fields selects the header fields of answers.
	Fields Fields
	// Log gets a line for each request that rules refuse with 400, or would refuse if they were enforced, and for each
	// failure of a rule that is not enforced. Nil: there are no lines.
	Log *slog.Logger
}

// Handler answers proxies, whatever the method. It is safe for concurrent use.
type Handler struct {
	service *service.Service
	config  Config
}

// New returns a Handler that charges through a service. If a query names no limit, the rules of the service decide.
func New(s *service.Service, c *Config) *Handler {
	h := &Handler{service: s, config: *cmp.Or(c, &Config{})}
	h.config.Log = cmp.Or(h.config.Log, slog.New(slog.DiscardHandler))
	if h.config.Proxies == nil {
		h.config.Proxies = httpkey.Proxies{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	}
	return h
}

// Serve answers a request. If it returns an error, it has written nothing, and the caller must answer with [ProblemOf]
// the error. A body is not read.
func (h *Handler) Serve(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	if mayBeFromPage(r.Header) {
		return errPage
	}
	q, err := parseQuery(r.URL.RawQuery)
	if err != nil {
		return err
	}
	if hasUsersQuery(r) {
		return errUsersQuery
	}
	if len(q.charges) > 0 {
		return h.chargeByQuery(ctx, w, r, &q)
	}
	return h.chargeByRules(ctx, w, r, q.refusalStatus)
}

// hasUsersQuery reports whether the proxy has passed on the query of the original request, instead of replacing it.
func hasUsersQuery(r *http.Request) bool {
	for _, name := range originalHeaders.uri {
		for _, uri := range r.Header[name] {
			_, query, _ := strings.Cut(uri, "?")
			if query != "" && (r.URL.RawQuery == query || strings.HasSuffix(r.URL.RawQuery, "&"+query)) {
				return true
			}
		}
	}
	return false
}

// errUsersQuery is the error of a query that the end user may have chosen.
var errUsersQuery = headgate.Invalid("query", "is the end user's; the proxy has to replace it, or users could choose "+
	"what they are charged. With Caddy, rewrite to %s? with a question mark", Path)

// errPage is the error of a request that a web page may have sent.
var errPage = &api.Problem{
	Title: "Not a proxy's request", Status: http.StatusForbidden,
	Detail: "Nothing was charged. " + Path + " answers requests with a header X-Forwarded-Uri, X-Original-Uri or " +
		auth.TokenHeader + ", since no web page can send these.",
}

// chargeByQuery decides the charges of the query.
func (h *Handler) chargeByQuery(ctx context.Context, w http.ResponseWriter, r *http.Request, q *query) error {
	for i := range q.charges {
		if q.ipBits[i] == 0 {
			continue
		}
		client, err := h.client(r)
		if err != nil {
			return err
		}
		q.charges[i].Key, q.charges[i].NoKey = httpkey.NetworkOf(client, q.ipBits[i]), false
	}
	charges, err := h.service.Charges(ctx, &api.Request{Charges: q.charges})
	if err != nil {
		return err
	}
	d, err := h.service.Decide(ctx, &headgate.Request{Charges: charges})
	if err != nil {
		return err
	}
	h.answer(w, &d, charges, q.refusalStatus)
	return nil
}

func (h *Handler) answer(w http.ResponseWriter, d *headgate.Decision, charges []headgate.Charge, refusalStatus int) {
	h.config.Fields.write(w.Header(), d, h.service.KnownLimits(charges))
	if d.Allowed {
		allow(w)
		return
	}
	httplimit.SetRetryAfter(w.Header(), d, h.config.Fields.NoRetryBeyond)
	httplimit.WriteRefusal(w, d, refusalStatus)
}

// noStore is in the headers of many answers, so nothing may change it.
var noStore = []string{"no-store"}

// allow answers that a request may pass.
func allow(w http.ResponseWriter) {
	w.Header()["Cache-Control"] = noStore
	w.WriteHeader(http.StatusNoContent)
}

// ProblemOf returns the problem of an error of Serve. Many proxies pass it on to the end user, so it describes errors
// of the request only: any other error is a 503 without details.
func ProblemOf(err error) *api.Problem {
	p := service.ProblemOf(err)
	if p.Status < http.StatusInternalServerError {
		return p
	}
	return &api.Problem{
		Type: httplimit.TemporaryReducedCapacity, Title: "The rate limiter is not available",
		Status: http.StatusServiceUnavailable, Detail: "The request was not let through.",
	}
}
