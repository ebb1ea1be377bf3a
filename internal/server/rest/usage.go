package rest

import (
	"context"
	"net/http"
	"strconv"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/edge"
	"github.com/headgate/headgate/internal/server/load"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/law"
)

// usage tells what a key has used of its limits.
func (d *door) usage(w http.ResponseWriter, r *http.Request, s *load.Share) error {
	q, err := usageQuery(r.URL.RawQuery)
	if err != nil {
		return err
	}
	return d.answering(w, r, s, 0, func(ctx context.Context) (any, error) {
		return d.service.Usage(ctx, q, func(limits int) error { return s.Hold(int64(perCell * limits)) })
	})
}

// usageQuery reads the parameters of a usage.
func usageQuery(raw string) (*service.UsageQuery, error) {
	values, err := edge.Query(raw, "key", "limit...", "authors")
	if err != nil {
		return nil, err
	}
	if !values.Has("key") {
		return nil, headgate.Invalid("key", "is missing; it may be empty, but it must be there")
	}
	q := &service.UsageQuery{}
	for name, list := range values {
		switch value := list[0]; name {
		case "key":
			q.Key, err = value, valid(name, law.Cell{Key: value})
		case "limit":
			q.Limits = list
			for _, limit := range list {
				if err == nil {
					err = valid(name, law.Cell{Limit: limit})
				}
			}
		case "authors":
			if q.Authors, err = strconv.ParseBool(value); err != nil {
				err = headgate.Invalid(name, "%+.40q is not true or false", value)
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return q, nil
}
