package rest

import (
	"context"
	"net/http"
	"strconv"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/edge"
	"github.com/headgate/headgate/internal/server/load"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/internal/server/traffic"
	"github.com/headgate/headgate/law"
)

// perLimit is how many bytes it takes to tell of the traffic of one limit: 300 seconds with three numbers, which
// have four bytes here and some more on the wire.
const perLimit = 12 << 10

// traffic tells what was decided lately, and for which keys.
func (d *door) traffic(w http.ResponseWriter, r *http.Request, s *load.Share) error {
	q, err := trafficQuery(r.URL.RawQuery)
	if err != nil {
		return err
	}
	return d.answering(w, r, s, perLimit*traffic.MaxLimits, func(ctx context.Context) (any, error) {
		return d.service.Traffic(ctx, q, func(keys int) error { return s.Hold(int64(perCell * keys)) })
	})
}

// trafficQuery reads the parameters of a traffic.
func trafficQuery(raw string) (*api.TrafficQuery, error) {
	values, err := edge.Query(raw, "limit", "by", "top", "seconds")
	if err != nil {
		return nil, err
	}
	q := &api.TrafficQuery{By: api.ByRefused, Top: service.DefaultTop, Seconds: traffic.Seconds}
	for name := range values {
		switch value := values.Get(name); name {
		case "limit":
			q.Limit, err = value, valid(name, law.Cell{Limit: value})
		case "by":
			if q.By = value; value != api.ByRefused && value != api.ByUsed {
				err = headgate.Invalid(name, "%+.40q is not refused or used", value)
			}
		case "top":
			q.Top, err = number(name, value, 0, service.MaxTop)
		case "seconds":
			q.Seconds, err = number(name, value, 1, traffic.Seconds)
		}
		if err != nil {
			return nil, err
		}
	}
	return q, nil
}

// number reads a number of a query.
func number(name, value string, least, most int) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < least || n > most {
		return 0, headgate.Invalid(name, "%+.40q is not a number from %d to %d", value, least, most)
	}
	return n, nil
}
