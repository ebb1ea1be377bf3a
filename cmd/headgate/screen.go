package main

import (
	"context"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

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
