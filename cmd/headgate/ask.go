package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/service"
)

// asking are the flags of the commands that ask a store or a server.
type asking struct{ json bool }

func (a *asking) flags(cmd *cobra.Command) {
	addAsked(cmd)
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON")
}

// addAsked gives a command the settings that say whom it asks.
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
	Catalogue(ctx context.Context) (*api.Catalogue, error)
	Meaning(ctx context.Context, limit string) (string, error) // what a limit means, in sentences
	Versions(ctx context.Context, q *api.VersionsQuery) (*api.Versions, error)
	SetLimit(ctx context.Context, r *api.SetLimit) (*api.Changed, error)
	Rollback(ctx context.Context, r *api.Rollback) (*api.Changed, error)
	Override(ctx context.Context, r *api.Override) (*api.Changed, error)
	SetPlan(ctx context.Context, r *api.SetPlan) (*api.Changed, error)
}

// serverOf returns the URL of the server to ask; empty: none. A store that a flag names
// goes before a server that the environment names.
func serverOf(cmd *cobra.Command) (string, error) {
	if _, given := flags(cmd)(config.Store.Flag()); given {
		return "", nil
	}
	said, err := new(config.Config).Get(config.Server, flags(cmd))
	return said.Value, err
}

// ask finds out who answers, and lets do ask it.
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
		return do(&remote{url, token.Value, 15 * time.Second})
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
	return cmp.Or(do(&local{answers, names}), s.Close())
}

// show asks, and prints the answer: as JSON, or for people.
func show[T any](cmd *cobra.Command, asJSON bool, question func(answerer) (T, error),
	print func(io.Writer, T) error,
) error {
	return ask(cmd, func(s answerer) error {
		answer, err := question(s)
		if err == nil && asJSON {
			err = printJSON(cmd.OutOrStdout(), answer)
		} else if err == nil {
			err = print(cmd.OutOrStdout(), answer)
		}
		return err
	})
}

// newTakeCommand returns take, or check.
func newTakeCommand(check bool) *cobra.Command {
	verb, short := "take", "Take from a limit for a key: exit 0 admitted, 1 refused, 2 error"
	if check {
		verb, short = "check", "Ask whether take would admit a cost, and what could pass, without taking"
	}
	var a asking
	var cost, keep, id string
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   verb + " LIMIT KEY",
		Short: short,
		Long:  short + ".\n\n" + notations(),
		Example: "  headgate " + verb + " 'token-bucket 5/1m' alice\n  headgate " + verb +
			" login alice --cost 2.5",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: limitFirst,
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := headgate.ParseCost(cost); err != nil && cost != "" { // before a store is opened
				return err
			}
			if wait != 0 {
				if id != "" {
					return headgate.Invalid("id", "does not go with --wait")
				}
				return a.takeWithin(cmd, args[0], args[1], cost, keep, wait)
			}
			return ask(cmd, func(s answerer) error {
				take := s.Take
				if check {
					take = s.Check
				}
				d, err := take(cmd.Context(), &api.Request{
					Charge: api.Charge{Limit: args[0], Key: args[1], Cost: json.Number(cost), Keep: keep}, ID: id,
				})
				if err != nil {
					return err
				}
				if a.json {
					err = printJSON(cmd.OutOrStdout(), d)
				} else {
					fmt.Fprintln(cmd.OutOrStdout(), sentence(d))
				}
				if err == nil && !d.Allowed {
					err = errRefused
				}
				return err
			})
		},
	}
	a.flags(cmd)
	cmd.Flags().StringVar(&cost, "cost", "1", "what it costs, a decimal")
	cmd.Flags().StringVar(&keep, "keep", "", keepUsage)
	if !check {
		cmd.Flags().DurationVar(&wait, "wait", 0,
			"for how long to wait for a turn at most, such as 30s; only with a store")
		cmd.Flags().StringVar(&id, "id", "", "charge once, however often it is asked under this id within an hour")
	}
	return cmd
}

// keepUsage is what --keep says of itself.
const keepUsage = "headroom: how much has to be free after it, a share such as 10% or an amount"

// takeWithin is take with --wait.
func (a *asking) takeWithin(cmd *cobra.Command, limit, key, cost, keep string, wait time.Duration) error {
	url, err := serverOf(cmd)
	if err != nil {
		return err
	}
	if url != "" {
		return headgate.Invalid("wait", "take does not wait at a server; name a store")
	}
	w, closeStore, err := chargeOf(cmd, limit, key, cost, keep)
	if err != nil {
		return err
	}
	begin := time.Now()
	err = cmp.Or(w.limiter.WaitAtMost(cmd.Context(), wait, w.charge), closeStore())
	denied, refused := errors.AsType[*headgate.DeniedError](err)
	if err != nil && !refused {
		return err
	}
	waited := time.Since(begin)
	switch {
	case a.json:
		said := struct {
			Allowed      bool   `json:"allowed"`
			Limit        string `json:"limit"`
			RetryAfterMS *int64 `json:"retry_after_ms"` // as of take; from now on
			WaitedMS     int64  `json:"waited_ms"`
		}{Allowed: !refused, Limit: w.charge.Limit.Name(), RetryAfterMS: new(int64), WaitedMS: waited.Milliseconds()}
		if refused {
			said.Limit, said.RetryAfterMS = denied.Decision.LimitName, nil // never
			if d := denied.Decision.RetryAfter; d != headgate.Never {
				ms := service.Millis(d)
				said.RetryAfterMS = &ms
			}
		}
		err = printJSON(cmd.OutOrStdout(), said)
	case refused:
		fmt.Fprintf(cmd.OutOrStdout(), "refused  %s  %s\n", denied.Decision.LimitName, denied)
		err = nil
	default:
		fmt.Fprintf(cmd.OutOrStdout(), "allowed  %s  after %s\n", w.charge.Limit.Name(), waited.Round(time.Millisecond))
	}
	if err == nil && refused {
		err = errRefused
	}
	return err
}

// sentence tells a decision.
func sentence(d *api.Decision) string {
	switch {
	case d.Allowed:
		again := ""
		if d.Replayed {
			again = ", as before"
		}
		return fmt.Sprintf("allowed  %s  remaining %s, full again in %s%s", d.Limit, d.Remaining, ms(d.ResetAfterMS),
			again) + because(d)
	case d.RetryAfterMS == nil:
		return fmt.Sprintf("refused  %s  never: the cost exceeds what can pass at once", d.Limit) + because(d)
	}
	return fmt.Sprintf("refused  %s  retry in %s, remaining %s", d.Limit, ms(*d.RetryAfterMS), d.Remaining) + because(d)
}

// because says what was in force in the place of the limit itself.
func because(d *api.Decision) string {
	if d.Applied == "" {
		return ""
	}
	return ", by " + text(d.Applied)
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

func newInspectCommand() *cobra.Command {
	var a asking
	cmd := &cobra.Command{
		Use:               "inspect LIMIT KEY",
		Short:             "Show all about one key of a limit",
		SuggestFor:        []string{"show", "get", "status"},
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: limitFirst,
		RunE: func(cmd *cobra.Command, args []string) error {
			return show(cmd, a.json, func(s answerer) (*api.Status, error) {
				return s.Inspect(cmd.Context(), inspection(args[0], args[1], 0))
			}, printStatus)
		},
	}
	a.flags(cmd)
	return cmd
}

func newResetCommand() *cobra.Command {
	var a asking
	var reason string
	cmd := &cobra.Command{
		Use:               "reset LIMIT KEY",
		Short:             "Forget one key of a limit: its level and its block",
		SuggestFor:        []string{"forget", "clear", "delete"},
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: limitFirst,
		RunE: func(cmd *cobra.Command, args []string) error {
			return show(cmd, a.json, func(s answerer) (*api.Reset, error) {
				return s.Reset(cmd.Context(), &api.ResetRequest{
					Subject: api.Subject{Limit: args[0], Key: args[1]}, Reason: reason,
				})
			}, func(w io.Writer, r *api.Reset) error {
				done := "nothing to reset"
				if r.Existed {
					done = "reset"
				}
				_, err := fmt.Fprintf(w, "%s  %s  %s\n", done, args[0], key(args[1]))
				return err
			})
		},
	}
	a.flags(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "`text` for the log of admin actions of the server")
	return cmd
}

func newBlockCommand() *cobra.Command {
	var a asking
	var period, reason string
	cmd := &cobra.Command{
		Use:               "block LIMIT KEY --for PERIOD",
		Short:             "Refuse everything of one key for a while; --for 0 lifts the block",
		SuggestFor:        []string{"ban", "deny"},
		Example:           "  headgate block login mallory --for 15m --reason 'password guessing'",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: limitFirst,
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd, func(s answerer) error {
				st, err := s.Block(cmd.Context(), &api.Block{
					Subject: api.Subject{Limit: args[0], Key: args[1]},
					For:     period, Reason: reason,
				})
				switch {
				case err != nil:
					return err
				case a.json:
					return printJSON(cmd.OutOrStdout(), st)
				case st.BlockedUntil == nil:
					return printLifted(cmd, s, st)
				default:
					fmt.Fprintf(cmd.OutOrStdout(), "blocked until %s  %s  %s\n", instant(*st.BlockedUntil), st.Limit,
						key(st.Key))
				}
				return nil
			})
		},
	}
	a.flags(cmd)
	cmd.Flags().StringVar(&period, "for", "", "for how long, such as 15m; 0 lifts the block")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for people who look")
	_ = cmd.MarkFlagRequired("for")
	return cmd
}

// printLifted says that a key is not blocked, and what refuses it all the same.
func printLifted(cmd *cobra.Command, s answerer, st *api.Status) error {
	w := cmd.OutOrStdout()
	fmt.Fprintf(w, "not blocked  %s  %s\n", st.Limit, key(st.Key))
	u, err := s.Usage(cmd.Context(), &service.UsageQuery{Key: st.Key, Limits: []string{st.Limit}})
	if err != nil || len(u.Limits) == 0 {
		if unaskable(err) {
			return nil // such as the cell that new keys share
		}
		return err
	}
	l := &u.Limits[0]
	switch {
	case l.RetryAfterMS == nil:
		fmt.Fprintf(w, "but a cost of 1 can never pass: %s\n", l.Rule)
	case *l.RetryAfterMS > 0:
		fmt.Fprintf(w, "but %s of %s are used: it is refused for %s; reset forgets it\n", l.Used, capacity(l),
			ms(*l.RetryAfterMS))
	default:
		return nil
	}
	if l.Applied != "" {
		fmt.Fprintf(w, "in force is %s\n", text(l.Applied))
	}
	return nil
}

func printJSON(w io.Writer, v any) error { return json.NewEncoder(w).Encode(v) }
