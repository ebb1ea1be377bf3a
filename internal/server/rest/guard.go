package rest

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"

	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/edge"
	"github.com/headgate/headgate/internal/server/forwardauth"
	"github.com/headgate/headgate/internal/server/service"
)

// guard lets callers in that have a role. Authorization is looked at only if that is said.
func (d *door) guard(role auth.Role, authorization bool, h http.HandlerFunc) http.HandlerFunc {
	if d.Tokens == nil || role == auth.Anyone {
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
		h(w, r.WithContext(auth.With(r.Context(), caller)))
	}
}

// ofAll lets callers in that may touch all limits.
func (d *door) ofAll(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if caller := auth.From(r.Context()); !caller.All() {
			d.forbid(w, r, true, fmt.Errorf("%w: %s may not touch all limits, which %s names",
				auth.ErrForbidden, caller, r.URL.Path))
			return
		}
		h(w, r)
	}
}

// caller returns the caller of a request, as [auth.Tokens.Caller] does. Authorization is looked at only if
// that is said.
func (d *door) caller(r *http.Request, authorization bool) (*auth.Caller, error) {
	shown := auth.Shown{
		Token: r.Header.Get(auth.TokenHeader), Certificate: func() *x509.Certificate { return edge.Certificate(r) },
		UnixSocket: edge.OnUnixSocket(r),
	}
	if authorization {
		shown.Authorization = r.Header["Authorization"]
	}
	return d.Tokens.Tokens().Caller(shown)
}

// mayLook reports whether the caller of a request may know of the store.
func (d *door) mayLook(r *http.Request) bool {
	if d.Tokens == nil {
		return true
	}
	caller, err := d.caller(r, r.Pattern != forwardauth.Path)
	return err == nil && caller.Can(auth.RoleRead) == nil
}

// forbid answers a request that may not be served. Where Authorization is not looked at there is no
// challenge either: proxies would pass it on to their end users.
func (d *door) forbid(w http.ResponseWriter, r *http.Request, authorization bool, err error) {
	d.log.Warn("request refused", "class", "access", "path", r.URL.Path, "remote", r.RemoteAddr, "error", err)
	where := "Authorization: Bearer, or in " + auth.TokenHeader
	if !authorization {
		where = auth.TokenHeader
	} else if errors.Is(err, auth.ErrUnknown) {
		w.Header().Set("WWW-Authenticate", `Bearer realm="headgate"`)
	}
	edge.WriteProblem(w, service.Forbidden(err, where))
}
