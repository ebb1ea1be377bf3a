package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/headgate/headgate/internal/replay"
)

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
