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

// topOptions has the flags of top.
type topOptions struct {
	keyQuery
	all        bool
	every      time.Duration
	count, max int
}

func newTopCommand() *cobra.Command {
	var t topOptions
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
		ValidArgsFunction: completed(completeLimit),
		RunE: func(cmd *cobra.Command, args []string) error {
			t.of(args)
			switch {
			case t.every < 100*time.Millisecond:
				return headgate.Invalid("every", "%s is below 100ms", t.every)
			case t.count < 0:
				return headgate.Invalid("count", "is %d; it must not be below 0", t.count)
			case t.max < 1 || t.max > 10_000:
				return headgate.Invalid("max", "%d is not a number from 1 to 10000", t.max)
			}
			return ask(cmd, func(s backend) error { return t.run(cmd, s) })
		},
	}
	addPlaceSettings(cmd)
	t.flags(cmd)
	cmd.Flags().BoolVar(&t.all, "all", false, "read all keys of the store, and not what a server has decided lately")
	cmd.Flags().DurationVar(&t.every, "every", time.Second, "how long to wait between two tables")
	cmd.Flags().IntVar(&t.count, "count", 0, "end after this `number` of tables; 0: go on")
	cmd.Flags().IntVarP(&t.max, "max", "n", 20,
		"show at most this `number` of keys, and no more than the terminal has lines for")
	return cmd
}

// run shows table after table.
func (t *topOptions) run(cmd *cobra.Command, s backend) error {
	return repeat(cmd, t.every, t.count, func(width, height int) ([]string, error) {
		most := t.max
		if height > 0 {
			most = min(most, height-3) // the head, the names of the columns, and a store that is away
		}
		lines, err := t.table(cmd.Context(), s, most, width)
		if s.local == nil && err == nil {
			if me, err := get[api.Me](cmd.Context(), s, "/v1/me", nil); err == nil && me.Away != nil {
				lines = slices.Insert(lines, 0, fitted([]string{me.Away.Text}, width)...)
			}
		}
		return lines, err
	})
}

// nameWidth is how wide the columns of keys and limits are at most in a terminal: of longer names the end is left out.
const nameWidth = 28

// topRow is a line of a table: what a key uses now, and what a server has decided about it lately, where that is known.
type topRow struct {
	*keyUse
	refused, curve string
}

// table returns the lines of a table of the first keys.
func (t *topOptions) table(ctx context.Context, s backend, most, width int) ([]string, error) {
	now := time.Now().Format("15:04:05")
	if s.local == nil && !t.all && !t.blocked && !t.refusing {
		rows, head, err := t.lately(ctx, s, most)
		if !errors.Is(err, headgate.ErrUnsupported) {
			return frame(now+"  "+head, rows, true, width), err
		}
	}
	list, total, err := t.sorted(ctx, s, "top", most)
	rows, refused := make([]topRow, len(list)), 0
	for i, u := range list {
		rows[i].keyUse = u
		refused += worth(u.Refused)
	}
	return frame(fmt.Sprintf("%s  keys: %d, refused of those below: %d", now, total, refused), rows, false, width), err
}

// frame returns the lines of one table, none wider than width, or as wide as they are if that is 0. Lately says that
// there are the figures of the last minutes.
func frame(head string, rows []topRow, lately bool, width int) []string {
	keys, limits, uses := len("KEY"), len("LIMIT"), len("USED")
	for _, r := range rows {
		keys = max(keys, cellsOf(key(r.Key)))
		limits = max(limits, cellsOf(key(r.Limit)))
		uses = max(uses, len(used(&r.Status)))
	}
	if width > 0 {
		keys, limits = min(keys, nameWidth), min(limits, nameWidth)
	}
	line := func(who, limit, percent, retry, use, refused, curve string) string {
		text := fmt.Sprintf("%s  %s  %4s  %-13s  %-*s", fit(who, keys), fit(limit, limits), percent, retry, uses, use)
		if lately {
			text += fmt.Sprintf("  %7s  %s", refused, curve)
		}
		return strings.TrimRight(text, " ")
	}
	lines := []string{head, line("KEY", "LIMIT", "%", "RETRY AFTER", "USED", "REFUSED", "2 MINUTES")}
	for _, r := range rows {
		lines = append(lines,
			line(key(r.Key), key(r.Limit), r.percent(), r.retry(), used(&r.Status), r.refused, r.curve))
	}
	return fitted(lines, width)
}

// maxLately is how many keys a server lists at most.
const maxLately = 100

// lately returns up to most keys that a server has decided about in the last five minutes: those that were refused
// most, then those that have used most. The head says how much is decided.
func (t *topOptions) lately(ctx context.Context, s backend, most int) (rows []topRow, head string, err error) {
	const seconds = 10
	seen := map[law.Cell]bool{}
	for _, by := range []string{api.ByRefused, api.ByUsed} {
		q := &api.TrafficQuery{Limit: t.limit, By: by, Top: maxLately, Seconds: seconds}
		if t.prefix == "" {
			q.Top = min(most, maxLately)
		}
		answer, err := get[api.Traffic](ctx, s, "/v1/traffic", q)
		if err != nil {
			return nil, "", err
		}
		head = rates(answer.Limits, seconds)
		if answer.Problem != nil {
			head += "; " + text(answer.Problem.Title)
		}
		for i := range answer.Keys {
			k := &answer.Keys[i]
			c := law.Cell{Limit: k.Limit, Key: k.Key}
			none := by == api.ByRefused && figure(k.Refused) == 0
			if none || seen[c] || !strings.HasPrefix(k.Key, t.prefix) || len(rows) == most {
				continue
			}
			seen[c] = true
			rows = append(rows, rowOf(k))
		}
	}
	return rows, head, nil
}

// rates returns how much was decided a second.
func rates(limits []api.LimitTraffic, seconds int) string {
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

// rowOf returns the row of a key that a server lists.
func rowOf(k *api.KeyTraffic) topRow {
	u := &keyUse{Status: api.Status{Limit: k.Limit, Key: k.Key, Used: k.Used}}
	if k.Now != nil {
		u = useOf(&k.Now.Status)
		u.RetryAfterMS, u.never = k.Now.RetryAfterMS, k.Now.RetryAfterMS == nil
		u.Refused = u.never || *u.RetryAfterMS > 0
	}
	return topRow{keyUse: u, refused: fmt.Sprintf("%.0f", figure(k.Refused)), curve: curve(k.Recent)}
}

func figure(n json.Number) float64 {
	f, _ := n.Float64() // of a server, which writes numbers
	return f
}

// bars are the heights of a curve, and curveWidth how many parts of ten seconds it shows.
const (
	bars       = "▁▂▃▄▅▆▇█"
	curveWidth = 12
)

// curve draws the last parts of a series, as high as they are beside the largest of them.
func curve(series []json.Number) string {
	series = series[max(0, len(series)-curveWidth):]
	most := 0.0
	for _, n := range series {
		most = max(most, figure(n))
	}
	heights := []rune(bars)
	var b strings.Builder
	for _, n := range series {
		part := figure(n)
		if part == 0 {
			b.WriteByte(' ')
			continue
		}
		b.WriteRune(heights[int(part/cmp.Or(most, 1)*float64(len(heights)-1)+0.5)])
	}
	return b.String()
}
