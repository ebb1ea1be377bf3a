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

	"github.com/headgate/headgate/internal/accesslog"
	"github.com/headgate/headgate/internal/replay"
)

// screen is where tables are drawn: in place on a page of a terminal, or one below the other on any output.
type screen struct {
	out        io.Writer
	fd         int       // descriptor of the terminal whose page it is; below 0 if there is no page
	keys       chan byte // bytes of the keys that are pressed; nil without a page, or if the input is no terminal
	inFD       int
	inputState *term.State // state that close restores
}

// openScreen opens a page if out is a terminal, unless the tables have to stay after close.
func openScreen(in io.Reader, out io.Writer, keepTables bool) (*screen, error) {
	s := &screen{out: out, fd: -1}
	o, ok := out.(*os.File)
	if keepTables || !ok || !term.IsTerminal(int(o.Fd())) {
		return s, nil
	}
	s.fd = int(o.Fd())
	if i, ok := in.(*os.File); ok && term.IsTerminal(int(i.Fd())) {
		state, err := term.MakeRaw(int(i.Fd()))
		if err != nil {
			return nil, err
		}
		s.inFD, s.inputState, s.keys = int(i.Fd()), state, make(chan byte)
		go s.read(i)
	}
	_, err := io.WriteString(out, "\x1b[?1049h\x1b[?25l") // the alternate page, without a cursor
	return s, err
}

// read sends each byte of the input to s.keys, which it closes at the end.
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

func (s *screen) isPage() bool { return s.fd >= 0 }

func (s *screen) close() {
	if s.isPage() {
		_, _ = io.WriteString(s.out, "\x1b[?25h\x1b[?1049l")
	}
	if s.inputState != nil {
		_ = term.Restore(s.inFD, s.inputState)
	}
}

// size returns the width and height of the page in characters, 80 and 24 if the terminal does not say or is too low for
// a table, or zeros if there is no page.
func (s *screen) size() (width, height int) {
	if !s.isPage() {
		return 0, 0
	}
	width, height, err := term.GetSize(s.fd)
	if err != nil || width < 1 || height < 3 {
		return 80, 24
	}
	return width, height
}

// draw writes a table, on a page in the place of the previous table.
func (s *screen) draw(lines []string) error {
	var b strings.Builder
	if !s.isPage() {
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

// wait waits for d. It returns false if the context or the input ends, or the user quits.
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

// terminalLine is a line of a terminal that is overwritten again and again. If w is nil, nothing is written.
type terminalLine struct{ w io.Writer }

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

// progressBar shows in one line how far a long command is.
type progressBar struct {
	terminalLine
	phase   replay.Phase
	shownAt time.Time        // when the line was last written
	now     func() time.Time // time.Now, except in tests
}

func newProgressBar(w io.Writer) *progressBar {
	return &progressBar{terminalLine: newTerminalLine(w), now: time.Now}
}

// show writes how far a phase is, unless it has done so within 100 ms. A total of 0 or less is unknown.
func (b *progressBar) show(phase replay.Phase, done, total int64) {
	now := b.now()
	if b.w == nil || phase == b.phase && now.Sub(b.shownAt) < 100*time.Millisecond {
		return
	}
	b.phase, b.shownAt = phase, now
	count := accesslog.Comma
	if phase == replay.Reading { // bytes
		count = func(n int64) string { return accesslog.GroupThousands(fmt.Sprintf("%.1f", float64(n)/1e6)) + " MB" }
	}
	text := fmt.Sprintf("%s  %s", phase, count(done))
	if total > 0 {
		percent := min(100, int(float64(done)/float64(total)*100))
		text = fmt.Sprintf("%s  %d %%  %s of %s", phase, percent, count(done), count(total))
	}
	b.terminalLine.show(text)
}

// repeat draws tables until the context or the input ends or the user quits. It pauses for interval, or for as long as
// the table before took, if that is longer. If count is not 0, it stops after that many tables, and they stay. draw
// returns the lines of a table. It gets the width and height of the page, or zeros if there is none. Its error ends
// repeat for the first table or without a page; later it is shown on the page.
func repeat(cmd *cobra.Command, interval time.Duration, count int, draw func(width, height int) ([]string, error),
) error {
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
			if n == 1 || !screen.isPage() {
				return err
			}
			lines = cutLines([]string{time.Now().Format("15:04:05") + "  " + quoteText(err.Error())}, width)
		}
		if err := screen.draw(lines); err != nil {
			return err
		}
		if n == count || !screen.wait(cmd.Context(), max(interval, time.Since(begin))) {
			return nil
		}
	}
}

// cutLines cuts lines to a width, unless that is 0.
func cutLines(lines []string, width int) []string {
	if width > 0 {
		for i, line := range lines {
			lines[i] = strings.TrimRight(fitText(line, width), " ")
		}
	}
	return lines
}

// fitText cuts text to a width of 1 or more, or fills it up with spaces.
func fitText(text string, width int) string {
	used := 0
	for i, r := range text {
		w := runeWidth(r)
		if used+w > width || used+w == width && i+len(string(r)) < len(text) {
			return text[:i] + "…" + strings.Repeat(" ", width-used-1)
		}
		used += w
	}
	return text + strings.Repeat(" ", width-used)
}

// textWidth returns how many columns of a terminal a text takes.
func textWidth(text string) (n int) {
	for _, r := range text {
		n += runeWidth(r)
	}
	return n
}

// runeWidth returns how many columns a letter takes: 2 from U+1100 on, also where only some terminals need them, but 1 for
// the … of fitText and for curveBars.
func runeWidth(r rune) int {
	if r >= 0x1100 && r != '…' && !strings.ContainsRune(curveBars, r) {
		return 2
	}
	return 1
}
