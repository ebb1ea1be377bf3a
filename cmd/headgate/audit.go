package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
)

// maxAuditEntries is how many entries of the audit are listed at most.
const maxAuditEntries = 1000

func newAuditCommand() *cobra.Command {
	var query queryFlags
	var request api.AuditQuery
	cmd := &cobra.Command{
		Use:   "audit [LIMIT]",
		Short: "List what was done by hand, by whom and why: blocks, resets, overrides, changes of limits",
		Long: "List what was done by hand, by whom and why, the newest first, as the store keeps it: all changes of\n" +
			"limits, plans and overrides, and the last 10,000 blocks, resets and refunds.",
		Example:           "  headgate audit --server http://127.0.0.1:8080\n  headgate audit login --key alice",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeArgs(completeLimit),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				request.Limit = args[0]
			}
			request.HasKey = cmd.Flags().Changed("key")
			if request.Max < 1 || request.Max > maxAuditEntries {
				return headgate.Invalid("max", "%d is not a number from 1 to %d", request.Max, maxAuditEntries)
			}
			return show(cmd, &query, func(s backend) (*api.Audit, error) {
				return callAudit(cmd.Context(), s, &request)
			}, printAudit)
		},
	}
	query.addFlags(cmd)
	cmd.Flags().StringVar(&request.Key, "key", "", "only what was done to this `KEY`")
	cmd.Flags().IntVarP(&request.Max, "max", "n", 100, "list at most this `number` of entries, up to 1000")
	return cmd
}

func printAudit(w io.Writer, a *api.Audit) error {
	if len(a.Entries) == 0 {
		_, err := fmt.Fprintln(w, "nothing was done by hand")
		return err
	}
	for i := range a.Entries {
		e := &a.Entries[i]
		line := formatMicros(e.At) + "  " + describeAction(e)
		if e.By != "" {
			line += " by " + quoteText(e.By)
		}
		line += reasonSuffix(e.Reason)
		for _, c := range e.Changes {
			if strings.ContainsFunc(c, func(r rune) bool { return !strconv.IsPrint(r) }) { // keys are quoted already
				c = strconv.Quote(c)
			}
			line += "\n  " + c
		}
		if e.More > 0 {
			line += fmt.Sprintf("\n  and %d more", e.More)
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

// describeAction returns what was done, and to which key, or the version that was made.
func describeAction(e *api.AuditEntry) string {
	if e.Key == nil {
		return fmt.Sprintf("version %d", e.Version)
	}
	done := fmt.Sprintf("%s %s %s", e.Verb, quoteText(e.Limit), quoteKey(*e.Key))
	if e.ForMS > 0 {
		done += " for " + formatMillis(e.ForMS)
	}
	return done
}
