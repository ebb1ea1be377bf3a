package main

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
)

type listFlags struct {
	queryFlags
	keyQuery
	sort, after string
	max         int
}

func newListCommand() *cobra.Command {
	var list listFlags
	cmd := &cobra.Command{
		Use:   "list [LIMIT]",
		Short: "List the keys of one limit or of all, with what is in use now",
		Long: "List the keys of one limit or of all: what they use now, how much is left, and when a cost of 1 can\n" +
			"pass. Nothing is charged.\n\n" +
			"The order is that of limits and keys, or that of --sort, the largest first, which reads all keys.\n" +
			"With --max, a list that is longer ends with the --after of its next page.\n\n" +
			"The figures are those of the limit. Of a key that is refused, and of no other, they are those of the\n" +
			"plan or override that the key has; headgate why shows these for every key.",
		SuggestFor: []string{"ls", "keys", "cells", "levels", "get"},
		Example: "  headgate list login --refusing --sort retry\n  headgate list --sort percent -n 20\n" +
			"  headgate list api --prefix 10.0. -o json",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeArgs(completeLimit),
		RunE: func(cmd *cobra.Command, args []string) error {
			list.setLimit(args)
			return list.callOrWatch(cmd, func(s backend, w io.Writer) error { return list.run(cmd, s, w) })
		},
	}
	list.queryFlags.addFlags(cmd)
	list.addWatchFlag(cmd)
	list.keyQuery.addFlags(cmd)
	cmd.Flags().StringVar(&list.sort, "sort", "", "the `order`: used, percent, key or retry")
	cmd.Flags().IntVarP(&list.max, "max", "n", 0, "list at most this `number` of keys; 0: all")
	cmd.Flags().StringVar(&list.after, "after", "",
		"go on after the page that ended with this `place`; not with --sort")
	cmd.MarkFlagsMutuallyExclusive("sort", "after")
	_ = cmd.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions([]string{"used", "percent", "key", "retry"},
		cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (l *listFlags) run(cmd *cobra.Command, s backend, w io.Writer) error {
	if l.max < 0 {
		return headgate.Invalid("max", "is %d; it must not be below 0", l.max)
	}
	list := []*keyUse{}
	next, total := "", 0
	if l.sort != "" {
		if keyOrders[l.sort] == nil || l.sort == "top" {
			return headgate.Invalid("sort", "%.40q is no order; write used, percent, key or retry", l.sort)
		}
		sorted, count, err := l.sortedKeys(cmd.Context(), s, l.sort, l.max)
		if err != nil {
			return err
		}
		list, total = append(list, sorted...), count
	} else {
		after, err := parseCursor(l.after)
		if err != nil {
			return err
		}
		page, more, err := l.storedKeys(cmd.Context(), s, after, l.max)
		if err != nil {
			return err
		}
		if list = append(list, page...); more && len(list) > 0 {
			next = formatCursor(list[len(list)-1])
		}
	}
	err := l.json.print(w, struct {
		Cells []*keyUse `json:"cells"`
		Next  string    `json:"next,omitempty"`
	}{list, next}, func(w io.Writer) error { return printList(w, list) })
	switch {
	case err != nil || bool(l.json):
	case next != "":
		fmt.Fprintf(cmd.ErrOrStderr(), "there are more: --after %s\n", next)
	case total > len(list):
		fmt.Fprintf(cmd.ErrOrStderr(), "%d of %d keys are listed\n", len(list), total)
	}
	return err
}

func printList(w io.Writer, list []*keyUse) error {
	t := newTable(w, "LIMIT", "KEY", "USED", "%", "REMAINING", "RETRY AFTER", "RESET AT", "BLOCKED UNTIL", "REASON")
	for _, u := range list {
		at := func(us *int64) string {
			if us == nil || *us <= u.At { // the time is past
				return "-"
			}
			return formatMicros(*us)
		}
		reason := quoteText(u.Reason)
		if u.Reason == "" && u.BlockedBy == api.ByLimit {
			reason = "by the limit " + u.Limit + ", or by an operator who gave no reason"
		}
		t.row(u.Limit, quoteKey(u.Key), formatUsed(&u.Status), u.formatPercent(), formatRemaining(&u.Status),
			u.formatRetry(), at(u.ResetAt), at(u.BlockedUntil), reason)
	}
	return t.Flush()
}

func (u *keyUse) formatPercent() string {
	if u.Percent == nil {
		return "-"
	}
	return strconv.FormatFloat(*u.Percent, 'f', 0, 64)
}

// formatRetry formats when a cost of 1 can pass.
func (u *keyUse) formatRetry() string {
	if u.RetryAfterMS == nil && !u.neverPasses { // unknown
		return "-"
	}
	return formatDelay(u.RetryAfterMS)
}
