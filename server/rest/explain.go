package rest

import (
	"net/http"

	"github.com/headgate/headgate/server/api"
	"github.com/headgate/headgate/server/load"
)

// perVerdict is how many bytes it takes to say why a rule decides, or why not.
const perVerdict = 600

// explain tells which rule decides about a request.
func (d *door) explain(w http.ResponseWriter, r *http.Request, s *load.Share) error {
	in := new(api.Explain)
	if err := take(w, r, maxBody, s, in); err != nil {
		return err
	}
	if err := s.Hold(int64(perVerdict * d.service.Rules().Rules().Len())); err != nil {
		return err
	}
	ctx := withTimeout(r.Context(), deadline)
	defer ctx.stop()
	out, err := d.service.Explain(ctx, in)
	if err != nil {
		return err
	}
	s.Leave()
	return d.answer(w, out)
}
