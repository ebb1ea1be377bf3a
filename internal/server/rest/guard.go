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

// requireRole returns a handler that serves callers with a role only, or everybody if the server has no tokens. It
// ignores the header Authorization unless authorization is true.
func (srv *server) requireRole(role auth.Role, authorization bool, h http.HandlerFunc) http.HandlerFunc {
	if srv.Tokens == nil || role == auth.Anyone {
		return h
	}
	return func(w http.ResponseWriter, r *http.Request) {
		caller, err := srv.caller(r, authorization)
		if err == nil {
			err = caller.CheckRole(role)
		}
		if err != nil {
			srv.forbid(w, r, authorization, err)
			return
		}
		h(w, r.WithContext(auth.WithCaller(r.Context(), caller)))
	}
}

// requireAllLimits returns a handler that serves only callers that may touch all limits.
func (srv *server) requireAllLimits(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if caller := auth.CallerOf(r.Context()); !caller.AllLimits() {
			srv.forbid(w, r, true, fmt.Errorf("%w: %s may not touch all limits, which %s names",
				auth.ErrForbidden, caller, r.URL.Path))
			return
		}
		h(w, r)
	}
}

// caller finds the caller of a request by its credentials, see [auth.Tokens.Caller]. It ignores the header
// Authorization unless authorization is true.
func (srv *server) caller(r *http.Request, authorization bool) (*auth.Caller, error) {
	credentials := auth.Credentials{
		Token: r.Header.Get(auth.TokenHeader), Certificate: func() *x509.Certificate { return edge.Certificate(r) },
		UnixSocket: edge.OnUnixSocket(r),
	}
	if authorization {
		credentials.Authorization = r.Header["Authorization"]
	}
	return srv.Tokens.Tokens().Caller(credentials)
}

// mayRead reports whether the caller of a request has the role read.
func (srv *server) mayRead(r *http.Request) bool {
	if srv.Tokens == nil {
		return true
	}
	caller, err := srv.caller(r, r.Pattern != forwardauth.Path)
	return err == nil && caller.CheckRole(auth.RoleRead) == nil
}

// forbid logs and answers a request that is not permitted. It sends a challenge only if authorization is true: proxies
// would pass it on to their end users.
func (srv *server) forbid(w http.ResponseWriter, r *http.Request, authorization bool, err error) {
	srv.log.Warn("request refused", "class", "access", "path", r.URL.Path, "remote", r.RemoteAddr, "error", err)
	where := "Authorization: Bearer, or in " + auth.TokenHeader
	if !authorization {
		where = auth.TokenHeader
	} else if errors.Is(err, auth.ErrUnknown) {
		w.Header().Set("WWW-Authenticate", `Bearer realm="headgate"`)
	}
	edge.WriteProblem(w, service.AccessProblem(err, where))
}
