package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/replay"
)

// TestProgressBarShowsOneLine checks that only a terminal gets a line, which is overwritten up to ten times a second.
func TestProgressBarShowsOneLine(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	now := time.Unix(0, 0)
	b := newProgressBar(&out)
	b.now = func() time.Time { return now }
	steps := []struct {
		phase       replay.Phase
		done, total int64
		after       time.Duration // since the step before
		want        string
	}{
		{"reading", 1_250_000, 2_500_000_000, 0, "reading  0 %  1.2 MB of 2,500.0 MB"},
		{"reading", 1_300_000, 2_500_000_000, 99 * time.Millisecond, ""},
		{"reading", 2_499_999_999, 2_500_000_000, time.Millisecond, "reading  99 %  2,500.0 MB of 2,500.0 MB"},
		{"sorting", 1234, 0, 0, "sorting  1,234"},
		{"sorting", 1235, -1, time.Second, "sorting  1,235"},
		{"deciding", 30, 20, 0, "deciding  100 %  30 of 20"},
	}
	for _, s := range steps {
		b.show(s.phase, s.done, s.total)
	}
	b.clear()
	if out.Len() > 0 {
		t.Errorf("without a terminal: got %q, want nothing", out.String())
	}
	b.terminalLine = terminalLine{&out}
	for _, s := range steps {
		now = now.Add(s.after)
		out.Reset()
		if s.want != "" {
			s.want = "\r\x1b[K" + s.want
		}
		if b.show(s.phase, s.done, s.total); out.String() != s.want {
			t.Errorf("%s %d of %d: got %q, want %q", s.phase, s.done, s.total, out.String(), s.want)
		}
	}
	out.Reset()
	if b.clear(); out.String() != "\r\x1b[K" {
		t.Errorf("clear: got %q, want an empty line", out.String())
	}
}
