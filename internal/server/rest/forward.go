package rest

import (
	"context"
	"net/http"

	"github.com/headgate/headgate/internal/server/edge"
	"github.com/headgate/headgate/internal/server/forwardauth"
	"github.com/headgate/headgate/internal/server/load"
	"github.com/headgate/headgate/internal/server/service"
)

// serveForward serves forward authentication. Its problems may reach end users, so they have fewer details.
func (srv *server) serveForward(w http.ResponseWriter, r *http.Request) {
	s := srv.Load.Share()
	defer s.Release()
	err := srv.decideForward(w, r, &s)
	if err == nil {
		return
	}
	p := forwardauth.ProblemOf(err)
	if p.Status >= http.StatusInternalServerError && !clientGone(r, err) {
		service.LogFailure(srv.log, r.URL.Path, err, 1)
	}
	edge.WriteProblem(w, p)
}

// decideForward decides a request of a proxy within the bounds of the load.
func (srv *server) decideForward(w http.ResponseWriter, r *http.Request, s *load.Share) error {
	if err := s.Enter(); err != nil {
		return err
	}
	if err := s.HoldObjects(forwardauth.CountCharges(r.URL.RawQuery)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(service.WithProtocol(r.Context(), service.ProtocolAuth), service.Deadline)
	defer cancel()
	return srv.auth.Serve(ctx, w, r)
}

// settleForward settles the charges of an end user's request. Its body is the body of the response to the end user.
func (srv *server) settleForward(w http.ResponseWriter, r *http.Request, s *load.Share) error {
	var b body
	defer b.free()
	if err := b.read(w, r, maxListBytes, s); err != nil {
		return err
	}
	settle := func(ctx context.Context) (any, error) { return srv.auth.Settle(ctx, r.Header, b.Bytes()) }
	return srv.decide(w, r, s, settle)
}
