package rest

import (
	"context"
	"net/http"

	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/load"
)

// perVerdict is how many bytes it takes to say why a rule decides, or why not.
const perVerdict = 600

// perAttempt is how many bytes an attempt takes in an answer.
const perAttempt = 200

// explain answers which rule decides about a request.
func (d *door) explain(w http.ResponseWriter, r *http.Request, s *load.Share) error {
	in := new(api.Explain)
	return d.posted(w, r, s, maxBody, in, func(ctx context.Context) (any, error) {
		if err := s.Hold(int64(perVerdict * d.service.Rules().Rules().Len())); err != nil {
			return nil, err
		}
		return d.service.Explain(ctx, in)
	})
}

// inspect answers with all that is known of one key.
func (d *door) inspect(w http.ResponseWriter, r *http.Request, s *load.Share) error {
	in := new(api.InspectRequest)
	return d.posted(w, r, s, maxBody, in, func(ctx context.Context) (any, error) {
		return d.service.Inspect(ctx, in, func(attempts int) error { return s.Hold(int64(perAttempt * attempts)) })
	})
}
