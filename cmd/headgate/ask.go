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
	"github.com/headgate/headgate/store"
)

// queryFlags has the flags of commands that print an answer from a store or a server.
type queryFlags struct {
	json  outputFlag
	watch bool
}

func (f *queryFlags) addFlags(cmd *cobra.Command) {
	addPlaceSettings(cmd)
	f.json.addFlag(cmd)
}

func (f *queryFlags) addWatchFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "ask again every second, until q or Ctrl-C")
}

// addPlaceSettings adds the settings that name the store or the server.
func addPlaceSettings(cmd *cobra.Command) {
	addSettings(cmd, config.File, config.Store, config.Server, config.Token)
	cmd.MarkFlagsMutuallyExclusive("store", "server")
}

// backend answers a command: the service over a store that this process opens, or a server.
type backend struct {
	local *service.Service                                                  // nil: a server answers
	names *catalogNames                                                     // finds limits for local; may be nil
	call  func(ctx context.Context, method, path string, in, out any) error // calls the server
}

// serverBackend returns a backend that calls a server over HTTP or gRPC.
func serverBackend(url, token string, timeout time.Duration) backend {
	return backend{call: func(ctx context.Context, method, path string, in, out any) error {
		c, err := client.New(url, &client.Config{Timeout: timeout, Token: token})
		if err != nil {
			return err
		}
		defer c.Close()
		return c.Call(ctx, method, path, in, out)
	}}
}

// get calls GET on a path of a server.
func get[Out any](ctx context.Context, s backend, path string, in any) (*Out, error) {
	out := new(Out)
	return out, s.call(ctx, http.MethodGet, path, in, out)
}

// The verbs, as functions that call the local service or a server. Their input is nil if it has no fields.
var (
	callTake     = newCall(http.MethodPost, "/v1/take", (*service.Service).Take)
	callCheck    = newCall(http.MethodPost, "/v1/check", (*service.Service).Check)
	callFillUp   = newCall(http.MethodPost, "/v1/fill-up", (*service.Service).FillUp)
	callReset    = newCall(http.MethodPost, "/v1/reset", (*service.Service).Reset)
	callDebit    = newCall(http.MethodPost, "/v1/debit", (*service.Service).Debit)
	callRefund   = newCall(http.MethodPost, "/v1/refund", (*service.Service).Refund)
	callBlock    = newCall(http.MethodPost, "/v1/block", (*service.Service).Block)
	callExplain  = newCall(http.MethodPost, "/v1/explain", (*service.Service).Explain)
	callSetLimit = newCall(http.MethodPost, "/v1/limit", (*service.Service).SetLimit)
	callRollback = newCall(http.MethodPost, "/v1/rollback", (*service.Service).Rollback)
	callOverride = newCall(http.MethodPost, "/v1/override", (*service.Service).Override)
	callSetPlan  = newCall(http.MethodPost, "/v1/plan", (*service.Service).SetPlan)
	callAudit    = newCall(http.MethodGet, "/v1/audit", (*service.Service).Audit)
	callCells    = newCall(http.MethodGet, "/v1/cells", (*service.Service).Cells)
	callVersions = newCall(http.MethodGet, "/v1/versions", (*service.Service).Versions)
	callCatalog  = newCall(http.MethodGet, "/v1/catalog", (*service.Service).Catalog)
	callInspect  = newCall(http.MethodPost, "/v1/inspect",
		func(s *service.Service, ctx context.Context, in *api.InspectRequest) (*api.Status, error) {
			return s.Inspect(ctx, in, unlimited)
		})
	callUsage = newCall(http.MethodGet, "/v1/usage",
		func(s *service.Service, ctx context.Context, q *api.UsageQuery) (*api.Usage, error) {
			u, err := s.Usage(ctx, q, unlimited)
			if err == nil {
				u.Refusals = nil // this process has refused nothing
			}
			return u, err
		})
)

// unlimited accepts answers of any size, since this process serves only itself.
func unlimited(int) error { return nil }

// newCall returns a function that calls the local service, or the path of a server.
func newCall[In, Out any](method, path string, do func(*service.Service, context.Context, *In) (*Out, error)) func(
	context.Context, backend, *In,
) (*Out, error) {
	return func(ctx context.Context, s backend, in *In) (*Out, error) {
		if s.local != nil {
			return do(s.local, ctx, in)
		}
		out := new(Out)
		if in == nil {
			return out, s.call(ctx, method, path, nil, out)
		}
		return out, s.call(ctx, method, path, in, out)
	}
}

func explainLimit(ctx context.Context, s backend, name string) (string, error) {
	if s.local != nil {
		c, err := s.names.StoreCatalog()
		if err != nil {
			return "", err
		}
		if _, err := c.Get(name); err != nil {
			return "", err
		}
		d, _ := c.Lookup(name)
		return addNewName(d.Explain(), d.RenamedTo), nil
	}
	c, err := callCatalog(ctx, s, nil)
	if err != nil {
		return "", err
	}
	for i := range c.Limits {
		if l := &c.Limits[i]; l.Name == name || l.RenamedTo == name {
			return addNewName(l.Explain, l.RenamedTo), nil
		}
	}
	return "", fmt.Errorf("%w: %q", headgate.ErrUnknownLimit, name)
}

// addNewName adds to sentences about a limit the name that it was given, if it was renamed.
func addNewName(sentences, name string) string {
	if name == "" {
		return sentences
	}
	return fmt.Sprintf("%s\n%-10s %s", sentences, "renamed to", name)
}

// cellsOf returns the name of the cells of a limit, which overrides and decisions have; an unknown name as it is.
func cellsOf(ctx context.Context, s backend, name string) (string, error) {
	if s.local != nil {
		c, err := s.names.StoreCatalog()
		if err != nil {
			return "", err
		}
		return c.CellsOf(name), nil
	}
	c, err := callCatalog(ctx, s, nil)
	if err != nil {
		return "", err
	}
	for i := range c.Limits {
		if c.Limits[i].RenamedTo == name {
			return c.Limits[i].Name, nil
		}
	}
	return name, nil
}

// serverOf returns the URL of the server to call, or "" for a store. A flag that names a store overrides an environment
// variable that names a server.
func serverOf(cmd *cobra.Command) (string, error) {
	if _, isSet := flags(cmd)(config.Store.Flag()); isSet {
		return "", nil
	}
	setting, err := new(config.Config).Get(config.Server, flags(cmd))
	return setting.Value, err
}

// withBackend calls do with the store or the server, and adds similar names to its error.
func withBackend(cmd *cobra.Command, do func(backend) error) error {
	return withWrappedBackend(cmd, func(s store.Store) store.Store { return s }, do)
}

// withWrappedBackend calls do with the server, or with the store behind wrappers, and adds similar names to its error.
func withWrappedBackend(cmd *cobra.Command, wrap func(store.Store) store.Store, do func(backend) error) error {
	url, err := serverOf(cmd)
	if err != nil {
		return err
	}
	if url != "" {
		token, err := new(config.Config).Get(config.Token, flags(cmd))
		if err != nil {
			return err
		}
		s := serverBackend(url, token.Value, 15*time.Second)
		return withSuggestion(cmd, s, do(s))
	}
	c, _, s, err := openPlace(cmd)
	if err != nil {
		return err
	}
	s = wrap(s)
	names := newCatalogNames(cmd.Context(), s, c)
	local := newService(s, c, names)
	local.ActAs(changeAuthor("").Author)
	local.OnAdmin(func(a service.AdminAction) {
		if a.Unrecorded != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "headgate: it was done, and is not in the audit: %v\n", a.Unrecorded)
		}
	})
	a := backend{local: local, names: names}
	return cmp.Or(withSuggestion(cmd, a, do(a)), s.Close())
}

// callOrWatch calls do once, or every second with --watch.
func (f *queryFlags) callOrWatch(cmd *cobra.Command, do func(s backend, w io.Writer) error) error {
	return withBackend(cmd, func(s backend) error {
		if !f.watch {
			return do(s, cmd.OutOrStdout())
		}
		return repeat(cmd, time.Second, 0, func(width, _ int) ([]string, error) {
			var b bytes.Buffer
			err := do(s, &b)
			return cutLines(strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n"), width), err
		})
	})
}

// show prints the answer of query, as JSON or by print.
func show[T any](cmd *cobra.Command, f *queryFlags, query func(backend) (T, error),
	print func(io.Writer, T) error,
) error {
	return f.callOrWatch(cmd, func(s backend, w io.Writer) error {
		answer, err := query(s)
		if err != nil {
			return err
		}
		return f.json.print(w, answer, func(w io.Writer) error { return print(w, answer) })
	})
}

// eachLimit calls do for the limit in the arguments KEY [LIMIT], or else for each limit of the key for which wanted
// returns true. It returns the number of these limits.
func eachLimit(ctx context.Context, s backend, args []string, wanted func(*api.LimitUsage) bool,
	do func(limit string) error,
) (n int, err error) {
	if len(args) > 1 {
		return 1, do(args[1])
	}
	u, err := callUsage(ctx, s, &api.UsageQuery{Key: args[0]})
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

// isUnreadable reports whether an error means that a key of a limit cannot be looked up: the catalog no longer has the
// limit, say, or other keys share the cell.
func isUnreadable(err error) bool {
	return errors.Is(err, headgate.ErrInvalid) || errors.Is(err, headgate.ErrUnknownLimit)
}
