package replay

import (
	"encoding/json"
	"io"
	"time"
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
	Allowed  int64
	Denied   int64
	Refused  int   // keys that were denied at least once
	Unparsed int64 // lines that could not be read
	Skipped  int64 // lines that are no requests: blank, or about something else
	First    time.Time
	Last     time.Time
	Disorder Disorder
	Notes    []string    // what else one should know
	Top      []KeyReport // those refused most, most first
	Busiest  KeyReport   // the key with most requests
	Width    time.Duration
	Buckets  []Bucket // from First to Last, each Width long
	pictures []picture

	FirstUnparsed *BadLine // nil if there is none
}

// Log is a file that was read.
type Log struct {
	Name   string
	Format Format
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

// WriteJSON writes the report as one JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	type key struct {
		Key         string     `json:"key"`
		Requests    int64      `json:"requests"`
		Denied      int64      `json:"denied"`
		FirstDenied *time.Time `json:"first_denied,omitempty"`
	}
	type bad struct {
		Log    string `json:"log"`
		Line   int64  `json:"line"`
		Text   string `json:"text"`
		Reason string `json:"reason"`
	}
	type log struct {
		Name   string `json:"name"`
		Format Format `json:"format"`
	}
	type bucket struct {
		Start   time.Time `json:"start"`
		Allowed int64     `json:"allowed"`
		Denied  int64     `json:"denied"`
	}
	type disorder struct {
		Requests int64   `json:"requests"`
		Greatest float64 `json:"greatest_seconds"`
	}
	out := struct {
		Requests int64 `json:"requests"`
		Keys     int   `json:"keys"`
		Allowed  int64 `json:"allowed"`
		Denied   int64 `json:"denied"`
		Unparsed int64 `json:"unparsed"`
		Top      []key `json:"top"`

		Limit         string     `json:"limit"`
		Bound         string     `json:"bound"`
		Field         string     `json:"field"`
		Logs          []log      `json:"logs"`
		Lines         int64      `json:"lines"`
		Skipped       int64      `json:"skipped"`
		FirstUnparsed *bad       `json:"first_unparsed,omitempty"`
		KeysDenied    int        `json:"keys_denied"`
		First         *time.Time `json:"first,omitempty"`
		Last          *time.Time `json:"last,omitempty"`
		Disorder      disorder   `json:"disorder"`
		Notes         []string   `json:"notes,omitempty"`
		BucketSeconds float64    `json:"bucket_seconds"`
		Buckets       []bucket   `json:"buckets"`
	}{
		Requests: r.Requests, Keys: r.Keys, Allowed: r.Allowed, Denied: r.Denied, Unparsed: r.Unparsed,
		Top:   []key{},
		Limit: r.Notation, Bound: r.Bound, Field: r.Field, Lines: r.Lines, Skipped: r.Skipped,
		KeysDenied: r.Refused, Notes: r.Notes,
		Disorder:      disorder{r.Disorder.Requests, r.Disorder.Greatest.Seconds()},
		BucketSeconds: r.Width.Seconds(),
		Buckets:       []bucket{},
	}
	for _, k := range r.Top {
		first := k.FirstDenied
		out.Top = append(out.Top, key{k.Key, k.Requests, k.Denied, &first})
	}
	for _, l := range r.Logs {
		out.Logs = append(out.Logs, log(l))
	}
	for _, b := range r.Buckets {
		out.Buckets = append(out.Buckets, bucket(b))
	}
	if r.FirstUnparsed != nil {
		b := bad(*r.FirstUnparsed)
		out.FirstUnparsed = &b
	}
	if r.Requests > 0 {
		out.First, out.Last = &r.First, &r.Last
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(out)
}
