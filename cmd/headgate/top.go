package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/headgate/headgate"
)

// topping are the flags of top.
type topping struct {
	looking
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
			"Each time all keys are read, as by headgate list --sort percent: name a limit where a store has many.\n" +
			"A pause is never shorter than the reading before it.",
		Example:           "  headgate top\n  headgate top login --every 5s\n  headgate top --count 1 --max 10",
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
	addSettings(cmd, askedSettings...)
	cmd.MarkFlagsMutuallyExclusive("store", "server")
	t.flags(cmd)
	cmd.Flags().DurationVar(&t.every, "every", time.Second, "how long to wait between two tables")
	cmd.Flags().IntVar(&t.count, "count", 0, "end after so many tables; 0: go on")
	cmd.Flags().IntVar(&t.max, "max", 20, "show at most so many keys, and no more than the terminal has lines for")
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
			most = min(most, height-2)
		}
		list, total, err := t.sorted(cmd.Context(), s, "top", most)
		if cmd.Context().Err() != nil {
			return nil
		}
		if err != nil && (n == 1 || !screen.live()) {
			return err
		}
		if err := screen.draw(frame(list, total, err, time.Now(), width)); err != nil {
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

// frame returns the lines of one table, none wider than width, or as wide as they are if that is 0. The figures stand
// before what may be long.
func frame(list []*keyUse, total int, failed error, now time.Time, width int) []string {
	refused, used, limits := 0, 0, len("LIMIT")
	for _, u := range list {
		refused += worth(u.Refused)
		used = max(used, len(u.of()))
		limits = max(limits, min(limitWidth, len(key(u.Limit))))
	}
	head := fmt.Sprintf("%s  keys: %d, refused of those below: %d", now.Format("15:04:05"), total, refused)
	if failed != nil {
		head = now.Format("15:04:05") + "  " + text(failed.Error())
	}
	row := func(percent, retry, use, limit, who string) string {
		return fmt.Sprintf("%4s  %-13s  %-*s  %s  %s", percent, retry, used, use, fit(limit, limits), who)
	}
	lines := []string{head, row("%", "RETRY AFTER", "USED", "LIMIT", "KEY")}
	for _, u := range list {
		lines = append(lines, row(u.percent(), u.retry(), u.of(), key(u.Limit), u.who()))
	}
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
	if r >= 0x1100 && r != '…' {
		return 2
	}
	return 1
}

// screen is where tables are drawn: a terminal, or a file to which they are added.
type screen struct {
	out    io.Writer
	fd     int // of the terminal; below 0: none
	keys   chan byte
	inFD   int
	before *term.State // of the input
}

// openScreen prepares a terminal. Close restores it.
func openScreen(in io.Reader, out io.Writer) (*screen, error) {
	s := &screen{out: out, fd: -1}
	o, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(o.Fd())) {
		return s, nil
	}
	s.fd = int(o.Fd())
	if i, ok := in.(*os.File); ok && term.IsTerminal(int(i.Fd())) {
		before, err := term.MakeRaw(int(i.Fd()))
		if err != nil {
			return nil, err
		}
		s.inFD, s.before, s.keys = int(i.Fd()), before, make(chan byte)
		go s.read(i)
	}
	_, err := io.WriteString(out, "\x1b[?1049h\x1b[?25l") // another page, without a cursor
	return s, err
}

// read tells which keys are pressed, until there is no more input, which is as good as a q.
func (s *screen) read(in io.Reader) {
	b := make([]byte, 1)
	for {
		n, err := in.Read(b)
		if err != nil {
			close(s.keys)
			return
		}
		if n == 1 {
			s.keys <- b[0]
		}
	}
}

func (s *screen) live() bool { return s.fd >= 0 }

func (s *screen) close() {
	if s.live() {
		_, _ = io.WriteString(s.out, "\x1b[?25h\x1b[?1049l")
	}
	if s.before != nil {
		_ = term.Restore(s.inFD, s.before)
	}
}

// size returns that of the terminal; zeros: there is none.
func (s *screen) size() (width, height int) {
	if !s.live() {
		return 0, 0
	}
	width, height, err := term.GetSize(s.fd)
	if err != nil || width < 1 || height < 3 {
		return 80, 24
	}
	return width, height
}

// draw shows a table in the place of the one before.
func (s *screen) draw(lines []string) error {
	var b strings.Builder
	if !s.live() {
		for _, line := range lines {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
		}
		b.WriteString("\n")
	} else {
		b.WriteString("\x1b[H" + strings.Join(lines, "\x1b[K\r\n") + "\x1b[K\x1b[J")
	}
	_, err := io.WriteString(s.out, b.String())
	return err
}

// wait waits for the next table. It returns false if there is to be none.
func (s *screen) wait(ctx context.Context, d time.Duration) bool {
	next := time.NewTimer(d)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-next.C:
			return true
		case b, ok := <-s.keys:
			if !ok || b == 'q' || b == 'Q' || b == 3 { // Ctrl-C
				return false
			}
		}
	}
}
