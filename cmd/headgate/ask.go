package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// asking are the flags of the commands that use a store or a server.
type asking struct {
	json  printing
	watch bool
}

func (a *asking) flags(cmd *cobra.Command) {
	addAsked(cmd)
	a.json.flag(cmd)
}

// watchFlag lets a command answer again and again.
func (a *asking) watchFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&a.watch, "watch", "w", false, "ask again every second, until q or Ctrl-C")
}

// addAsked gives a command the settings that name its store or server.
func addAsked(cmd *cobra.Command) {
	addSettings(cmd, config.File, config.Store, config.Server, config.Token)
	cmd.MarkFlagsMutuallyExclusive("store", "server")
}

// answerer is what answers: the service over a store that this process opens,
// or a server.
type answerer interface {
	Take(ctx context.Context, r *api.Request) (*api.Decision, error)
	Check(ctx context.Context, r *api.Request) (*api.Decision, error)
	FillUp(ctx context.Context, r *api.Request) (*api.Filled, error)
	Inspect(ctx context.Context, r *api.InspectRequest) (*api.Status, error)
	Reset(ctx context.Context, r *api.ResetRequest) (*api.Reset, error)
	Block(ctx context.Context, r *api.Block) (*api.Status, error)
	Usage(ctx context.Context, q *service.UsageQuery) (*api.Usage, error)
	Audit(ctx context.Context, q *api.AuditQuery) (*api.Audit, error)
	Explain(ctx context.Context, r *api.Explain) (*api.Explanation, error)
	Page(ctx context.Context, q *api.CellsQuery) (*api.Cells, error)
	Limits(ctx context.Context) (*api.Limits, error)
	Catalog(ctx context.Context) (*api.Catalog, error)
	Meaning(ctx context.Context, limit string) (string, error) // what a limit means, in sentences
	Versions(ctx context.Context, q *api.VersionsQuery) (*api.Versions, error)
	SetLimit(ctx context.Context, r *api.SetLimit) (*api.Changed, error)
	Rollback(ctx context.Context, r *api.Rollback) (*api.Changed, error)
	Override(ctx context.Context, r *api.Override) (*api.Changed, error)
	SetPlan(ctx context.Context, r *api.SetPlan) (*api.Changed, error)
}

// serverOf returns the URL of the server to use; empty: none. A store that a flag names
// goes before a server that the environment names.
func serverOf(cmd *cobra.Command) (string, error) {
	if _, given := flags(cmd)(config.Store.Flag()); given {
		return "", nil
	}
	said, err := new(config.Config).Get(config.Server, flags(cmd))
	return said.Value, err
}

// ask opens the store or the client of a server, and calls do with it.
func ask(cmd *cobra.Command, do func(answerer) error) error {
	url, err := serverOf(cmd)
	if err != nil {
		return err
	}
	if url != "" {
		token, err := new(config.Config).Get(config.Token, flags(cmd))
		if err != nil {
			return err
		}
		s := &remote{url, token.Value, 15 * time.Second}
		return near(cmd, s, do(s))
	}
	c, _, s, err := openPlace(cmd)
	if err != nil {
		return err
	}
	names := newCatalogNames(cmd.Context(), s, c)
	answers := newService(s, c, names)
	answers.ActAs(by("").Author)
	answers.OnAdmin(func(a service.AdminAction) {
		if a.Unrecorded != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "headgate: it was done, and is not in the audit: %v\n", a.Unrecorded)
		}
	})
	l := &local{answers, names}
	return cmp.Or(near(cmd, l, do(l)), s.Close())
}

// look reads, and lets do print what it finds: once, or again and again.
func (a *asking) look(cmd *cobra.Command, do func(s answerer, w io.Writer) error) error {
	return ask(cmd, func(s answerer) error {
		if !a.watch {
			return do(s, cmd.OutOrStdout())
		}
		return repeat(cmd, time.Second, 0, func(width, _ int) ([]string, error) {
			var b bytes.Buffer
			err := do(s, &b)
			return fitted(strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n"), width), err
		})
	})
}

// show reads, and prints the answer: as JSON, or for people.
func show[T any](cmd *cobra.Command, a *asking, question func(answerer) (T, error),
	print func(io.Writer, T) error,
) error {
	return a.look(cmd, func(s answerer, w io.Writer) error {
		answer, err := question(s)
		if err != nil {
			return err
		}
		return a.json.print(w, answer, func(w io.Writer) error { return print(w, answer) })
	})
}

// eachLimit calls do for the limit of the arguments KEY [LIMIT], or, where none is said, for each limit that the key
// has and of which wanted holds. It returns how many they were.
func eachLimit(ctx context.Context, s answerer, args []string, wanted func(*api.LimitUsage) bool,
	do func(limit string) error,
) (n int, err error) {
	if len(args) > 1 {
		return 1, do(args[1])
	}
	u, err := s.Usage(ctx, &service.UsageQuery{Key: args[0]})
	if err != nil {
		return 0, err
	}
	for i := range u.Limits {
		if l := &u.Limits[i]; wanted(l) {
			if err := do(l.Limit); err != nil {
				return n, fmt.Errorf("%s: %w", l.Limit, err)
			}
			n++
		}
	}
	return n, nil
}

// unaskable: nothing can be read about the key of a limit, such as one that the catalog does not have
// any more, or the key of a cell that others share.
func unaskable(err error) bool {
	return errors.Is(err, headgate.ErrInvalid) || errors.Is(err, headgate.ErrUnknownLimit)
}

// remote is a server, over HTTP or gRPC.
type remote struct {
	server, token string
	within        time.Duration // it has to answer
}

// call sends a request to one path.
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

func (r *remote) Catalog(ctx context.Context) (*api.Catalog, error) {
	return get[api.Catalog](ctx, r, "/v1/catalog", nil)
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

// Meaning reads the catalog of a server, which says what each limit means.
func (r *remote) Meaning(ctx context.Context, name string) (string, error) {
	c, err := r.Catalog(ctx)
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

// Meaning reads the catalog of the store.
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

// Inspect reads from the store.
func (l *local) Inspect(ctx context.Context, in *api.InspectRequest) (*api.Status, error) {
	return l.Service.Inspect(ctx, in, func(int) error { return nil })
}

// Page reads out of the store.
func (l *local) Page(ctx context.Context, q *api.CellsQuery) (*api.Cells, error) {
	after := law.Cell{Limit: q.AfterLimit, Key: q.AfterKey}
	return l.Cells(ctx, q.Limit, q.Blocked, store.Query{After: after, Max: q.Max})
}

// Usage reads from a store. This process has refused nothing.
func (l *local) Usage(ctx context.Context, q *service.UsageQuery) (*api.Usage, error) {
	u, err := l.Service.Usage(ctx, q, func(int) error { return nil })
	if err != nil {
		return nil, err
	}
	u.Refusals = nil
	return u, nil
}
