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

// answerer is what answers: the service over a store that this process opens, or a server.
type answerer struct {
	local *service.Service                                                  // nil: a server answers
	names *catalogNames                                                     // with which the service answers
	call  func(ctx context.Context, method, path string, in, out any) error // the server
}

// serverAt answers from a server, over HTTP or gRPC, that has so long for it.
func serverAt(url, token string, within time.Duration) answerer {
	return answerer{call: func(ctx context.Context, method, path string, in, out any) error {
		c, err := client.New(url, &client.Config{Timeout: within, Token: token})
		if err != nil {
			return err
		}
		defer c.Close()
		return c.Call(ctx, method, path, in, out)
	}}
}

// get asks a path of a server.
func get[Out any](ctx context.Context, s answerer, path string, in any) (*Out, error) {
	out := new(Out)
	return out, s.call(ctx, http.MethodGet, path, in, out)
}

// What commands ask. A question that has nothing to say is nil.
var (
	askTake     = asks(http.MethodPost, "/v1/take", (*service.Service).Take)
	askCheck    = asks(http.MethodPost, "/v1/check", (*service.Service).Check)
	askFillUp   = asks(http.MethodPost, "/v1/fill-up", (*service.Service).FillUp)
	askReset    = asks(http.MethodPost, "/v1/reset", (*service.Service).Reset)
	askBlock    = asks(http.MethodPost, "/v1/block", (*service.Service).Block)
	askExplain  = asks(http.MethodPost, "/v1/explain", (*service.Service).Explain)
	askSetLimit = asks(http.MethodPost, "/v1/limit", (*service.Service).SetLimit)
	askRollback = asks(http.MethodPost, "/v1/rollback", (*service.Service).Rollback)
	askOverride = asks(http.MethodPost, "/v1/override", (*service.Service).Override)
	askSetPlan  = asks(http.MethodPost, "/v1/plan", (*service.Service).SetPlan)
	askAudit    = asks(http.MethodGet, "/v1/audit", (*service.Service).Audit)
	askCells    = asks(http.MethodGet, "/v1/cells", (*service.Service).Cells)
	askVersions = asks(http.MethodGet, "/v1/versions", (*service.Service).Versions)
	askLimits   = asks(http.MethodGet, "/v1/limits", (*service.Service).Limits)
	askCatalog  = asks(http.MethodGet, "/v1/catalog", (*service.Service).Catalog)
	askInspect  = asks(http.MethodPost, "/v1/inspect",
		func(s *service.Service, ctx context.Context, in *api.InspectRequest) (*api.Status, error) {
			return s.Inspect(ctx, in, unheld)
		})
	askUsage = asks(http.MethodGet, "/v1/usage",
		func(s *service.Service, ctx context.Context, q *api.UsageQuery) (*api.Usage, error) {
			u, err := s.Usage(ctx, q, unheld)
			if err == nil {
				u.Refusals = nil // this process has refused nothing
			}
			return u, err
		})
)

// unheld holds nothing: this process answers itself alone.
func unheld(int) error { return nil }

// asks returns what asks the service, or a server for a path.
func asks[In, Out any](method, path string, do func(*service.Service, context.Context, *In) (*Out, error)) func(
	context.Context, answerer, *In,
) (*Out, error) {
	return func(ctx context.Context, s answerer, in *In) (*Out, error) {
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

// meaning says what a limit means, in sentences. A server says it in its catalog.
func meaning(ctx context.Context, s answerer, name string) (string, error) {
	if s.local != nil {
		c, err := s.names.Kept()
		if err != nil {
			return "", err
		}
		limit, err := c.Get(name)
		if err != nil {
			return "", err
		}
		return limit.Explain(), nil
	}
	c, err := askCatalog(ctx, s, nil)
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
		s := serverAt(url, token.Value, 15*time.Second)
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
	a := answerer{local: answers, names: names}
	return cmp.Or(near(cmd, a, do(a)), s.Close())
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
	u, err := askUsage(ctx, s, &api.UsageQuery{Key: args[0]})
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
