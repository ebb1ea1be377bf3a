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

// The memory of a part of an answer.
const (
	bytesPerEntry   = 4 << 10  // entry of a list, from the store to the answer: its key and its reason may be long
	bytesPerVerdict = 600      // verdict of a rule in an explanation
	bytesPerAttempt = 200      // attempt of a key
	bytesPerLimit   = 12 << 10 // traffic of a limit: 300 seconds with three numbers of four bytes, and more on the wire
)

// serveQuery returns a handler that reads a Q from the query of the URL; a missing parameter is as in defaults.
func serveQuery[Q any](srv *server, defaults Q, do func(context.Context, *Q, *load.Share) (any, error),
) http.HandlerFunc {
	return srv.withShare(func(w http.ResponseWriter, r *http.Request, s *load.Share) error {
		q := defaults
		if err := parseQuery(r.URL.RawQuery, &q); err != nil {
			return err
		}
		return srv.decide(w, r, s, func(ctx context.Context) (any, error) { return do(ctx, &q, s) })
	})
}

// serveList returns a handler that answers with a list, of at most as many entries as the field Max of a Q.
func serveList[Q, Out any](srv *server, defaults Q, do func(context.Context, *Q) (*Out, error)) http.HandlerFunc {
	return serveQuery(srv, defaults, func(ctx context.Context, q *Q, s *load.Share) (any, error) {
		if err := s.Hold(bytesPerEntry * reflect.ValueOf(q).Elem().FieldByName("Max").Int()); err != nil {
			return nil, err
		}
		return do(ctx, q)
	})
}

// serveWhole returns a handler that answers with what do returns, whatever the query. parts counts the objects of that.
func serveWhole[Out any](srv *server, do func(context.Context, *struct{}) (*Out, error), parts func(*Out) int,
) http.HandlerFunc {
	return srv.withShare(func(w http.ResponseWriter, r *http.Request, s *load.Share) error {
		return srv.decide(w, r, s, func(ctx context.Context) (any, error) {
			out, err := do(ctx, nil)
			if err != nil {
				return nil, err
			}
			return out, s.Hold(int64(load.BytesPerObject * parts(out)))
		})
	})
}

// holdParts returns a function that counts parts of an answer in a share of the load, each of bytes bytes.
func holdParts(s *load.Share, bytes int64) func(parts int) error {
	return func(parts int) error { return s.Hold(bytes * int64(parts)) }
}

// mePath is the route that describes the caller.
const mePath = "GET /v1/me"

// me returns a handler that describes the caller. actions says whether this address serves admin actions.
func (srv *server) me(actions bool) http.HandlerFunc {
	return serveWhole(srv, func(ctx context.Context, _ *struct{}) (*api.Me, error) {
		me := &api.Me{Role: auth.RoleAdmin.String(), Tokens: srv.Tokens != nil, Actions: actions, Away: srv.Away(nil)}
		if c := auth.CallerOf(ctx); c != nil {
			me.Name, me.Role, me.Limits = c.Name, c.Role.String(), c.Limits
		}
		return me, nil
	}, func(*api.Me) int { return 0 })
}

func (srv *server) difference(ctx context.Context, q *api.DifferenceQuery, s *load.Share) (any, error) {
	out, err := srv.service.Difference(ctx, q)
	if err != nil {
		return nil, err
	}
	return out, s.Hold(int64(load.BytesPerObject * len(out.Changes)))
}

func (srv *server) usage(ctx context.Context, q *api.UsageQuery, s *load.Share) (any, error) {
	return srv.service.Usage(ctx, q, holdParts(s, bytesPerEntry))
}

// traffic returns the recent decisions, and the top keys.
func (srv *server) traffic(ctx context.Context, q *api.TrafficQuery, s *load.Share) (any, error) {
	if q.By != api.ByRefused && q.By != api.ByUsed {
		return nil, headgate.Invalid("by", "%+.40q is not refused or used", q.By)
	}
	if err := s.Hold(bytesPerLimit * traffic.MaxLimits); err != nil {
		return nil, err
	}
	return srv.service.Traffic(ctx, q, holdParts(s, bytesPerEntry))
}

// explain returns which rule decides about a request, and why.
func (srv *server) explain(ctx context.Context, in *api.Explain, s *load.Share) (any, error) {
	if err := s.Hold(int64(bytesPerVerdict * srv.service.Rules().Len())); err != nil {
		return nil, err
	}
	return srv.service.Explain(ctx, in)
}

func (srv *server) inspect(ctx context.Context, in *api.InspectRequest, s *load.Share) (any, error) {
	return srv.service.Inspect(ctx, in, holdParts(s, bytesPerAttempt))
}
