package accesslog

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Errors for errors.Is.
var (
	ErrEmpty  = errors.New("the log is empty")
	ErrFormat = errors.New("format not recognised")
)

// LineCounts counts lines that have a format, lines that have not, and foreign lines, which another program or the log
// itself wrote.
type LineCounts struct{ Good, Bad, Foreign int64 }

// Add counts a line by its record or error.
func (s *LineCounts) Add(rec *Record, err error) {
	switch {
	case err != nil:
		s.Bad++
	case rec.Foreign:
		s.Foreign++
	default:
		s.Good++
	}
}

// Recognised reports whether the log has the format: at least half of its lines do. Many logs have a few broken lines.
func (s LineCounts) Recognised() bool { return s.Good > 0 && s.Good >= s.Bad }

// trial is the result of reading the beginning of a log in one format.
type trial struct {
	*format
	counts   LineCounts
	firstErr error
}

// Detect detects the format from the first lines of a log: the format that reads most of them, and at least half. Of
// several it takes the earliest in Formats. A format within a more general one wins although the general one reads up
// to half as many lines more: those are damaged or of another program.
func Detect(head []byte, cfg Config) (Format, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return "", err
	}
	cfg.Year = 2000
	trials := make([]trial, len(table))
	var sample []byte
	for i := range table {
		t := &trials[i]
		t.format = &table[i]
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
	var why []string
	for _, t := range trials {
		if t.counts.Good > 0 {
			why = append(why, fmt.Sprintf("%s reads %d of %d, and of another: %v", t.name, t.counts.Good,
				t.counts.Good+t.counts.Bad, t.firstErr))
		}
	}
	if len(why) > 0 {
		return "", fmt.Errorf("%w: less than half of the first lines is of one format (%s); line 1 is %s", ErrFormat,
			strings.Join(why, "; "), line)
	}
	return "", fmt.Errorf("%w: the first lines are none of %s; line 1 is %s", ErrFormat, Names(), line)
}

// bestTrial returns the trial of the format that Detect returns, or nil.
func bestTrial(trials []trial) (best *trial) {
	excluded := map[Format]bool{} // general formats, if a format within them is recognised and reads enough
	reads := func(f Format) int64 {
		return trials[slices.IndexFunc(trials, func(t trial) bool { return t.name == f })].counts.Good
	}
	for i := range trials {
		t := &trials[i]
		if !t.counts.Recognised() || excluded[t.name] {
			continue
		}
		read := t.counts.Good + t.counts.Foreign
		for outer := t.within; outer != "" && 3*read >= 2*reads(outer); outer = lookupFormat(outer).within {
			excluded[outer] = true
		}
		if best == nil || t.counts.Good > best.counts.Good {
			best = t
		}
	}
	return best
}
