package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
)

// topping are the flags of top.
type topping struct {
	looking
	all        bool
	every      time.Duration
	count, max int
}

func newTopCommand() *cobra.Command {
	var t topping
	cmd := &cobra.Command{
		Use:   "top [LIMIT]",
		Short: "Show the keys that are refused and those that are nearest to it, again and again",
		Long: "Show the keys that are refused now, and those that are nearest to it, again and again. q or Ctrl-C\n" +
			"ends it. Where the output is no terminal, one table after the other is written. Nothing is charged.\n\n" +
			"A server tells which keys it has refused most in the last five minutes, then which have used most,\n" +
			"with their refusals and a curve of two minutes. That takes as long for ten million keys as for ten.\n" +
			"With --all, with a store, and over gRPC, all keys of the store are read each time, as by headgate list\n" +
			"--sort percent: name a limit where a store has many. A pause is never shorter than the reading before it.",
		Example: "  headgate top --server http://127.0.0.1:8080\n  headgate top login --every 5s\n" +
			"  headgate top --all --count 1 --max 10",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: limitFirst,
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
			return ask(cmd, func(s answerer) error { return t.run(cmd, s) })
		},
	}
	addAsked(cmd)
	t.flags(cmd)
	cmd.Flags().BoolVar(&t.all, "all", false, "read all keys of the store, and not what a server has decided lately")
	cmd.Flags().DurationVar(&t.every, "every", time.Second, "how long to wait between two tables")
	cmd.Flags().IntVar(&t.count, "count", 0, "end after this many tables; 0: go on")
	cmd.Flags().IntVar(&t.max, "max", 20, "show at most this many keys, and no more than the terminal has lines for")
	return cmd
}

// run shows table after table until the context ends, or the one who watches wants no more.
func (t *topping) run(cmd *cobra.Command, s answerer) error {
	screen, err := openScreen(cmd.InOrStdin(), cmd.OutOrStdout())
	if err != nil {
		return err
	}
	defer screen.close()
	for n := 1; ; n++ {
		begin := time.Now()
		width, height := screen.size()
		most := t.max
		if height > 0 {
			most = min(most, height-3) // the head, the names of the columns, and a store that is away
		}
		lines, err := t.table(cmd.Context(), s, most, width)
		if cmd.Context().Err() != nil {
			return nil
		}
		if r, ok := s.(*remote); ok && err == nil {
			if me, err := get[api.Me](cmd.Context(), r, "/v1/me", nil); err == nil && me.Away != nil {
				lines = slices.Insert(lines, 0, fitted([]string{me.Away.Text}, width)...)
			}
		}
		if err != nil {
			if n == 1 || !screen.live() {
				return err
			}
			lines = fitted([]string{time.Now().Format("15:04:05") + "  " + text(err.Error())}, width)
		}
		if err := screen.draw(lines); err != nil {
			return err
		}
		if n == t.count {
			return nil
		}
		if !screen.wait(cmd.Context(), max(t.every, time.Since(begin))) {
			return nil
		}
	}
}

// limitWidth is how wide the column of limits is at most: of longer names the end is left out.
const limitWidth = 28

// topRow is a line of a table: what a key uses now, and what a server has decided about it lately, where that is known.
type topRow struct {
	*keyUse
	refused, curve string
}

// table returns the lines of a table of the first keys.
func (t *topping) table(ctx context.Context, s answerer, most, width int) ([]string, error) {
	now := time.Now().Format("15:04:05")
	if r, ok := s.(*remote); ok && !t.all && !t.blocked && !t.refusing {
		rows, head, err := t.lately(ctx, r, most)
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

// frame returns the lines of one table, none wider than width, or as wide as they are if that is 0. The figures stand
// before what may be long. Lately says that there are those of the last minutes.
func frame(head string, rows []topRow, lately bool, width int) []string {
	used, limits := len("USED"), len("LIMIT")
	for _, r := range rows {
		used = max(used, len(r.of()))
		limits = max(limits, min(limitWidth, len(key(r.Limit))))
	}
	line := func(percent, retry, use, refused, curve, limit, who string) string {
		figures := fmt.Sprintf("%4s  %-13s  %-*s", percent, retry, used, use)
		if lately {
			figures += fmt.Sprintf("  %7s  %-*s", refused, curveWidth, curve)
		}
		return figures + "  " + fit(limit, limits) + "  " + who
	}
	lines := []string{head, line("%", "RETRY AFTER", "USED", "REFUSED", "2 MINUTES", "LIMIT", "KEY")}
	for _, r := range rows {
		lines = append(lines, line(r.percent(), r.retry(), r.of(), r.refused, r.curve, key(r.Limit), key(r.Key)))
	}
	return fitted(lines, width)
}

// fitted cuts lines to a width, if that is not 0.
func fitted(lines []string, width int) []string {
	if width > 0 {
		for i, line := range lines {
			lines[i] = strings.TrimRight(fit(line, width), " ")
		}
	}
	return lines
}

// fit cuts text to a width, or fills it up. A letter of which the width differs between terminals is taken for a
// wide one.
func fit(text string, width int) string {
	used := 0
	for i, r := range text {
		w := cells(r)
		if used+w > width || used+w == width && i+len(string(r)) < len(text) {
			return text[:i] + "…" + strings.Repeat(" ", width-used-1)
		}
		used += w
	}
	return text + strings.Repeat(" ", width-used)
}

func cells(r rune) int {
	if r >= 0x1100 && r != '…' && !strings.ContainsRune(bars, r) {
		return 2
	}
	return 1
}
