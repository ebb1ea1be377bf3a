package rest

import (
	"context"
	"net/http"

	"github.com/headgate/headgate/internal/server/edge"
	"github.com/headgate/headgate/internal/server/forwardauth"
	"github.com/headgate/headgate/internal/server/load"
	"github.com/headgate/headgate/internal/server/service"
)

// forward serves forward authentication. Its problems are for end users, so they say less than those
// of other paths.
func (d *door) forward(w http.ResponseWriter, r *http.Request) {
	s := d.Load.Share()
	defer s.Release()
	err := d.authorize(w, r, &s)
	if err == nil {
		return
	}
	p := forwardauth.Problem(err)
	if p.Status >= http.StatusInternalServerError && !gone(r, err) {
		service.LogFailure(d.log, r.URL.Path, err, 1)
	}
	edge.WriteProblem(w, p)
}

func (d *door) authorize(w http.ResponseWriter, r *http.Request, s *load.Share) error {
	if err := s.Enter(); err != nil {
		return err
	}
	if err := s.HoldObjects(forwardauth.Charges(r.URL.RawQuery)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(service.By(r.Context(), service.ProtocolAuth), service.Deadline)
	defer cancel()
	return d.auth.Serve(ctx, w, r)
}

// settleForwarded settles what a request was charged by rules: its body is that of the response.
func (d *door) settleForwarded(w http.ResponseWriter, r *http.Request, s *load.Share) error {
	var b body
	defer b.free()
	if err := b.read(w, r, maxList, s); err != nil {
		return err
	}
	return d.decided(w, r, s, func(ctx context.Context) (any, error) { return d.auth.Settle(ctx, r.Header, b.Bytes()) })
}
