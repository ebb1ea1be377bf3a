package rest

import (
	"context"
	"net/http"
	"reflect"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/load"
	"github.com/headgate/headgate/internal/server/traffic"
)

// What a part of an answer holds, in bytes.
const (
	perEntry   = 4 << 10  // of a list, on its way from the store into the answer: its key and its reason may be long
	perVerdict = 600      // why a rule decides, or why not
	perAttempt = 200      // of a key
	perLimit   = 12 << 10 // traffic: 300 seconds with three numbers, which have four bytes here and more on the wire
)

// asked serves what takes a Q in the query of a URL. What is not said is as in usual.
func asked[Q any](d *door, usual Q, do func(context.Context, *Q, *load.Share) (any, error)) http.HandlerFunc {
	return d.with(func(w http.ResponseWriter, r *http.Request, s *load.Share) error {
		q := usual
		if err := parameters(r.URL.RawQuery, &q); err != nil {
			return err
		}
		return d.decided(w, r, s, func(ctx context.Context) (any, error) { return do(ctx, &q, s) })
	})
}

// list serves a list of at most as many entries as the field Max of a Q says.
func list[Q, Out any](d *door, usual Q, do func(context.Context, *Q) (*Out, error)) http.HandlerFunc {
	return asked(d, usual, func(ctx context.Context, q *Q, s *load.Share) (any, error) {
		if err := s.Hold(perEntry * reflect.ValueOf(q).Elem().FieldByName("Max").Int()); err != nil {
			return nil, err
		}
		return do(ctx, q)
	})
}

// whole serves an answer of which parts says how many objects it has. The query is not looked at.
func whole[Out any](d *door, do func(context.Context, *struct{}) (*Out, error), parts func(*Out) int) http.HandlerFunc {
	return d.with(func(w http.ResponseWriter, r *http.Request, s *load.Share) error {
		return d.decided(w, r, s, func(ctx context.Context) (any, error) {
			out, err := do(ctx, nil)
			if err != nil {
				return nil, err
			}
			return out, s.Hold(int64(load.PerObject * parts(out)))
		})
	})
}

// holding counts parts of an answer in a share, each of so many bytes.
func holding(s *load.Share, each int64) func(parts int) error {
	return func(parts int) error { return s.Hold(each * int64(parts)) }
}

// mePath is the route that describes the caller.
const mePath = "GET /v1/me"

// me answers with the caller, its permissions, and whether admin actions are served at this address.
func (d *door) me(actions bool) http.HandlerFunc {
	return whole(d, func(ctx context.Context, _ *struct{}) (*api.Me, error) {
		me := &api.Me{Role: auth.RoleAdmin.String(), Tokens: d.Tokens != nil, Actions: actions, Away: d.Away(nil)}
		if c := auth.From(ctx); c != nil {
			me.Name, me.Role, me.Limits = c.Name, c.Role.String(), c.Limits
		}
		return me, nil
	}, func(*api.Me) int { return 0 })
}

// difference returns what was changed between two versions of the catalog.
func (d *door) difference(ctx context.Context, q *api.DifferenceQuery, s *load.Share) (any, error) {
	out, err := d.service.Difference(ctx, q)
	if err != nil {
		return nil, err
	}
	return out, s.Hold(int64(load.PerObject * len(out.Changes)))
}

// usage answers what a key has used of its limits.
func (d *door) usage(ctx context.Context, q *api.UsageQuery, s *load.Share) (any, error) {
	return d.service.Usage(ctx, q, holding(s, perEntry))
}

// traffic answers what was decided lately, and for which keys.
func (d *door) traffic(ctx context.Context, q *api.TrafficQuery, s *load.Share) (any, error) {
	if q.By != api.ByRefused && q.By != api.ByUsed {
		return nil, headgate.Invalid("by", "%+.40q is not refused or used", q.By)
	}
	if err := s.Hold(perLimit * traffic.MaxLimits); err != nil {
		return nil, err
	}
	return d.service.Traffic(ctx, q, holding(s, perEntry))
}

// explain answers which rule decides about a request.
func (d *door) explain(ctx context.Context, in *api.Explain, s *load.Share) (any, error) {
	if err := s.Hold(int64(perVerdict * d.service.Rules().Len())); err != nil {
		return nil, err
	}
	return d.service.Explain(ctx, in)
}

// inspect answers with all that is known of one key.
func (d *door) inspect(ctx context.Context, in *api.InspectRequest, s *load.Share) (any, error) {
	return d.service.Inspect(ctx, in, holding(s, perAttempt))
}
