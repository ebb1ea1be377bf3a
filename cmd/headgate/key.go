package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/service"
)

// aboutAllLimits explains KEY [LIMIT].
const aboutAllLimits = "Without a LIMIT it is done for each that the key has: those of the catalog, or, if that has\n" +
	"none, those that the store knows the key of."

func hasUsed(l *api.LimitUsage) bool { return l.Exists }

func newInspectCommand() *cobra.Command {
	var query queryFlags
	cmd := &cobra.Command{
		Use:   "inspect KEY [LIMIT]",
		Short: "Show all about a key of one limit or of all",
		Long: "Show all about a key of one limit or of all that it has used, with its attempts.\n" +
			"Nothing is charged.",
		SuggestFor:        []string{"show", "get", "status", "describe"},
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: completeArgs(completeKey, completeLimit),
		RunE: func(cmd *cobra.Command, args []string) error {
			return query.callOrWatch(cmd, func(s backend, w io.Writer) error {
				n := 0
				_, err := eachLimit(cmd.Context(), s, args, hasUsed, func(limit string) error {
					st, err := callInspect(cmd.Context(), s, newInspectRequest(limit, args[0], 0))
					if err != nil {
						return err
					}
					if n++; n > 1 && !bool(query.json) {
						fmt.Fprintln(w)
					}
					return query.json.print(w, st, func(w io.Writer) error { return printStatus(w, st) })
				})
				if err == nil && n == 0 && !bool(query.json) {
					_, err = fmt.Fprintf(w, "%s has used nothing\n", quoteKey(args[0]))
				}
				return err
			})
		},
	}
	query.addFlags(cmd)
	query.addWatchFlag(cmd)
	return cmd
}

func printStatus(w io.Writer, s *api.Status) error {
	t := newTable(w)
	t.row("limit", s.Limit)
	t.row("key", quoteKey(s.Key))
	if s.Rule != "" && s.Rule != s.Limit {
		t.row("in force", s.Rule+appliedSuffix(s.Applied))
	}
	if !s.Exists {
		t.row("used", "0 of "+formatAmount(s.Capacity)+"; never used, reset, or used long ago")
		return t.Flush()
	}
	t.row("used", formatUsed(s))
	if s.Remaining != "" {
		t.row("remaining", formatRemaining(s))
	}
	if s.ResetAt != nil && *s.ResetAt > s.At {
		t.row("reset at", formatMicros(*s.ResetAt)+", in "+formatSpan(s.At, *s.ResetAt))
	}
	if s.BlockedUntil != nil {
		t.row("blocked", "until "+formatMicros(*s.BlockedUntil)+", "+formatSpan(s.At, *s.BlockedUntil)+" more")
		if s.Reason != "" {
			t.row("reason", quoteKey(s.Reason))
		}
	}
	for _, a := range s.History {
		answer := formatAnswer(a.Allowed)
		t.row("attempt", fmt.Sprintf("%s  %s  cost %s  #%d", formatMicros(a.At), answer, a.Cost, a.Number))
	}
	return t.Flush()
}

func formatSpan(from, to int64) string {
	return service.Span(time.Duration(to-from) * time.Microsecond)
}

func newResetCommand() *cobra.Command {
	var query queryFlags
	var reason string
	cmd := &cobra.Command{
		Use:        "reset KEY [LIMIT]",
		Short:      "Forget a key of one limit or of all: its level and its block",
		Long:       "Forget a key of one limit or of all: its level and its block. " + aboutAllLimits,
		SuggestFor: []string{"forget", "clear", "delete"},
		Example: "  headgate reset mallory login --reason 'it was our own monitoring'\n" +
			"  headgate reset mallory",
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: completeArgs(completeKey, completeLimit),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withBackend(cmd, func(s backend) error {
				w := cmd.OutOrStdout()
				n, err := eachLimit(cmd.Context(), s, args, hasUsed, func(limit string) error {
					r, err := callReset(cmd.Context(), s, &api.ResetRequest{
						Subject: api.Subject{Limit: limit, Key: args[0]}, Reason: reason,
					})
					if err != nil {
						return err
					}
					return query.json.print(w, r, func(w io.Writer) error {
						done := "nothing to reset"
						if r.Existed {
							done = "reset"
						}
						_, err := fmt.Fprintf(w, "%s  %s  %s\n", done, limit, quoteKey(args[0]))
						return err
					})
				})
				if err == nil && n == 0 && !bool(query.json) {
					_, err = fmt.Fprintf(w, "nothing to reset  %s\n", quoteKey(args[0]))
				}
				return err
			})
		},
	}
	query.addFlags(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "`why`, for the audit")
	return cmd
}

func newRefundCommand() *cobra.Command {
	var query queryFlags
	var reason string
	cmd := &cobra.Command{
		Use:   "refund KEY LIMIT COST",
		Short: "Give back what is in use of a key, up to a cost",
		Long: "Give back what is in use of a key, up to a cost. What was charged under an id is settled or\n" +
			"cancelled by that. A sliding log and a concurrency limit give back single charges only.",
		SuggestFor:        []string{"return", "credit", "give-back"},
		Example:           "  headgate refund acme tokens 500 --reason 'the answer was cut off'",
		Args:              cobra.ExactArgs(3),
		ValidArgsFunction: completeArgs(completeKey, completeLimit),
		RunE: func(cmd *cobra.Command, args []string) error {
			cost, err := headgate.ParseCost(args[2])
			if err != nil {
				return service.InField("cost", err)
			}
			return withBackend(cmd, func(s backend) error {
				r, err := callRefund(cmd.Context(), s, &api.Refund{
					Subject: api.Subject{Limit: args[1], Key: args[0]}, Cost: json.Number(cost.String()),
					Reason: reason,
				})
				if err != nil {
					return err
				}
				return query.json.print(cmd.OutOrStdout(), r, func(w io.Writer) error {
					limit, key := args[1], quoteKey(args[0])
					_, err := fmt.Fprintf(w, "gave back %s of %s  %s  %s\n", r.Returned, cost, limit, key)
					return err
				})
			})
		},
	}
	query.addFlags(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "`why`, for the audit")
	return cmd
}

func newBlockCommand() *cobra.Command {
	var query queryFlags
	in := api.Block{}
	cmd := &cobra.Command{
		Use:   "block KEY [LIMIT] --for PERIOD",
		Short: "Refuse everything of a key for a while, of one limit or of all; --for 0 lifts the block",
		Long: "Refuse everything of a key for a while; --for 0 lifts the block. What it has used stays.\n" +
			aboutAllLimits + "\nLimits that are made later do not know of it.",
		SuggestFor: []string{"ban", "deny", "unblock"},
		Example: "  headgate block mallory --for 15m --reason 'password guessing'\n" +
			"  headgate block mallory login --for 0",
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: completeArgs(completeKey, completeLimit),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withBackend(cmd, func(s backend) error {
				wanted := func(*api.LimitUsage) bool { return true }
				if in.For == "0" {
					wanted = func(l *api.LimitUsage) bool { return l.BlockedUntil != nil }
				}
				n, err := eachLimit(cmd.Context(), s, args, wanted, func(limit string) error {
					in.Subject = api.Subject{Limit: limit, Key: args[0]}
					st, err := callBlock(cmd.Context(), s, &in)
					if err != nil {
						return err
					}
					return query.json.print(cmd.OutOrStdout(), st, func(w io.Writer) error {
						if st.BlockedUntil == nil {
							return printLifted(cmd, s, st)
						}
						_, err := fmt.Fprintf(w, "blocked until %s  %s  %s\n", formatMicros(*st.BlockedUntil), st.Limit,
							quoteKey(st.Key))
						return err
					})
				})
				switch {
				case err != nil || n > 0:
					return err
				case in.For == "0":
					return headgate.Invalid("key", "%s is not blocked", quoteKey(args[0]))
				}
				return headgate.Invalid("limit", "is missing: the catalog has none, and %s has used nothing",
					quoteKey(args[0]))
			})
		},
	}
	query.addFlags(cmd)
	cmd.Flags().StringVar(&in.For, "for", "", "for how long, such as `15m`; 0 lifts the block")
	cmd.Flags().StringVar(&in.Reason, "reason", "", "`why`, for people who look")
	_ = cmd.MarkFlagRequired("for")
	return cmd
}

// printLifted prints that a key is not blocked, and what refuses it all the same.
func printLifted(cmd *cobra.Command, s backend, st *api.Status) error {
	w := cmd.OutOrStdout()
	fmt.Fprintf(w, "not blocked  %s  %s\n", st.Limit, quoteKey(st.Key))
	u, err := callUsage(cmd.Context(), s, &api.UsageQuery{Key: st.Key, Limits: []string{st.Limit}})
	if err != nil || len(u.Limits) == 0 {
		if isUnreadable(err) {
			return nil // for example about the cell that new keys share
		}
		return err
	}
	l := &u.Limits[0]
	switch {
	case l.RetryAfterMS == nil:
		fmt.Fprintf(w, "but a cost of 1 can never pass: %s\n", l.Rule)
	case *l.RetryAfterMS > 0:
		fmt.Fprintf(w, "but %s are used: it is refused for %s; reset forgets it\n", formatUsed(&l.Status),
			formatMillis(*l.RetryAfterMS))
	default:
		return nil
	}
	if l.Applied != "" {
		fmt.Fprintf(w, "in force is %s\n", quoteText(l.Applied))
	}
	return nil
}

func newHistoryCommand() *cobra.Command {
	var query queryFlags
	var since string
	var max int
	cmd := &cobra.Command{
		Use:   "history KEY [LIMIT]",
		Short: "Show the newest attempts of a key, of one limit or of all that keep them",
		Long: "Show the newest attempts of a key, the last one first. Nothing is charged.\n\n" +
			"A limit with history, such as sliding-log 5/1m history 1d, keeps all attempts, the refused ones too. A\n" +
			"sliding-log without history keeps what it has admitted and still counts. Other limits keep none.",
		SuggestFor:        []string{"log", "attempts"},
		Example:           "  headgate history alice login --since 1h\n  headgate history alice",
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: completeArgs(completeKey, completeLimit),
		RunE: func(cmd *cobra.Command, args []string) error {
			maxAge, err := checkAttemptFlags(since, max)
			if err != nil {
				return err
			}
			return withBackend(cmd, func(s backend) error {
				var whyNone string
				rows := []attemptLine{}
				_, err := eachLimit(cmd.Context(), s, args, hasUsed, func(limit string) error {
					st, err := callInspect(cmd.Context(), s, newInspectRequest(limit, args[0], max))
					if err != nil {
						return err
					}
					list := recentAttempts(st, maxAge)
					if len(list) == max { // none was left out for its age
						fmt.Fprintf(cmd.ErrOrStderr(), "there may be more of %s: the newest %d are shown\n", limit, max)
					}
					for _, attempt := range list {
						rows = append(rows, attemptLine{limit, args[0], attempt})
					}
					l, err := headgate.Parse(st.Rule)
					if len(args) > 1 && err == nil && l.Params().History == 0 && len(st.History) == 0 {
						whyNone = ": " + st.Rule + " keeps no history; sliding-log AMOUNT/PERIOD history PERIOD does"
					}
					return nil
				})
				if err != nil {
					return err
				}
				slices.SortStableFunc(rows, func(a, b attemptLine) int { return int(b.At - a.At) })
				return query.json.print(cmd.OutOrStdout(), rows, func(w io.Writer) error {
					if len(rows) == 0 {
						_, err := fmt.Fprintf(w, "no attempts of %s are known%s\n", quoteKey(args[0]), whyNone)
						return err
					}
					t := newTable(w, "AT", "LIMIT", "ANSWER", "COST", "NUMBER")
					for _, row := range rows {
						t.row(formatMicros(row.At), row.Limit, formatAnswer(row.Allowed), row.Cost.String(),
							fmt.Sprintf("#%d", row.Number))
					}
					return t.Flush()
				})
			})
		},
	}
	query.addFlags(cmd)
	cmd.Flags().StringVar(&since, "since", "", "only attempts of the last `PERIOD`, such as 15m")
	cmd.Flags().IntVarP(&max, "max", "n", 20, "show at most this `number` of attempts of a limit, up to 10000")
	return cmd
}

// attemptLine is an attempt of a key in history and export.
type attemptLine struct {
	Limit string `json:"limit"`
	Key   string `json:"key"`
	api.Attempt
}

// newInspectRequest returns a request for a key with up to maxAttempts attempts, or the usual number if that is 0.
func newInspectRequest(limit, key string, maxAttempts int) *api.InspectRequest {
	return &api.InspectRequest{Subject: api.Subject{Limit: limit, Key: key}, Attempts: maxAttempts}
}

// checkAttemptFlags checks --since and --max of attempts. It returns the age of --since, or 0 without it.
func checkAttemptFlags(since string, max int) (maxAge time.Duration, err error) {
	switch {
	case max < 1 || max > api.MaxAttempts:
		return 0, headgate.Invalid("max", "%d is not a number from 1 to %d", max, api.MaxAttempts)
	case since == "":
		return 0, nil
	}
	if maxAge, err = headgate.ParsePeriod(since); err != nil {
		return 0, headgate.Invalid("since", "%.40q is not a length of time such as 15m", since)
	}
	return maxAge, nil
}

// recentAttempts returns the attempts of a key that are at most maxAge old, or all of them if maxAge is 0.
func recentAttempts(st *api.Status, maxAge time.Duration) []api.Attempt {
	list := make([]api.Attempt, 0, len(st.History))
	for _, a := range st.History {
		if maxAge == 0 || a.At >= st.At-maxAge.Microseconds() {
			list = append(list, a)
		}
	}
	return list
}

func formatAnswer(allowed bool) string {
	if allowed {
		return "allowed"
	}
	return "refused"
}
