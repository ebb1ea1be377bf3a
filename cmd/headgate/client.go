package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// remote asks a server, over HTTP or gRPC.
type remote struct {
	server, token string
	within        time.Duration // it has to answer
}

// call asks one path.
func call[T any](ctx context.Context, r *remote, method, path string, in any) (*T, error) {
	c, err := client.New(r.server, &client.Config{Timeout: r.within, Token: r.token})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	out := new(T)
	return out, c.Call(ctx, method, path, in, out)
}

func get[T any](ctx context.Context, r *remote, path string, in any) (*T, error) {
	return call[T](ctx, r, http.MethodGet, path, in)
}

func post[T any](ctx context.Context, r *remote, path string, in any) (*T, error) {
	return call[T](ctx, r, http.MethodPost, path, in)
}

func (r *remote) Take(ctx context.Context, in *api.Request) (*api.Decision, error) {
	return post[api.Decision](ctx, r, "/v1/take", in)
}

func (r *remote) Check(ctx context.Context, in *api.Request) (*api.Decision, error) {
	return post[api.Decision](ctx, r, "/v1/check", in)
}

func (r *remote) FillUp(ctx context.Context, in *api.Request) (*api.Filled, error) {
	return post[api.Filled](ctx, r, "/v1/fill-up", in)
}

func (r *remote) Inspect(ctx context.Context, in *api.InspectRequest) (*api.Status, error) {
	return post[api.Status](ctx, r, "/v1/inspect", in)
}

func (r *remote) Reset(ctx context.Context, in *api.ResetRequest) (*api.Reset, error) {
	return post[api.Reset](ctx, r, "/v1/reset", in)
}

func (r *remote) Block(ctx context.Context, in *api.Block) (*api.Status, error) {
	return post[api.Status](ctx, r, "/v1/block", in)
}

func (r *remote) Usage(ctx context.Context, q *service.UsageQuery) (*api.Usage, error) {
	return get[api.Usage](ctx, r, "/v1/usage", q)
}

func (r *remote) Audit(ctx context.Context, q *api.AuditQuery) (*api.Audit, error) {
	return get[api.Audit](ctx, r, "/v1/audit", q)
}

func (r *remote) Explain(ctx context.Context, q *api.Explain) (*api.Explanation, error) {
	return post[api.Explanation](ctx, r, "/v1/explain", q)
}

func (r *remote) Page(ctx context.Context, q *api.CellsQuery) (*api.Cells, error) {
	return get[api.Cells](ctx, r, "/v1/cells", q)
}

func (r *remote) Limits(ctx context.Context) (*api.Limits, error) {
	return get[api.Limits](ctx, r, "/v1/limits", nil)
}

func (r *remote) Catalogue(ctx context.Context) (*api.Catalogue, error) {
	return get[api.Catalogue](ctx, r, "/v1/catalogue", nil)
}

func (r *remote) Versions(ctx context.Context, q *api.VersionsQuery) (*api.Versions, error) {
	return get[api.Versions](ctx, r, "/v1/versions", q)
}

func (r *remote) SetLimit(ctx context.Context, in *api.SetLimit) (*api.Changed, error) {
	return post[api.Changed](ctx, r, "/v1/limit", in)
}

func (r *remote) Rollback(ctx context.Context, in *api.Rollback) (*api.Changed, error) {
	return post[api.Changed](ctx, r, "/v1/rollback", in)
}

func (r *remote) Override(ctx context.Context, in *api.Override) (*api.Changed, error) {
	return post[api.Changed](ctx, r, "/v1/override", in)
}

func (r *remote) SetPlan(ctx context.Context, in *api.SetPlan) (*api.Changed, error) {
	return post[api.Changed](ctx, r, "/v1/plan", in)
}

// Meaning asks a server for its catalogue, which says what each limit means.
func (r *remote) Meaning(ctx context.Context, name string) (string, error) {
	c, err := r.Catalogue(ctx)
	if err != nil {
		return "", err
	}
	for i := range c.Limits {
		if c.Limits[i].Name == name {
			return c.Limits[i].Explain, nil
		}
	}
	return "", fmt.Errorf("%w: %q", headgate.ErrUnknownLimit, name)
}

// local answers out of a store.
type local struct {
	*service.Service
	names *catalogNames
}

// Meaning reads the catalogue of the store.
func (l *local) Meaning(_ context.Context, name string) (string, error) {
	c, err := l.names.Kept()
	if err != nil {
		return "", err
	}
	limit, err := c.Get(name)
	if err != nil {
		return "", err
	}
	return limit.Explain(), nil
}

// Inspect asks the store.
func (l *local) Inspect(ctx context.Context, in *api.InspectRequest) (*api.Status, error) {
	return l.Service.Inspect(ctx, in, func(int) error { return nil })
}

// Page reads out of the store.
func (l *local) Page(ctx context.Context, q *api.CellsQuery) (*api.Cells, error) {
	after := law.Cell{Limit: q.AfterLimit, Key: q.AfterKey}
	return l.Cells(ctx, q.Limit, q.Blocked, store.Query{After: after, Max: q.Max})
}

// Usage asks a store. This process has refused nothing.
func (l *local) Usage(ctx context.Context, q *service.UsageQuery) (*api.Usage, error) {
	u, err := l.Service.Usage(ctx, q, func(int) error { return nil })
	if err != nil {
		return nil, err
	}
	u.Refusals = nil
	return u, nil
}
