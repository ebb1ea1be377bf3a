package main

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/law"
)

type exportFlags struct {
	keyQuery
	format, since string
	history       bool
	max           int
}

func newExportCommand() *cobra.Command {
	var export exportFlags
	cmd := &cobra.Command{
		Use:   "export [LIMIT]",
		Short: "Write the keys of one limit or of all, or their attempts, as CSV or lines of JSON",
		Long: "Write the keys of one limit or of all, or their attempts, as CSV or lines of JSON, in the order of\n" +
			"limits and keys. They are written as they are read, a page at a time, and as they are: what opens\n" +
			"CSV may take a key that begins with = for a formula. Times are microseconds since 1970, UTC.\n" +
			"Nothing is charged.\n\n" +
			"--history writes the attempts of each key, newest first, of limits that keep them.",
		SuggestFor: []string{"dump"},
		Example: "  headgate export >keys.csv\n  headgate export login --refusing -o jsonl\n" +
			"  headgate export login --history --since 1h",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeArgs(completeLimit),
		RunE: func(cmd *cobra.Command, args []string) error {
			export.setLimit(args)
			return export.run(cmd)
		},
	}
	addPlaceSettings(cmd)
	export.addFlags(cmd)
	cmd.Flags().StringVarP(&export.format, "output", "o", "csv", "`csv|jsonl`: the format")
	cmd.Flags().BoolVar(&export.history, "history", false, "write the attempts of the keys")
	cmd.Flags().IntVarP(&export.max, "max", "n", api.MaxAttempts,
		"with --history: at most this `number` of attempts a key, up to 10000")
	cmd.Flags().StringVar(&export.since, "since", "", "with --history: only attempts of the last `PERIOD`, such as 15m")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"csv", "jsonl"},
		cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (e *exportFlags) run(cmd *cobra.Command) error {
	switch {
	case e.format != "csv" && e.format != "jsonl":
		return headgate.Invalid("output", "%.40q is not known; write csv or jsonl", e.format)
	case e.since != "" && !e.history:
		return headgate.Invalid("since", "goes with --history")
	case cmd.Flags().Changed("max") && !e.history:
		return headgate.Invalid("max", "goes with --history")
	}
	maxAge, err := checkAttemptFlags(e.since, e.max)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	err = withBackend(cmd, func(s backend) error {
		if e.history {
			return e.writeAttempts(cmd, s, newRowWriter(out, e.format, attemptColumns), maxAge)
		}
		return e.writeKeys(cmd, s, newRowWriter(out, e.format, keyColumns))
	})
	return cmp.Or(err, out.Flush())
}

// writeKeys writes the selected keys, with the figures of what is in force: a plan or an override may drain more slowly
// than the limit, so where there are any, each key is looked up. Marks of what was told are left out: import could not
// charge them.
func (e *exportFlags) writeKeys(cmd *cobra.Command, s backend, write func(any, []string) error) error {
	ctx := cmd.Context()
	load := (*keyUse).loadRetry
	if replaced, err := hasReplacements(cmd, s); err != nil {
		return err
	} else if replaced {
		load = (*keyUse).loadInForce
	}
	return e.eachKey(ctx, s, law.Cell{}, func(u *keyUse) (bool, error) {
		if u.Limit == headgate.MarkLimit {
			return true, nil
		}
		if err := load(u, ctx, s); err != nil || e.refusing && !u.Refused {
			return true, err
		}
		return true, write(u, []string{
			u.Limit, u.Key, u.Used.String(), u.Capacity.String(), u.Remaining.String(), strconv.FormatBool(u.Refused),
			formatNumber(u.RetryAfterMS), strconv.FormatInt(u.At, 10), formatNumber(u.ResetAt),
			formatNumber(u.BlockedUntil), u.BlockedBy, u.Reason,
		})
	})
}

// hasReplacements reports whether there are plans or overrides.
func hasReplacements(cmd *cobra.Command, s backend) (bool, error) {
	c, err := callCatalog(cmd.Context(), s, nil)
	if errors.Is(err, headgate.ErrUnsupported) {
		return false, nil
	}
	if err != nil || len(c.Plans) > 0 {
		return true, err
	}
	lines, err := (&overrideFlags{maxLines: 1}).find(cmd, s, nil)
	return len(lines) > 0, err
}

var keyColumns = []string{
	"limit", "key", "used", "capacity", "remaining", "refused", "retry_after_ms", "at", "reset_at",
	"blocked_until", "blocked_by", "reason",
}

// writeAttempts writes the newest attempts of each key, up to e.max, that are at most maxAge old; 0: of any age.
func (e *exportFlags) writeAttempts(cmd *cobra.Command, s backend, write func(any, []string) error,
	maxAge time.Duration,
) error {
	ctx := cmd.Context()
	return e.eachKey(ctx, s, law.Cell{}, func(u *keyUse) (bool, error) {
		st, err := callInspect(ctx, s, newInspectRequest(u.Limit, u.Key, e.max))
		if isUnreadable(err) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		list := recentAttempts(st, maxAge)
		if len(list) == e.max {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s of %s may have more attempts: the newest %d are written\n",
				quoteKey(u.Key), u.Limit, e.max)
		}
		for _, a := range list {
			err := write(attemptLine{u.Limit, u.Key, a}, []string{
				u.Limit, u.Key, strconv.FormatInt(a.Number, 10), strconv.FormatInt(a.At, 10), a.Cost.String(),
				strconv.FormatBool(a.Allowed),
			})
			if err != nil {
				return false, err
			}
		}
		return true, nil
	})
}

var attemptColumns = []string{"limit", "key", "number", "at", "cost", "allowed"}

// newRowWriter returns a function that writes one row: the object as a line of JSON, or the fields as CSV. For CSV
// newRowWriter itself writes the columns.
func newRowWriter(w io.Writer, format string, columns []string) func(object any, fields []string) error {
	if format == "jsonl" {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		return func(object any, _ []string) error { return e.Encode(object) }
	}
	c := csv.NewWriter(w)
	_ = c.Write(columns) // an error comes back with the first row, or when the buffer is flushed
	c.Flush()
	return func(_ any, fields []string) error {
		if err := c.Write(fields); err != nil {
			return err
		}
		c.Flush()
		return c.Error()
	}
}

// formatNumber formats a number exactly, and nil as nothing.
func formatNumber(n *int64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(*n, 10)
}
