package rest

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/headgate/headgate/server/api"
	"github.com/headgate/headgate/server/auth"
	"github.com/headgate/headgate/server/edge"
	"github.com/headgate/headgate/server/forwardauth"
	"github.com/headgate/headgate/server/service"
)

// TokenHeader is the header for a token beside Authorization: of requests on which a proxy passes
// on the Authorization of its end user.
const TokenHeader = forwardauth.TokenHeader

// errUnknown is the error of a request that shows nothing by which its caller is known.
var errUnknown = errors.New("the caller is not known")

// guard lets callers in that have a role. Authorization is looked at only if that is said.
func (d *door) guard(role auth.Role, authorization bool, h http.HandlerFunc) http.HandlerFunc {
	if d.tokens == nil || role == auth.Anyone {
		return h
	}
	return func(w http.ResponseWriter, r *http.Request) {
		caller, err := d.caller(r, authorization)
		if err == nil {
			err = caller.Can(role)
		}
		if err != nil {
			d.forbid(w, r, authorization, err)
			return
		}
		if caller != nil {
			r = r.WithContext(auth.With(r.Context(), caller))
		}
		h(w, r)
	}
}

// caller returns the caller of a request; nil is one that may do everything, by a Unix socket. A token
// that is not known is an error also where none is needed. Authorization is looked at only if that is said.
func (d *door) caller(r *http.Request, authorization bool) (*auth.Caller, error) {
	tokens := d.tokens.Tokens()
	token := r.Header.Get(TokenHeader)
	shown := token != "" // a proxy without one may send an empty header
	if authorization && !shown && len(r.Header["Authorization"]) > 0 {
		scheme, value, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return nil, fmt.Errorf("%w: Authorization is of another kind than Bearer", errUnknown)
		}
		token, shown = strings.TrimSpace(value), true
	}
	if shown {
		if c := tokens.Token(token); c != nil {
			return c, nil
		}
		return nil, fmt.Errorf("%w: its token is not listed", errUnknown)
	}
	if cert := edge.Certificate(r); cert != nil {
		if c := tokens.Certificate(cert); c != nil {
			return c, nil
		}
		return nil, fmt.Errorf("%w: its certificate is not listed", errUnknown)
	}
	if edge.OnUnixSocket(r) {
		return nil, nil
	}
	return nil, fmt.Errorf("%w: it shows no token", errUnknown)
}

// forbid answers a request that may not be served. Where Authorization is not looked at there is no
// challenge either: proxies would pass it on to their end users.
func (d *door) forbid(w http.ResponseWriter, r *http.Request, authorization bool, err error) {
	d.log.Warn("request refused", "class", "access", "path", r.URL.Path, "remote", r.RemoteAddr, "error", err)
	p := service.Problem(err)
	if errors.Is(err, errUnknown) {
		where := TokenHeader
		if authorization {
			w.Header().Set("WWW-Authenticate", `Bearer realm="headgate"`)
			where = "Authorization: Bearer, or in " + where
		}
		p = &api.Problem{
			Title: "Not authenticated", Status: http.StatusUnauthorized,
			Detail: "Nothing was done: " + err.Error() + ". Send a token in " + where + ".",
		}
	}
	edge.WriteProblem(w, p)
}
