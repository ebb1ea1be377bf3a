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

// ofAllLimits explains KEY [LIMIT].
const ofAllLimits = "Without a LIMIT it is done for each that the key has: those of the catalog, or, if that has\n" +
	"none, those that the store knows the key of."

// exists reports whether a key has used a limit.
func exists(l *api.LimitUsage) bool { return l.Exists }

func newInspectCommand() *cobra.Command {
	var a queryFlags
	cmd := &cobra.Command{
		Use:   "inspect KEY [LIMIT]",
		Short: "Show all about a key of one limit or of all",
		Long: "Show all about a key of one limit or of all that it has used, with its attempts.\n" +
			"Nothing is charged.",
		SuggestFor:        []string{"show", "get", "status", "describe"},
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: completed(completeKey, completeLimit),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.look(cmd, func(s backend, w io.Writer) error {
				n := 0
				_, err := eachLimit(cmd.Context(), s, args, exists, func(limit string) error {
					st, err := askInspect(cmd.Context(), s, inspection(limit, args[0], 0))
					if err != nil {
						return err
					}
					if n++; n > 1 && !bool(a.json) {
						fmt.Fprintln(w)
					}
					return a.json.print(w, st, func(w io.Writer) error { return printStatus(w, st) })
				})
				if err == nil && n == 0 {
					_, err = fmt.Fprintf(w, "%s has used nothing\n", key(args[0]))
				}
				return err
			})
		},
	}
	a.flags(cmd)
	a.watchFlag(cmd)
	return cmd
}

func printStatus(w io.Writer, s *api.Status) error {
	t := newTable(w)
	t.row("limit", s.Limit)
	t.row("key", key(s.Key))
	if s.Rule != "" && s.Rule != s.Limit {
		t.row("in force", s.Rule+instead(s.Applied))
	}
	if !s.Exists {
		t.row("used", "0 of "+short(s.Capacity)+"; never used, reset, or used long ago")
		return t.Flush()
	}
	t.row("used", used(s))
	if s.Remaining != "" {
		t.row("remaining", left(s))
	}
	if s.ResetAt != nil && *s.ResetAt > s.At {
		t.row("reset at", instant(*s.ResetAt)+", in "+between(s.At, *s.ResetAt))
	}
	if s.BlockedUntil != nil {
		t.row("blocked", "until "+instant(*s.BlockedUntil)+", "+between(s.At, *s.BlockedUntil)+" more")
		if s.Reason != "" {
			t.row("reason", key(s.Reason))
		}
	}
	for _, a := range s.History {
		t.row("attempt", fmt.Sprintf("%s  %s  cost %s  #%d", instant(a.At), answerOf(a.Allowed), a.Cost, a.Number))
	}
	return t.Flush()
}

// between writes how long it is from one time of a store to another.
func between(from, to int64) string { return service.Span(time.Duration(to-from) * time.Microsecond) }

func newResetCommand() *cobra.Command {
	var a queryFlags
	var reason string
	cmd := &cobra.Command{
		Use:        "reset KEY [LIMIT]",
		Short:      "Forget a key of one limit or of all: its level and its block",
		Long:       "Forget a key of one limit or of all: its level and its block. " + ofAllLimits,
		SuggestFor: []string{"forget", "clear", "delete"},
		Example: "  headgate reset mallory login --reason 'it was our own monitoring'\n" +
			"  headgate reset mallory",
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: completed(completeKey, completeLimit),
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd, func(s backend) error {
				w := cmd.OutOrStdout()
				n, err := eachLimit(cmd.Context(), s, args, exists, func(limit string) error {
					r, err := askReset(cmd.Context(), s, &api.ResetRequest{
						Subject: api.Subject{Limit: limit, Key: args[0]}, Reason: reason,
					})
					if err != nil {
						return err
					}
					return a.json.print(w, r, func(w io.Writer) error {
						done := "nothing to reset"
						if r.Existed {
							done = "reset"
						}
						_, err := fmt.Fprintf(w, "%s  %s  %s\n", done, limit, key(args[0]))
						return err
					})
				})
				if err == nil && n == 0 && !bool(a.json) {
					_, err = fmt.Fprintf(w, "nothing to reset  %s\n", key(args[0]))
				}
				return err
			})
		},
	}
	a.flags(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "`why`, for the audit")
	return cmd
}

func newRefundCommand() *cobra.Command {
	var a queryFlags
	var reason string
	cmd := &cobra.Command{
		Use:   "refund KEY LIMIT COST",
		Short: "Give back what is in use of a key, up to a cost",
		Long: "Give back what is in use of a key, up to a cost. What was charged under an id is settled or\n" +
			"cancelled by that. A sliding log and a concurrency limit give back single charges only.",
		SuggestFor:        []string{"return", "credit", "give-back"},
		Example:           "  headgate refund acme tokens 500 --reason 'the answer was cut off'",
		Args:              cobra.ExactArgs(3),
		ValidArgsFunction: completed(completeKey, completeLimit),
		RunE: func(cmd *cobra.Command, args []string) error {
			cost, err := headgate.ParseCost(args[2])
			if err != nil {
				return service.InField("cost", err)
			}
			return ask(cmd, func(s backend) error {
				r, err := askRefund(cmd.Context(), s, &api.Refund{
					Subject: api.Subject{Limit: args[1], Key: args[0]}, Cost: json.Number(cost.String()),
					Reason: reason,
				})
				if err != nil {
					return err
				}
				return a.json.print(cmd.OutOrStdout(), r, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "gave back %s of %s  %s  %s\n", r.Returned, cost, args[1], key(args[0]))
					return err
				})
			})
		},
	}
	a.flags(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "`why`, for the audit")
	return cmd
}

func newBlockCommand() *cobra.Command {
	var a queryFlags
	in := api.Block{}
	cmd := &cobra.Command{
		Use:   "block KEY [LIMIT] --for PERIOD",
		Short: "Refuse everything of a key for a while, of one limit or of all; --for 0 lifts the block",
		Long: "Refuse everything of a key for a while; --for 0 lifts the block. What it has used stays.\n" +
			ofAllLimits + "\nLimits that are made later do not know of it.",
		SuggestFor: []string{"ban", "deny", "unblock"},
		Example: "  headgate block mallory --for 15m --reason 'password guessing'\n" +
			"  headgate block mallory login --for 0",
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: completed(completeKey, completeLimit),
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd, func(s backend) error {
				wanted := func(*api.LimitUsage) bool { return true }
				if in.For == "0" {
					wanted = func(l *api.LimitUsage) bool { return l.BlockedUntil != nil }
				}
				n, err := eachLimit(cmd.Context(), s, args, wanted, func(limit string) error {
					in.Subject = api.Subject{Limit: limit, Key: args[0]}
					st, err := askBlock(cmd.Context(), s, &in)
					if err != nil {
						return err
					}
					return a.json.print(cmd.OutOrStdout(), st, func(w io.Writer) error {
						if st.BlockedUntil == nil {
							return printLifted(cmd, s, st)
						}
						_, err := fmt.Fprintf(w, "blocked until %s  %s  %s\n", instant(*st.BlockedUntil), st.Limit,
							key(st.Key))
						return err
					})
				})
				switch {
				case err != nil || n > 0:
					return err
				case in.For == "0":
					return headgate.Invalid("key", "%s is not blocked", key(args[0]))
				}
				return headgate.Invalid("limit", "is missing: the catalog has none, and %s has used nothing",
					key(args[0]))
			})
		},
	}
	a.flags(cmd)
	cmd.Flags().StringVar(&in.For, "for", "", "for how long, such as `15m`; 0 lifts the block")
	cmd.Flags().StringVar(&in.Reason, "reason", "", "`why`, for people who look")
	_ = cmd.MarkFlagRequired("for")
	return cmd
}

// printLifted says that a key is not blocked, and what refuses it all the same.
func printLifted(cmd *cobra.Command, s backend, st *api.Status) error {
	w := cmd.OutOrStdout()
	fmt.Fprintf(w, "not blocked  %s  %s\n", st.Limit, key(st.Key))
	u, err := askUsage(cmd.Context(), s, &api.UsageQuery{Key: st.Key, Limits: []string{st.Limit}})
	if err != nil || len(u.Limits) == 0 {
		if unreadable(err) {
			return nil // such as the cell that new keys share
		}
		return err
	}
	l := &u.Limits[0]
	switch {
	case l.RetryAfterMS == nil:
		fmt.Fprintf(w, "but a cost of 1 can never pass: %s\n", l.Rule)
	case *l.RetryAfterMS > 0:
		fmt.Fprintf(w, "but %s are used: it is refused for %s; reset forgets it\n", used(&l.Status),
			span(*l.RetryAfterMS))
	default:
		return nil
	}
	if l.Applied != "" {
		fmt.Fprintf(w, "in force is %s\n", text(l.Applied))
	}
	return nil
}

func newHistoryCommand() *cobra.Command {
	var a queryFlags
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
		ValidArgsFunction: completed(completeKey, completeLimit),
		RunE: func(cmd *cobra.Command, args []string) error {
			young, err := youngest(since, max)
			if err != nil {
				return err
			}
			return ask(cmd, func(s backend) error {
				var none string
				rows := []attemptLine{}
				_, err := eachLimit(cmd.Context(), s, args, exists, func(limit string) error {
					st, err := askInspect(cmd.Context(), s, inspection(limit, args[0], max))
					if err != nil {
						return err
					}
					list := attempts(st, young)
					if len(list) == max { // all of them are young
						fmt.Fprintf(cmd.ErrOrStderr(), "there may be more of %s: the newest %d are shown\n", limit, max)
					}
					for _, one := range list {
						rows = append(rows, attemptLine{limit, args[0], one})
					}
					if len(args) > 1 {
						none = whyNone(st)
					}
					return nil
				})
				if err != nil {
					return err
				}
				slices.SortStableFunc(rows, func(a, b attemptLine) int { return int(b.At - a.At) })
				return a.json.print(cmd.OutOrStdout(), rows, func(w io.Writer) error {
					if len(rows) == 0 {
						_, err := fmt.Fprintf(w, "no attempts of %s are known%s\n", key(args[0]), none)
						return err
					}
					t := newTable(w, "AT", "LIMIT", "ANSWER", "COST", "NUMBER")
					for _, one := range rows {
						t.row(instant(one.At), one.Limit, answerOf(one.Allowed), one.Cost.String(),
							fmt.Sprintf("#%d", one.Number))
					}
					return t.Flush()
				})
			})
		},
	}
	a.flags(cmd)
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

// inspection asks about a key, with at most so many attempts, or as many as are usual if that is 0.
func inspection(limit, key string, attempts int) *api.InspectRequest {
	return &api.InspectRequest{Subject: api.Subject{Limit: limit, Key: key}, Attempts: attempts}
}

// youngest checks --since and --max of attempts, and returns how old these may be; 0: of any age.
func youngest(since string, max int) (young time.Duration, err error) {
	switch {
	case max < 1 || max > api.MaxAttempts:
		return 0, headgate.Invalid("max", "%d is not a number from 1 to %d", max, api.MaxAttempts)
	case since == "":
		return 0, nil
	}
	if young, err = headgate.ParsePeriod(since); err != nil {
		return 0, headgate.Invalid("since", "%.40q is not a length of time such as 15m", since)
	}
	return young, nil
}

// attempts returns the attempts of a key that are at most young old; 0: all.
func attempts(st *api.Status, young time.Duration) []api.Attempt {
	list := make([]api.Attempt, 0, len(st.History))
	for _, a := range st.History {
		if young == 0 || a.At >= st.At-young.Microseconds() {
			list = append(list, a)
		}
	}
	return list
}

// answerOf writes what was decided.
func answerOf(allowed bool) string {
	if allowed {
		return "allowed"
	}
	return "refused"
}

// whyNone returns why there are no attempts, where that is due to the limit.
func whyNone(st *api.Status) string {
	limit, err := headgate.Parse(st.Rule)
	if err != nil || limit.Params().History > 0 || len(st.History) > 0 {
		return ""
	}
	return ": " + st.Rule + " keeps no history; sliding-log AMOUNT/PERIOD history PERIOD does"
}
