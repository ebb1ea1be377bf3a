package main

import (
	"context"
	"net/http"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/server/api"
	"github.com/headgate/headgate/store"
)

// remote asks a server, over HTTP or gRPC.
type remote struct{ server, token string }

func newClient(server, token string) *remote { return &remote{server, token} }

// call asks one path.
func (r *remote) call(ctx context.Context, method, path string, in, out any) error {
	c, err := client.New(r.server, &client.Config{Timeout: 15 * time.Second, Token: r.token})
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Call(ctx, method, path, in, out)
}

func (r *remote) Take(ctx context.Context, in *api.Request, check bool) (*api.Decision, error) {
	path := "/v1/take"
	if check {
		path = "/v1/check"
	}
	// Found here, a bad cost is told in the words of the flag.
	if in.Cost != "" {
		if _, err := headgate.ParseCost(in.Cost.String()); err != nil {
			return nil, err
		}
	}
	out := new(api.Decision)
	return out, r.call(ctx, http.MethodPost, path, in, out)
}

func (r *remote) FillUp(ctx context.Context, in *api.Request) (*api.Filled, error) {
	out := new(api.Filled)
	return out, r.call(ctx, http.MethodPost, "/v1/fill-up", in, out)
}

func (r *remote) Inspect(ctx context.Context, in *api.InspectRequest) (*api.Status, error) {
	out := new(api.Status)
	return out, r.call(ctx, http.MethodPost, "/v1/inspect", in, out)
}

// Inspect asks the store.
func (l *local) Inspect(ctx context.Context, in *api.InspectRequest) (*api.Status, error) {
	return l.Service.Inspect(ctx, in, func(int) error { return nil })
}

func (r *remote) Reset(ctx context.Context, in *api.ResetRequest) (*api.Reset, error) {
	out := new(api.Reset)
	return out, r.call(ctx, http.MethodPost, "/v1/reset", in, out)
}

func (r *remote) Block(ctx context.Context, in *api.Block) (*api.Status, error) {
	out := new(api.Status)
	return out, r.call(ctx, http.MethodPost, "/v1/block", in, out)
}

// me returns what a server knows of its caller, and whether its store is away.
func (r *remote) me(ctx context.Context) (*api.Me, error) {
	out := new(api.Me)
	return out, r.call(ctx, http.MethodGet, "/v1/me", nil, out)
}

// Page asks a server.
func (r *remote) Page(ctx context.Context, q *api.CellsQuery) (*api.Cells, error) {
	out := new(api.Cells)
	return out, r.call(ctx, http.MethodGet, "/v1/cells", q, out)
}

// Page reads out of the store.
func (l *local) Page(ctx context.Context, q *api.CellsQuery) (*api.Cells, error) {
	after := law.Cell{Limit: q.AfterLimit, Key: q.AfterKey}
	return l.Cells(ctx, q.Limit, q.Blocked, store.Query{After: after, Max: q.Max})
}

// Names asks a server for the names of limits.
func (r *remote) Names(ctx context.Context) ([]string, error) {
	var out api.Limits
	err := r.call(ctx, http.MethodGet, "/v1/limits", nil, &out)
	return namesOf(&out), err
}

// Names are those of the catalogue.
func (l *local) Names(ctx context.Context) ([]string, error) {
	out, err := l.Limits(ctx)
	if err != nil {
		return nil, err
	}
	return namesOf(out), nil
}

func namesOf(l *api.Limits) (list []string) {
	for _, limit := range l.Limits {
		list = append(list, limit.Name)
	}
	return list
}
