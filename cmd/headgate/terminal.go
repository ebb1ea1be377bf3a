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

	"github.com/headgate/headgate/internal/replay"
)

// screen is where tables are drawn: a page of a terminal, or a file or a terminal to which they are added.
type screen struct {
	out    io.Writer
	fd     int // of the terminal of which it is a page; below 0: none
	keys   chan byte
	inFD   int
	before *term.State // of the input
}

// openScreen prepares a terminal, unless tables are to stay. Close restores it.
func openScreen(in io.Reader, out io.Writer, stay bool) (*screen, error) {
	s := &screen{out: out, fd: -1}
	o, ok := out.(*os.File)
	if stay || !ok || !term.IsTerminal(int(o.Fd())) {
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

// read sends each key that is pressed. The end of the input counts as q.
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

func (s *screen) page() bool { return s.fd >= 0 }

func (s *screen) close() {
	if s.page() {
		_, _ = io.WriteString(s.out, "\x1b[?25h\x1b[?1049l")
	}
	if s.before != nil {
		_ = term.Restore(s.inFD, s.before)
	}
}

// size returns the width and height of the page, in cells; zeros: there is no page.
func (s *screen) size() (width, height int) {
	if !s.page() {
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
	if !s.page() {
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

// terminalLine is a line of a terminal that is written again and again. Elsewhere nothing is written.
type terminalLine struct{ w io.Writer } // nil: not a terminal

func newTerminalLine(w io.Writer) terminalLine {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return terminalLine{w}
	}
	return terminalLine{}
}

func (l terminalLine) show(text string) {
	if l.w != nil {
		fmt.Fprint(l.w, "\r\x1b[K"+text)
	}
}

func (l terminalLine) clear() { l.show("") }

// bar shows in a line how far a long command is.
type bar struct {
	terminalLine
	phase replay.Phase
	drawn time.Time        // when it was shown last
	now   func() time.Time // time.Now, but for tests
}

func newBar(w io.Writer) *bar { return &bar{terminalLine: newTerminalLine(w), now: time.Now} }

// redrawn is how long a figure is shown at least.
const redrawn = 100 * time.Millisecond

// show shows how far a phase is; of a total that is not known, 0 or less.
func (b *bar) show(phase replay.Phase, done, total int64) {
	now := b.now()
	if b.w == nil || phase == b.phase && now.Sub(b.drawn) < redrawn {
		return
	}
	b.phase, b.drawn = phase, now
	count := func(n int64) string { return grouped(fmt.Sprint(n)) }
	if phase == replay.Reading { // bytes
		count = func(n int64) string { return grouped(fmt.Sprintf("%.1f", float64(n)/1e6)) + " MB" }
	}
	text := fmt.Sprintf("%s  %s", phase, count(done))
	if total > 0 {
		percent := min(100, int(float64(done)/float64(total)*100))
		text = fmt.Sprintf("%s  %d %%  %s of %s", phase, percent, count(done), count(total))
	}
	b.terminalLine.show(text)
}

// repeat draws lines again and again, so long apart, until the context ends, the user quits, or there were as many
// tables as count says, if that is not 0: these stay. draw gets the width of the terminal and the lines it has for a
// table, 0 if there is none.
func repeat(cmd *cobra.Command, every time.Duration, count int, draw func(width, height int) ([]string, error)) error {
	screen, err := openScreen(cmd.InOrStdin(), cmd.OutOrStdout(), count > 0)
	if err != nil {
		return err
	}
	defer screen.close()
	for n := 1; ; n++ {
		begin := time.Now()
		width, height := screen.size()
		lines, err := draw(width, height)
		if cmd.Context().Err() != nil {
			return nil
		}
		if err != nil {
			if n == 1 || !screen.page() {
				return err
			}
			lines = fitted([]string{time.Now().Format("15:04:05") + "  " + text(err.Error())}, width)
		}
		if err := screen.draw(lines); err != nil {
			return err
		}
		if n == count || !screen.wait(cmd.Context(), max(every, time.Since(begin))) {
			return nil
		}
	}
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

// cellsOf returns how many cells of a terminal a text takes.
func cellsOf(text string) (n int) {
	for _, r := range text {
		n += cells(r)
	}
	return n
}

func cells(r rune) int {
	if r >= 0x1100 && r != '…' && !strings.ContainsRune(bars, r) {
		return 2
	}
	return 1
}
