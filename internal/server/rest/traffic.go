package rest

import (
	"context"
	"net/http"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/load"
	"github.com/headgate/headgate/internal/server/traffic"
)

// perLimit is how many bytes the traffic of one limit takes in an answer: 300 seconds with three numbers, which
// have four bytes here and some more on the wire.
const perLimit = 12 << 10

// usualTop is how many keys are listed.
const usualTop = 20

// traffic answers what was decided lately, and for which keys.
func (d *door) traffic(w http.ResponseWriter, r *http.Request, s *load.Share) error {
	q := &api.TrafficQuery{By: api.ByRefused, Top: usualTop, Seconds: traffic.Seconds}
	if err := parameters(r.URL.RawQuery, q); err != nil {
		return err
	}
	if q.By != api.ByRefused && q.By != api.ByUsed {
		return headgate.Invalid("by", "%+.40q is not refused or used", q.By)
	}
	return d.answering(w, r, s, perLimit*traffic.MaxLimits, func(ctx context.Context) (any, error) {
		return d.service.Traffic(ctx, q, func(keys int) error { return s.Hold(int64(perCell * keys)) })
	})
}
