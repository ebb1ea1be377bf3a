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

func (r *remote) Inspect(ctx context.Context, in *api.Subject) (*api.Status, error) {
	out := new(api.Status)
	return out, r.call(ctx, http.MethodPost, "/v1/inspect", in, out)
}

func (r *remote) Reset(ctx context.Context, in *api.ResetRequest) (*api.Reset, error) {
	out := new(api.Reset)
	return out, r.call(ctx, http.MethodPost, "/v1/reset", in, out)
}

func (r *remote) Block(ctx context.Context, in *api.Block) (*api.Status, error) {
	out := new(api.Status)
	return out, r.call(ctx, http.MethodPost, "/v1/block", in, out)
}

// List asks for all pages.
func (r *remote) List(ctx context.Context, limit string, blocked bool) ([]api.Status, error) {
	q := api.CellsQuery{Limit: limit, Blocked: blocked, Max: store.DefaultMax}
	var all []api.Status
	for {
		var page api.Cells
		if err := r.call(ctx, http.MethodGet, "/v1/cells", &q, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Cells...)
		if len(page.Cells) < store.DefaultMax {
			return all, nil
		}
		last := all[len(all)-1]
		q.AfterLimit, q.AfterKey = last.Limit, last.Key
	}
}

// List reads all pages out of the store.
func (l *local) List(ctx context.Context, limit string, blocked bool) ([]api.Status, error) {
	var all []api.Status
	var q store.Query
	for {
		page, err := l.Cells(ctx, limit, blocked, q)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Cells...)
		if len(page.Cells) < store.DefaultMax {
			return all, nil
		}
		last := all[len(all)-1]
		q.After = law.Cell{Limit: last.Limit, Key: last.Key}
	}
}
