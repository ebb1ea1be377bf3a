package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/server/api"
)

func newWhyCommand() *cobra.Command {
	var a queryFlags
	cmd := &cobra.Command{
		Use:   "why KEY [LIMIT...]",
		Short: "Show what a key has used of its limits, why it is refused, and what to do",
		Long: "Show what a key has used of its limits, why it is refused, and what to do: how much is left and when\n" +
			"there is more, until when and by whom the key is blocked, and which plan or override is in force.\n" +
			"Nothing is charged. Without a LIMIT all are shown that the key has: those of the catalog, or, if\n" +
			"that has none, those that the store knows the key of.\n\n" +
			"A server tells of the last refusals too: of those that it has decided itself, and still remembers.\n" +
			"A store keeps none.",
		SuggestFor:        []string{"usage", "quota", "who"},
		Example:           "  headgate why alice --server http://127.0.0.1:8080\n  headgate why alice login api",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completed(completeKey, completeLimit),
		RunE: func(cmd *cobra.Command, args []string) error {
			return show(cmd, &a, func(s backend) (*api.Usage, error) {
				return askUsage(cmd.Context(), s, &api.UsageQuery{Key: args[0], Limits: args[1:], Authors: true})
			}, func(w io.Writer, u *api.Usage) error { return printUsage(w, u, len(args) > 1) })
		},
	}
	a.flags(cmd)
	a.watchFlag(cmd)
	return cmd
}

// printUsage prints what a key has used; all: also limits that it has used nothing of.
func printUsage(w io.Writer, u *api.Usage, all bool) error {
	var shown []api.LimitUsage
	var unused []string
	for _, l := range u.Limits {
		if all || l.Exists || l.Applied != "" || l.Hint != "" {
			shown = append(shown, l)
		} else {
			unused = append(unused, l.Limit)
		}
	}
	switch {
	case len(u.Limits) == 0:
		fmt.Fprintf(w, "%s has used nothing, and the catalog has no limits\n", key(u.Key))
	case len(shown) == 0:
		fmt.Fprintf(w, "%s has used nothing: %s\n", key(u.Key), few(unused))
	default:
		fmt.Fprintln(w, verdict(u.Key, shown))
		t := newTable(w, "LIMIT", "IN FORCE", "USED", "REMAINING", "RETRY AFTER", "RESET AFTER")
		for i := range shown {
			l := &shown[i]
			rule := l.Rule
			if rule == l.Limit {
				rule = "-"
			}
			t.row(l.Limit, rule, used(&l.Status), left(&l.Status), after(l.RetryAfterMS), after(&l.ResetAfterMS))
		}
		if err := t.Flush(); err != nil {
			return err
		}
		for i := range shown {
			printWhy(w, &shown[i])
		}
		if len(unused) > 0 {
			fmt.Fprintf(w, "not used: %s\n", few(unused))
		}
	}
	return printRefusals(w, u)
}

// verdict says in a sentence whether a key passes now, and what refuses it.
func verdict(k string, limits []api.LimitUsage) string {
	var refused, passes []string
	for i := range limits {
		l := &limits[i]
		switch {
		case l.RetryAfterMS == nil:
			refused = append(refused,
				fmt.Sprintf("%s: %s used, and a cost of 1 can never pass", l.Limit, used(&l.Status)))
		case *l.RetryAfterMS == 0:
			passes = append(passes, l.Limit)
		case l.BlockedUntil != nil:
			refused = append(refused, fmt.Sprintf("%s: blocked, again in %s", l.Limit, span(*l.RetryAfterMS)))
		default:
			refused = append(refused, fmt.Sprintf("%s: %s used, again in %s", l.Limit, used(&l.Status),
				span(*l.RetryAfterMS)))
		}
	}
	if len(refused) == 0 {
		return key(k) + " passes now: " + few(passes)
	}
	sentence := key(k) + " is refused now by " + strings.Join(refused, "; by ")
	switch len(passes) {
	case 0:
	case 1:
		sentence += "; " + passes[0] + " passes"
	default:
		sentence += "; " + few(passes) + " pass"
	}
	return sentence
}

// printWhy prints what there is to know of a limit beside the figures.
func printWhy(w io.Writer, l *api.LimitUsage) {
	line := func(format string, args ...any) { fmt.Fprintf(w, l.Limit+": "+format+"\n", args...) }
	if l.BlockedUntil != nil {
		who := "an operator"
		if l.BlockedBy == api.ByLimit {
			rule := l.Rule // which has blocked the key by itself, as far as that is known
			if rule != l.Limit {
				rule = l.Limit + ", " + rule
			}
			who = "the limit (" + rule + "), or an operator who gave no reason"
		}
		line("blocked until %s by %s%s", instant(*l.BlockedUntil), who, given(l.Reason))
	}
	if l.Applied != "" {
		until, who := "", ""
		if l.AppliedUntil != nil {
			until = " until " + instant(*l.AppliedUntil)
		}
		if l.AppliedBy != "" {
			who = " by " + key(l.AppliedBy)
		}
		line("%s%s%s%s", text(l.Applied), until, who, given(l.AppliedReason))
	}
	if l.Hint != "" {
		line("%s", l.Hint)
	}
}

func printRefusals(w io.Writer, u *api.Usage) error {
	switch {
	case u.Refusals == nil:
		fmt.Fprintln(w, "refusals: a store keeps none; a server (--server) remembers its last ones")
		return nil
	case len(u.Refusals) == 0:
		fmt.Fprintln(w, "refusals: the server remembers none of this key")
		return nil
	}
	t := newTable(w, "REFUSED AT", "LIMIT", "COST", "RETRY AFTER")
	for _, r := range u.Refusals {
		cost := r.Cost.String()
		if r.Keep != "" {
			cost += " keep " + r.Keep
		}
		t.row(instant(r.At), r.Limit, cost, after(r.RetryAfterMS))
	}
	return t.Flush()
}

// used writes what is used, and of how much.
func used(s *api.Status) string {
	if s.Capacity == "" { // nothing fits, or it is not known
		return short(s.Used)
	}
	return short(s.Used) + " of " + short(s.Capacity)
}

// left writes what is left, if that is known.
func left(s *api.Status) string {
	if s.Remaining == "" {
		return "-"
	}
	return short(s.Remaining)
}
