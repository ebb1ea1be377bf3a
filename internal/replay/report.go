package replay

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/accesslog"
)

// Report is the effect that a limit would have had on the requests of logs.
type Report struct {
	Requests int64       `json:"requests"` // requests found in the lines
	Keys     int64       `json:"keys"`     // different keys
	Allowed  int64       `json:"allowed"`  // with Fill: requests that fitted in whole
	Denied   int64       `json:"denied"`   // with Fill: requests of which some overflowed
	Unparsed int64       `json:"unparsed"` // lines that could not be read
	Top      []KeyReport `json:"top"`      // the keys with the most refusals, in descending order

	Notation      string    `json:"limit"`           // the limit's notation, one line
	Bound         string    `json:"bound,omitempty"` // the bound of the limit, in a sentence
	Field         string    `json:"field"`           // the fields of the log that make the key
	Fill          bool      `json:"fill,omitempty"`
	Logs          []Log     `json:"logs"`     // without empty logs, unless Config has a Format
	Lines         int64     `json:"lines"`    // lines read
	Skipped       int64     `json:"skipped"`  // lines that are no requests: blank, or about something else
	Filtered      int64     `json:"filtered"` // lines that Where, Since and Until leave out
	FirstUnparsed *BadLine  `json:"first_unparsed,omitempty"`
	Reasons       []Reason  `json:"reasons,omitempty"`
	DeniedKeys    int64     `json:"keys_denied"`         // keys that were refused at least once
	Asked         Total     `json:"cost"`                // cost of all requests
	Accepted      Total     `json:"cost_accepted"`       // cost that was charged at first
	Used          *Total    `json:"cost_used,omitempty"` // used by admitted calls; nil: no usage log, or Fill
	Brim          int64     `json:"brim,omitempty"`      // with Fill: requests after which the level is at the capacity
	First         time.Time `json:"first"`
	Last          time.Time `json:"last"`
	Disorder      Disorder  `json:"disorder"`
	Notes         []string  `json:"notes,omitempty"` // remarks on the logs, for people
	Width         Seconds   `json:"bucket_seconds"`
	Buckets       []Bucket  `json:"buckets"`         // they cover First to Last, each Width long
	Steps         []Step    `json:"steps,omitempty"` // the first Config.Trace requests

	Busiest    KeyReport `json:"-"` // the key with the most requests
	pictures   []picture
	tallies    []tally // by key number
	keyNumbers map[string]uint32
	limit      headgate.Limit
}

// Log is a file that was read.
type Log struct {
	Name   string           `json:"name"`
	Format accesslog.Format `json:"format"`
}

// Disorder is how far the lines of each log were from being sorted by time.
type Disorder struct {
	Requests int64   `json:"requests"`         // requests that are older than an earlier line of their log
	Greatest Seconds `json:"greatest_seconds"` // the maximum by which a request is older
}

// BadLine is a line that could not be read or was skipped.
type BadLine struct {
	Log    string `json:"log"`
	Line   int64  `json:"line"` // from 1
	Text   string `json:"text"` // see accesslog.Clip
	Reason string `json:"reason"`
}

// Reason counts the lines that one reason kept from being requests.
type Reason struct {
	Reason   string  `json:"reason"`
	Unparsed bool    `json:"unparsed"` // the lines could not be read
	Lines    int64   `json:"lines"`
	First    BadLine `json:"first"`
}

// KeyReport is the result for a key.
type KeyReport struct {
	Key         string    `json:"key"`
	Requests    int64     `json:"requests"`
	Denied      int64     `json:"denied"`
	FirstDenied time.Time `json:"first_denied,omitzero"` // zero if the key was never refused
}

// Bucket counts the requests of a stretch of time.
type Bucket struct {
	Start   time.Time `json:"start"`
	Allowed int64     `json:"allowed"`
	Denied  int64     `json:"denied"`
}

// Step is a request and its effect on the level of its key, in units of cost.
type Step struct {
	At       time.Time `json:"at"`
	Key      string    `json:"key"`
	Cost     Total     `json:"cost"`
	Before   float64   `json:"level_before"`
	After    float64   `json:"level_after"`
	Allowed  bool      `json:"allowed"`  // the whole cost was accepted
	Brim     bool      `json:"brim"`     // the level is at the capacity after the request
	Overflow Total     `json:"overflow"` // with Fill: the cost that did not fit
}

// maxReasons bounds the reasons of a report; all further reasons are counted as one.
const (
	maxReasons  = 20
	otherReason = "another reason"
)

// addSkipped counts a line that is no request, and fills in bad.
func (r *Report) addSkipped(bad *BadLine, line []byte, reason string) {
	r.Skipped++
	r.addReason(bad, line, reason, false)
}

// addUnparsed counts a line that could not be read, and fills in bad.
func (r *Report) addUnparsed(bad *BadLine, line []byte, err error) {
	r.Unparsed++
	r.addReason(bad, line, err.Error(), true)
	if r.FirstUnparsed == nil {
		r.FirstUnparsed = bad
	}
}

func (r *Report) addReason(bad *BadLine, line []byte, reason string, unparsed bool) {
	bad.Text, bad.Reason = accesslog.Clip(line), reason
	i := r.reasonIndex(reason, unparsed)
	if i < 0 && len(r.Reasons) >= maxReasons {
		reason = otherReason
		i = r.reasonIndex(reason, unparsed)
	}
	if i >= 0 {
		r.Reasons[i].Lines++
		return
	}
	r.Reasons = append(r.Reasons, Reason{reason, unparsed, 1, *bad})
}

func (r *Report) reasonIndex(reason string, unparsed bool) int {
	return slices.IndexFunc(r.Reasons, func(known Reason) bool {
		return known.Reason == reason && known.Unparsed == unparsed
	})
}

// explainNothing says why no line of the logs is a request.
func (r *Report) explainNothing() string {
	var parts []string
	for _, reason := range r.Reasons {
		parts = append(parts, fmt.Sprintf("%s: %s", plural(reason.Lines, "line"), reason.Reason))
	}
	if r.Filtered > 0 {
		parts = append(parts, plural(r.Filtered, "line")+" left out by where, since or until")
	}
	return strings.Join(parts, "; ")
}

// String returns the place, the reason, and in quotes the text.
func (b *BadLine) String() string {
	return b.Log + ":" + comma(b.Line) + ": " + b.Reason + ": " + quote(b.Text)
}

// Seconds is a duration that JSON has in seconds.
type Seconds struct{ time.Duration }

func (s Seconds) MarshalJSON() ([]byte, error) { return json.Marshal(s.Seconds()) }

// Amount is an amount that JSON has as a number.
type Amount struct{ headgate.Amount }

func (a Amount) MarshalJSON() ([]byte, error) { return json.Marshal(a.Float64()) }

// WriteAllJSON writes reports as one JSON object: the report if there is one, else {"limits": [...]} with all.
func WriteAllJSON(w io.Writer, reports []*Report) error {
	if len(reports) == 1 {
		return writeJSON(w, reports[0])
	}
	return writeJSON(w, struct {
		Limits []*Report `json:"limits"`
	}{reports})
}

// WriteJSON writes the suggestion as one JSON object. Each of its limits has the members of a Report.
func (s *Suggestion) WriteJSON(w io.Writer) error {
	return writeJSON(w, struct {
		Refuse float64 `json:"refuse"`
		Of     string  `json:"of"`
		*Suggestion
	}{s.Options.Refuse, s.Options.unit(), s})
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
