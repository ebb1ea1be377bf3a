package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/law"
)

type topFlags struct {
	keyQuery
	all        bool
	every      time.Duration
	count, max int
}

func newTopCommand() *cobra.Command {
	var options topFlags
	cmd := &cobra.Command{
		Use:   "top [LIMIT]",
		Short: "Show the keys that are refused and those that are nearest to it, again and again",
		Long: "Show the keys that are refused now, and those that are nearest to it, again and again. q or Ctrl-C\n" +
			"ends it. With --count, and where the output is no terminal, one table after the other is written, and stays.\n" +
			"Nothing is charged.\n\n" +
			"A server tells which keys it has refused most in the last five minutes, then which have used most,\n" +
			"with their refusals and a curve of two minutes. That takes as long for ten million keys as for ten.\n" +
			"With --all, with a store, and over gRPC, all keys of the store are read each time, as by headgate list\n" +
			"--sort percent: name a limit where a store has many. A pause is never shorter than the reading before it.",
		Example: "  headgate top --server http://127.0.0.1:8080\n  headgate top login --every 5s\n" +
			"  headgate top --all --count 1 -n 10",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeArgs(completeLimit),
		RunE: func(cmd *cobra.Command, args []string) error {
			options.setLimit(args)
			switch {
			case options.every < 100*time.Millisecond:
				return headgate.Invalid("every", "%s is below 100ms", options.every)
			case options.count < 0:
				return headgate.Invalid("count", "is %d; it must not be below 0", options.count)
			case options.max < 1 || options.max > 10_000:
				return headgate.Invalid("max", "%d is not a number from 1 to 10000", options.max)
			}
			return withBackend(cmd, func(s backend) error { return options.run(cmd, s) })
		},
	}
	addPlaceSettings(cmd)
	options.addFlags(cmd)
	cmd.Flags().BoolVar(&options.all, "all", false,
		"read all keys of the store, and not what a server has decided lately")
	cmd.Flags().DurationVar(&options.every, "every", time.Second, "how long to wait between two tables")
	cmd.Flags().IntVar(&options.count, "count", 0, "end after this `number` of tables; 0: go on")
	cmd.Flags().IntVarP(&options.max, "max", "n", 20,
		"show at most this `number` of keys, and no more than the terminal has lines for")
	return cmd
}

// run prints tables as repeat does.
func (t *topFlags) run(cmd *cobra.Command, s backend) error {
	return repeat(cmd, t.every, t.count, func(width, height int) ([]string, error) {
		maxRows := t.max
		if height > 0 {
			maxRows = min(maxRows, height-3) // the head, names of columns, and a line about a store that is away
		}
		lines, err := t.table(cmd.Context(), s, maxRows, width)
		if s.local == nil && err == nil {
			if me, err := get[api.Me](cmd.Context(), s, "/v1/me", nil); err == nil && me.Away != nil {
				lines = slices.Insert(lines, 0, cutLines([]string{me.Away.Text}, width)...)
			}
		}
		return lines, err
	})
}

// nameWidth bounds the columns of keys and limits on a terminal. Longer names are cut off.
const nameWidth = 28

// topRow is a row of a table: what a key uses now, and, from a server, its refusals and a curve of the last minutes.
type topRow struct {
	*keyUse
	refused, curve string // empty if the rows come from a store
}

// table returns the lines of a table with up to maxRows keys.
func (t *topFlags) table(ctx context.Context, s backend, maxRows, width int) ([]string, error) {
	now := time.Now().Format("15:04:05")
	if s.local == nil && !t.all && !t.blocked && !t.refusing {
		rows, head, err := t.recentRows(ctx, s, maxRows)
		if !errors.Is(err, headgate.ErrUnsupported) {
			return formatTable(now+"  "+head, rows, true, width), err
		}
	}
	list, total, err := t.sortedKeys(ctx, s, "top", maxRows)
	rows, refused := make([]topRow, len(list)), 0
	for i, u := range list {
		rows[i].keyUse = u
		refused += boolToInt(u.Refused)
	}
	head := fmt.Sprintf("%s  keys: %d, refused of those below: %d", now, total, refused)
	return formatTable(head, rows, false, width), err
}

// formatTable returns the lines of one table, cut to width unless that is 0. withRecent adds the columns about the last
// minutes.
func formatTable(head string, rows []topRow, withRecent bool, width int) []string {
	keys, limits, uses := len("KEY"), len("LIMIT"), len("USED")
	for _, r := range rows {
		keys = max(keys, textWidth(quoteKey(r.Key)))
		limits = max(limits, textWidth(quoteKey(r.Limit)))
		uses = max(uses, len(formatUsed(&r.Status)))
	}
	if width > 0 {
		keys, limits = min(keys, nameWidth), min(limits, nameWidth)
	}
	line := func(who, limit, percent, retry, use, refused, curve string) string {
		who, limit = fitText(who, keys), fitText(limit, limits)
		text := fmt.Sprintf("%s  %s  %4s  %-13s  %-*s", who, limit, percent, retry, uses, use)
		if withRecent {
			text += fmt.Sprintf("  %7s  %s", refused, curve)
		}
		return strings.TrimRight(text, " ")
	}
	lines := []string{head, line("KEY", "LIMIT", "%", "RETRY AFTER", "USED", "REFUSED", "2 MINUTES")}
	for _, r := range rows {
		lines = append(lines, line(quoteKey(r.Key), quoteKey(r.Limit), r.formatPercent(), r.formatRetry(),
			formatUsed(&r.Status), r.refused, r.curve))
	}
	return cutLines(lines, width)
}

// maxTrafficKeys is how many keys a server lists at most.
const maxTrafficKeys = 100

// recentRows returns up to maxRows keys from a server's last five minutes: first the keys with the most refusals, then
// the keys that used most. The head has the decisions a second, and a problem of the server.
func (t *topFlags) recentRows(ctx context.Context, s backend, maxRows int) (rows []topRow, head string, err error) {
	const seconds = 10 // over which decisions a second are averaged
	seen := map[law.Cell]bool{}
	for _, by := range []string{api.ByRefused, api.ByUsed} {
		q := &api.TrafficQuery{Limit: t.limit, By: by, Top: maxTrafficKeys, Seconds: seconds}
		if t.prefix == "" {
			q.Top = min(maxRows, maxTrafficKeys)
		}
		answer, err := get[api.Traffic](ctx, s, "/v1/traffic", q)
		if err != nil {
			return nil, "", err
		}
		head = formatRates(answer.Limits, seconds)
		if answer.Problem != nil {
			head += "; " + quoteText(answer.Problem.Title)
		}
		for i := range answer.Keys {
			k := &answer.Keys[i]
			c := law.Cell{Limit: k.Limit, Key: k.Key}
			neverRefused := by == api.ByRefused && toFloat(k.Refused) == 0
			if neverRefused || seen[c] || !strings.HasPrefix(k.Key, t.prefix) || len(rows) == maxRows {
				continue
			}
			seen[c] = true
			rows = append(rows, newTopRow(k))
		}
	}
	return rows, head, nil
}

// formatRates returns the decisions a second of all limits together, for the head of the table.
func formatRates(limits []api.LimitTraffic, seconds int) string {
	var admitted, refused, failed float64
	sum := func(to *float64, counts []uint32) {
		for _, n := range counts {
			*to += float64(n)
		}
	}
	for i := range limits {
		sum(&admitted, limits[i].Admitted)
		sum(&refused, limits[i].Refused)
		sum(&failed, limits[i].Failed)
	}
	s := float64(seconds)
	return fmt.Sprintf("a second: %.1f admitted, %.1f refused, %.1f failed", admitted/s, refused/s, failed/s)
}

// newTopRow returns the row of a key that a server lists.
func newTopRow(k *api.KeyTraffic) topRow {
	u := &keyUse{Status: api.Status{Limit: k.Limit, Key: k.Key, Used: k.Used}}
	if k.Now != nil {
		u = newKeyUse(&k.Now.Status)
		u.RetryAfterMS, u.neverPasses = k.Now.RetryAfterMS, k.Now.RetryAfterMS == nil
		u.Refused = u.neverPasses || *u.RetryAfterMS > 0
	}
	return topRow{keyUse: u, refused: fmt.Sprintf("%.0f", toFloat(k.Refused)), curve: drawCurve(k.Recent)}
}

func toFloat(n json.Number) float64 {
	f, _ := n.Float64() // a server writes valid numbers
	return f
}

// A curve draws each ten seconds as one of curveBars, or as a space for 0. It shows the last curveWidth of them.
const (
	curveBars  = "▁▂▃▄▅▆▇█"
	curveWidth = 12
)

// drawCurve draws the last values of a series. The highest bar stands for the largest of them.
func drawCurve(series []json.Number) string {
	series = series[max(0, len(series)-curveWidth):]
	largest := 0.0
	for _, n := range series {
		largest = max(largest, toFloat(n))
	}
	heights := []rune(curveBars)
	var b strings.Builder
	for _, n := range series {
		value := toFloat(n)
		if value == 0 {
			b.WriteByte(' ')
			continue
		}
		b.WriteRune(heights[int(value/cmp.Or(largest, 1)*float64(len(heights)-1)+0.5)])
	}
	return b.String()
}
