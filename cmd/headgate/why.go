package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/server/api"
)

func newWhyCommand() *cobra.Command {
	var query queryFlags
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
		ValidArgsFunction: completeArgs(completeKey, completeLimit),
		RunE: func(cmd *cobra.Command, args []string) error {
			return show(cmd, &query, func(s backend) (*api.Usage, error) {
				return callUsage(cmd.Context(), s, &api.UsageQuery{Key: args[0], Limits: args[1:], Authors: true})
			}, func(w io.Writer, u *api.Usage) error { return printUsage(w, u, len(args) > 1) })
		},
	}
	query.addFlags(cmd)
	query.addWatchFlag(cmd)
	return cmd
}

// printUsage prints what a key has used of its limits, and its refusals. With all, unused limits are in the table too.
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
		fmt.Fprintf(w, "%s has used nothing, and the catalog has no limits\n", quoteKey(u.Key))
	case len(shown) == 0:
		fmt.Fprintf(w, "%s has used nothing: %s\n", quoteKey(u.Key), joinNames(unused))
	default:
		fmt.Fprintln(w, summarize(u.Key, shown))
		t := newTable(w, "LIMIT", "IN FORCE", "USED", "REMAINING", "RETRY AFTER", "RESET AFTER")
		for i := range shown {
			l := &shown[i]
			rule := l.Rule
			if rule == l.Limit {
				rule = "-"
			}
			t.row(l.Limit, rule, formatUsed(&l.Status), formatRemaining(&l.Status), formatDelay(l.RetryAfterMS),
				formatDelay(&l.ResetAfterMS))
		}
		if err := t.Flush(); err != nil {
			return err
		}
		for i := range shown {
			printWhy(w, &shown[i])
		}
		if len(unused) > 0 {
			fmt.Fprintf(w, "not used: %s\n", joinNames(unused))
		}
	}
	return printRefusals(w, u)
}

// summarize returns a sentence that says whether a key passes now, and which limits refuse it.
func summarize(key string, limits []api.LimitUsage) string {
	var refused, passes []string
	for i := range limits {
		l := &limits[i]
		switch {
		case l.RetryAfterMS == nil:
			refused = append(refused,
				fmt.Sprintf("%s: %s used, and a cost of 1 can never pass", l.Limit, formatUsed(&l.Status)))
		case *l.RetryAfterMS == 0:
			passes = append(passes, l.Limit)
		case l.BlockedUntil != nil:
			refused = append(refused, fmt.Sprintf("%s: blocked, again in %s", l.Limit, formatMillis(*l.RetryAfterMS)))
		default:
			refused = append(refused, fmt.Sprintf("%s: %s used, again in %s", l.Limit, formatUsed(&l.Status),
				formatMillis(*l.RetryAfterMS)))
		}
	}
	if len(refused) == 0 {
		return quoteKey(key) + " passes now: " + joinNames(passes)
	}
	sentence := quoteKey(key) + " is refused now by " + strings.Join(refused, "; by ")
	switch len(passes) {
	case 0:
	case 1:
		sentence += "; " + passes[0] + " passes"
	default:
		sentence += "; " + joinNames(passes) + " pass"
	}
	return sentence
}

// printWhy prints the block, the plan or override and the hint of a limit.
func printWhy(w io.Writer, l *api.LimitUsage) {
	line := func(format string, args ...any) { fmt.Fprintf(w, l.Limit+": "+format+"\n", args...) }
	if l.BlockedUntil != nil {
		author := "an operator"
		if l.BlockedBy == api.ByLimit {
			rule := l.Rule // perhaps it has blocked the key by itself
			if rule != l.Limit {
				rule = l.Limit + ", " + rule
			}
			author = "the limit (" + rule + "), or an operator who gave no reason"
		}
		line("blocked until %s by %s%s", formatMicros(*l.BlockedUntil), author, reasonSuffix(l.Reason))
	}
	if l.Applied != "" {
		until, author := "", ""
		if l.AppliedUntil != nil {
			until = " until " + formatMicros(*l.AppliedUntil)
		}
		if l.AppliedBy != "" {
			author = " by " + quoteKey(l.AppliedBy)
		}
		line("%s%s%s%s", quoteText(l.Applied), until, author, reasonSuffix(l.AppliedReason))
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
		t.row(formatMicros(r.At), r.Limit, cost, formatDelay(r.RetryAfterMS))
	}
	return t.Flush()
}

// formatUsed formats what is used, and of which capacity.
func formatUsed(s *api.Status) string {
	if s.Capacity == "" { // the capacity is 0 or unknown
		return formatAmount(s.Used)
	}
	return formatAmount(s.Used) + " of " + formatAmount(s.Capacity)
}

// formatRemaining formats what remains, or a dash if that is unknown.
func formatRemaining(s *api.Status) string {
	if s.Remaining == "" {
		return "-"
	}
	return formatAmount(s.Remaining)
}
