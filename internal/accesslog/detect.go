package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Errors, for errors.Is.
var (
	ErrEmpty  = errors.New("the log is empty")
	ErrFormat = errors.New("format not recognised")
)

// Share counts lines of a log by a format. Foreign ones are of another program or of
// the log itself.
type Share struct{ Good, Bad, Foreign int64 }

// Add counts a line by its record or error.
func (s *Share) Add(rec *Record, err error) {
	switch {
	case err != nil:
		s.Bad++
	case rec.Foreign:
		s.Foreign++
	default:
		s.Good++
	}
}

// Recognised reports whether the log is of the format. A few broken lines are in
// many a log.
func (s Share) Recognised() bool { return s.Good > 0 && s.Good >= s.Bad }

// trial reads the beginning of a log by a format.
type trial struct {
	*format
	of    Share
	first error // about the first line that is not read
}

// Detect finds out the format from the first lines: the one that reads most of them, the earlier in Formats
// where several do. It must read at least half. A format that is within another wins although the other
// reads up to half as many lines more: they are damaged or of another program.
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
			t.of.Add(&rec, err)
			if t.first == nil {
				t.first = err
			}
		}
	}
	if sample == nil {
		return "", ErrEmpty
	}
	if best := choosing(trials); best != nil {
		return best.name, nil
	}
	line := Quote(Clip(sample))
	var why []string
	for _, t := range trials {
		if t.of.Good > 0 {
			why = append(why, fmt.Sprintf("%s reads %d of %d, and of another: %v", t.name, t.of.Good,
				t.of.Good+t.of.Bad, t.first))
		}
	}
	if len(why) > 0 {
		return "", fmt.Errorf("%w: less than half of the first lines is of one format (%s); line 1 is %s", ErrFormat,
			strings.Join(why, "; "), line)
	}
	return "", fmt.Errorf("%w: the first lines are none of %s; line 1 is %s", ErrFormat, Names(), line)
}

// choosing returns the trial of the format to be taken, or nil.
func choosing(trials []trial) (best *trial) {
	wider := map[Format]bool{} // formats of which one within them is recognised and reads enough
	reads := func(f Format) int64 {
		return trials[slices.IndexFunc(trials, func(t trial) bool { return t.name == f })].of.Good
	}
	for i := range trials {
		t := &trials[i]
		if !t.of.Recognised() || wider[t.name] {
			continue
		}
		for outer := t.within; outer != ""; {
			if 3*(t.of.Good+t.of.Foreign) < 2*reads(outer) {
				break
			}
			wider[outer] = true
			outer = formatNamed(outer).within
		}
		if best == nil || t.of.Good > best.of.Good {
			best = t
		}
	}
	return best
}
