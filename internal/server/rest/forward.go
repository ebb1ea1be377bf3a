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
func (d *server) serveForward(w http.ResponseWriter, r *http.Request) {
	s := d.Load.Share()
	defer s.Release()
	err := d.decideForward(w, r, &s)
	if err == nil {
		return
	}
	p := forwardauth.Problem(err)
	if p.Status >= http.StatusInternalServerError && !clientGone(r, err) {
		service.LogFailure(d.log, r.URL.Path, err, 1)
	}
	edge.WriteProblem(w, p)
}

// decideForward decides a request of a proxy within the bounds of the load.
func (d *server) decideForward(w http.ResponseWriter, r *http.Request, s *load.Share) error {
	if err := s.Enter(); err != nil {
		return err
	}
	if err := s.HoldObjects(forwardauth.Charges(r.URL.RawQuery)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(service.WithProtocol(r.Context(), service.ProtocolAuth), service.Deadline)
	defer cancel()
	return d.auth.Serve(ctx, w, r)
}

// settleForward settles the charges of an end user's request. The body is that of the response to it.
func (d *server) settleForward(w http.ResponseWriter, r *http.Request, s *load.Share) error {
	var b body
	defer b.free()
	if err := b.read(w, r, maxListBytes, s); err != nil {
		return err
	}
	return d.decide(w, r, s, func(ctx context.Context) (any, error) { return d.auth.Settle(ctx, r.Header, b.Bytes()) })
}
