package replay

import (
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/accesslog"
)

// Report is what a limit would have done to a log.
type Report struct {
	Limit    string // its name
	Notation string // its one line
	Bound    string // what it promises, in a sentence
	Field    string // what its keys are
	Logs     []Log  // those that were not empty

	Lines    int64 // read
	Requests int64 // found in them
	Keys     int   // different ones
	Allowed  int64 // of Fill: those that fitted in whole
	Denied   int64 // of Fill: those of which some overflowed
	Refused  int   // keys that were denied at least once
	Unparsed int64 // lines that could not be read
	Skipped  int64 // lines that are no requests: blank, or about something else
	Filtered int64 // lines that Where, Since and Until leave out
	Reasons  []Reason

	Fill     bool
	Brim     int64  // of Fill: requests after which the level stood at the capacity
	Asked    Total  // what all requests cost
	Accepted Total  // what was charged of it; of usage, what was reserved
	Used     Total  // usage: what the admitted calls came to in the end
	Steps    []Step // the first Config.Trace requests

	First    time.Time
	Last     time.Time
	Disorder Disorder
	Notes    []string    // what else one should know
	Top      []KeyReport // those refused most, most first
	Busiest  KeyReport   // the key with most requests
	Width    time.Duration
	Buckets  []Bucket // from First to Last, each Width long
	pictures []picture
	tallies  []tally // by the number of a key
	number   map[string]uint32
	limit    headgate.Limit

	FirstUnparsed *BadLine // nil if there is none
}

// Log is a file that was read.
type Log struct {
	Name   string
	Format accesslog.Format
}

// Disorder tells how far the lines of the logs were from being in the order
// of their times. Each log is looked at by itself.
type Disorder struct {
	Requests int64         // that are older than one before them
	Greatest time.Duration // how much older at most
}

// BadLine is a line that could not be read.
type BadLine struct {
	Log    string
	Line   int64 // from 1
	Text   string
	Reason string
}

// Reason is why lines were not read or are no requests.
type Reason struct {
	Reason   string
	Unparsed bool // they could not be read
	Lines    int64
	First    BadLine
}

// maxReasons bounds the reasons of a report; further ones are counted under one.
const maxReasons = 20

// skip counts a line that is no request.
func (r *Report) skip(bad *BadLine, line []byte, reason string) {
	r.Skipped++
	r.because(bad, line, reason, false)
}

// refuse counts a line that could not be read.
func (r *Report) refuse(bad *BadLine, line []byte, err error) {
	r.Unparsed++
	r.because(bad, line, err.Error(), true)
	if r.FirstUnparsed == nil {
		r.FirstUnparsed = bad
	}
}

func (r *Report) because(bad *BadLine, line []byte, reason string, unparsed bool) {
	bad.Text, bad.Reason = accesslog.Clip(line), reason
	if len(r.Reasons) == maxReasons {
		reason = "another reason"
	}
	for i := range r.Reasons {
		if w := &r.Reasons[i]; w.Reason == reason && w.Unparsed == unparsed {
			w.Lines++
			return
		}
	}
	r.Reasons = append(r.Reasons, Reason{reason, unparsed, 1, *bad})
}

// nothing says where the lines of logs without a request have gone.
func (r *Report) nothing() string {
	var parts []string
	for _, w := range r.Reasons {
		parts = append(parts, fmt.Sprintf("%s: %s", plural(w.Lines, "line"), w.Reason))
	}
	if r.Filtered > 0 {
		parts = append(parts, plural(r.Filtered, "line")+" left out by where, since or until")
	}
	return strings.Join(parts, "; ")
}

// String returns the place, the reason and the text, made safe to print.
func (b *BadLine) String() string {
	return b.Log + ":" + comma(b.Line) + ": " + b.Reason + ": " + quote(b.Text)
}

// KeyReport tells about one key.
type KeyReport struct {
	Key         string
	Requests    int64
	Denied      int64
	FirstDenied time.Time // zero if it never was
}

// Bucket counts the requests of a stretch of time.
type Bucket struct {
	Start   time.Time
	Allowed int64
	Denied  int64
}
