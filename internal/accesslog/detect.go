package accesslog

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

var (
	ErrEmpty  = errors.New("the log is empty")
	ErrFormat = errors.New("format not recognised")
)

// LineCounts counts good lines, which have a format, bad lines, which do not, and foreign lines: see Record.Foreign.
type LineCounts struct{ Good, Bad, Foreign int64 }

// Add counts a line by its record or error.
func (c *LineCounts) Add(rec *Record, err error) {
	switch {
	case err != nil:
		c.Bad++
	case rec.Foreign:
		c.Foreign++
	default:
		c.Good++
	}
}

// Recognised reports whether the log has the format: at least half of its lines do. Many logs have a few broken lines.
func (c LineCounts) Recognised() bool { return c.Good > 0 && c.Good >= c.Bad }

// trial is the result of reading the beginning of a log in one format.
type trial struct {
	*format
	counts   LineCounts
	firstErr error
}

// Detect detects the format from the first lines of a log: the format that reads the most lines, and at least half. Of
// several formats it takes the earliest in Formats. A special format wins over a more general format that reads up to
// half as many lines more: such lines are damaged or of another program.
func Detect(head []byte, cfg Config) (Format, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return "", err
	}
	cfg.Year = 2000 // a leap year has every date
	trials := make([]trial, len(formatTable))
	var sample []byte
	for i := range formatTable {
		t := &trials[i]
		t.format = &formatTable[i]
		rd := containerLog{Reader: t.open(t.format, nil, cfg)}
		for line := range bytes.Lines(head) {
			line = bytes.TrimRight(line, "\r\n")
			if len(line) == 0 {
				continue
			}
			if sample == nil {
				sample = line
			}
			rec, err := rd.Read(line)
			t.counts.Add(&rec, err)
			t.firstErr = cmp.Or(t.firstErr, err)
		}
	}
	if sample == nil {
		return "", ErrEmpty
	}
	if best := bestTrial(trials); best != nil {
		return best.name, nil
	}
	line := Quote(Clip(sample))
	var reasons []string
	for _, t := range trials {
		if t.counts.Good > 0 {
			reasons = append(reasons, fmt.Sprintf("%s reads %d of %d, and of another: %v", t.name, t.counts.Good,
				t.counts.Good+t.counts.Bad, t.firstErr))
		}
	}
	if len(reasons) > 0 {
		return "", fmt.Errorf("%w: less than half of the first lines is of one format (%s); line 1 is %s", ErrFormat,
			strings.Join(reasons, "; "), line)
	}
	return "", fmt.Errorf("%w: the first lines are none of %s; line 1 is %s", ErrFormat, FormatNames(), line)
}

// bestTrial returns the trial of the format that Detect returns, or nil.
func bestTrial(trials []trial) (best *trial) {
	excluded := map[Format]bool{} // general formats, if a more special format is recognised and reads enough lines
	goodLines := func(f Format) int64 {
		return trials[slices.IndexFunc(trials, func(t trial) bool { return t.name == f })].counts.Good
	}
	for i := range trials {
		t := &trials[i]
		if !t.counts.Recognised() || excluded[t.name] {
			continue
		}
		for outer := t.general; outer != ""; {
			if 3*(t.counts.Good+t.counts.Foreign) < 2*goodLines(outer) {
				break
			}
			excluded[outer] = true
			outer = lookupFormat(outer).general
		}
		if best == nil || t.counts.Good > best.counts.Good {
			best = t
		}
	}
	return best
}
