package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/service"
)

func newWhyCommand() *cobra.Command {
	var a asking
	cmd := &cobra.Command{
		Use:   "why KEY [LIMIT...]",
		Short: "Show what a key has used of its limits, why it is refused, and what to do",
		Long: "Show what a key has used of its limits, why it is refused, and what to do: how much is left and when\n" +
			"there is more, until when and by whom the key is blocked, and which plan or override is in force.\n" +
			"Nothing is charged. Without a LIMIT all are shown that the key has: those of the catalogue, or, if\n" +
			"that has none, those that the store knows the key of.\n\n" +
			"A server tells of the last refusals too: of those that it has decided itself, and still remembers.\n" +
			"A store keeps none.",
		SuggestFor:        []string{"usage", "quota", "who"},
		Example:           "  headgate why alice --server http://127.0.0.1:8080\n  headgate why alice login api",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: limitsAfterKey,
		RunE: func(cmd *cobra.Command, args []string) error {
			return show(cmd, a.json, func(s answerer) (*api.Usage, error) {
				return s.Usage(cmd.Context(), &service.UsageQuery{Key: args[0], Limits: args[1:], Authors: true})
			}, func(w io.Writer, u *api.Usage) error { return printUsage(w, u, len(args) > 1) })
		},
	}
	a.flags(cmd)
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
	if len(shown) > 0 {
		t := newTable(w, "LIMIT\tIN FORCE\tUSED\tREMAINING\tRETRY AFTER\tRESET AFTER")
		for i := range shown {
			l := &shown[i]
			rule := l.Rule
			if rule == l.Limit {
				rule = "-"
			}
			fmt.Fprintf(t, "%s\t%s\t%s of %s\t%s\t%s\t%s\n", l.Limit, rule, l.Used, capacity(l), l.Remaining,
				after(l.RetryAfterMS), ms(l.ResetAfterMS))
		}
		if err := t.Flush(); err != nil {
			return err
		}
		for i := range shown {
			printWhy(w, &shown[i])
		}
	}
	switch {
	case len(u.Limits) == 0:
		fmt.Fprintf(w, "%s has used nothing, and the catalogue has no limits\n", key(u.Key))
	case len(shown) == 0:
		fmt.Fprintf(w, "%s has used nothing: %s\n", key(u.Key), few(unused))
	case len(unused) > 0:
		fmt.Fprintf(w, "not used: %s\n", few(unused))
	}
	return printRefusals(w, u)
}

// printWhy prints what there is to know of a limit beside the figures.
func printWhy(w io.Writer, l *api.LimitUsage) {
	line := func(format string, args ...any) { fmt.Fprintf(w, l.Limit+": "+format+"\n", args...) }
	if l.BlockedUntil != nil {
		who := "an operator"
		if l.BlockedBy == api.ByLimit {
			who = byLimit(l)
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

// byLimit says which limit has blocked a key by itself, as far as that is known.
func byLimit(l *api.LimitUsage) string {
	rule := l.Rule
	if rule != l.Limit {
		rule = l.Limit + ", " + rule
	}
	return "the limit (" + rule + "), or an operator who gave no reason"
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
	t := newTable(w, "REFUSED AT\tLIMIT\tCOST\tRETRY AFTER")
	for _, r := range u.Refusals {
		cost := r.Cost.String()
		if r.Keep != "" {
			cost += " keep " + r.Keep
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", instant(r.At), r.Limit, cost, after(r.RetryAfterMS))
	}
	return t.Flush()
}

// given writes a reason, if there is one.
func given(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + key(reason)
}

// after writes a retry-after.
func after(n *int64) string {
	if n == nil {
		return "never"
	}
	return ms(*n).String()
}

// capacity writes the capacity, which is absent where nothing fits.
func capacity(l *api.LimitUsage) string {
	if l.Capacity == "" {
		return "0"
	}
	return l.Capacity.String()
}

// namesShown is how many limits that were not used are named.
const namesShown = 10

// few names some limits, and says how many more there are.
func few(names []string) string {
	if more := len(names) - namesShown; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:namesShown], ", "), more)
	}
	return strings.Join(names, ", ")
}
