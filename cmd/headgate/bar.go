package main

import (
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// bar shows the progress of a long command on a terminal; elsewhere it shows nothing.
type bar[P ~string] struct {
	w     io.Writer // nil: not a terminal
	bar   *progressbar.ProgressBar
	phase P
	bytes func(P) bool // of which phases bytes are counted; nil: of none
}

func newBar[P ~string](w io.Writer, bytes func(P) bool) *bar[P] {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return &bar[P]{w: w, bytes: bytes}
	}
	return &bar[P]{}
}

// show shows how far a phase is; of a total that is not known, 0 or less.
func (b *bar[P]) show(phase P, done, total int64) {
	if b.w == nil {
		return
	}
	if total <= 0 {
		total = -1
	}
	if b.bar == nil || b.phase != phase {
		b.clear()
		b.phase = phase
		b.bar = progressbar.NewOptions64(total,
			progressbar.OptionSetWriter(b.w),
			progressbar.OptionSetDescription(string(phase)),
			progressbar.OptionShowBytes(b.bytes != nil && b.bytes(phase)),
			progressbar.OptionShowCount(),
			progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionClearOnFinish(),
			progressbar.OptionFullWidth(),
		)
	}
	_ = b.bar.Set64(done) // a bar that cannot be drawn is no reason to stop
}

func (b *bar[P]) clear() {
	if b.bar != nil {
		_ = b.bar.Clear()
		b.bar = nil
	}
}
