package rest

import (
	"context"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/load"
	"github.com/headgate/headgate/internal/server/traffic"
)

// perLimit is how many bytes the traffic of one limit takes in an answer: 300 seconds with three numbers, which
// have four bytes here and some more on the wire.
const perLimit = 12 << 10

// traffic answers what was decided lately, and for which keys.
func (d *door) traffic(ctx context.Context, q *api.TrafficQuery, s *load.Share) (any, error) {
	if q.By != api.ByRefused && q.By != api.ByUsed {
		return nil, headgate.Invalid("by", "%+.40q is not refused or used", q.By)
	}
	if err := s.Hold(perLimit * traffic.MaxLimits); err != nil {
		return nil, err
	}
	return d.service.Traffic(ctx, q, func(keys int) error { return s.Hold(int64(perEntry * keys)) })
}
