package replay

import (
	"encoding/json"
	"io"
	"time"

	"github.com/headgate/headgate/internal/accesslog"
)

// The report in JSON.
type (
	jsonKey struct {
		Key         string     `json:"key"`
		Requests    int64      `json:"requests"`
		Denied      int64      `json:"denied"`
		FirstDenied *time.Time `json:"first_denied,omitempty"`
	}
	jsonBad struct {
		Log    string `json:"log"`
		Line   int64  `json:"line"`
		Text   string `json:"text"`
		Reason string `json:"reason"`
	}
	jsonReason struct {
		Reason   string  `json:"reason"`
		Unparsed bool    `json:"unparsed"`
		Lines    int64   `json:"lines"`
		First    jsonBad `json:"first"`
	}
	jsonLog struct {
		Name   string           `json:"name"`
		Format accesslog.Format `json:"format"`
	}
	jsonBucket struct {
		Start   time.Time `json:"start"`
		Allowed int64     `json:"allowed"`
		Denied  int64     `json:"denied"`
	}
	jsonDisorder struct {
		Requests int64   `json:"requests"`
		Greatest float64 `json:"greatest_seconds"`
	}
	jsonStep struct {
		At       time.Time `json:"at"`
		Key      string    `json:"key"`
		Cost     Total     `json:"cost"`
		Before   float64   `json:"level_before"`
		After    float64   `json:"level_after"`
		Allowed  bool      `json:"allowed"`
		Brim     bool      `json:"brim"`
		Overflow Total     `json:"overflow"`
	}
	jsonReport struct {
		Requests int64     `json:"requests"`
		Keys     int       `json:"keys"`
		Allowed  int64     `json:"allowed"`
		Denied   int64     `json:"denied"`
		Unparsed int64     `json:"unparsed"`
		Top      []jsonKey `json:"top"`

		Limit         string       `json:"limit"`
		Bound         string       `json:"bound,omitempty"`
		Field         string       `json:"field"`
		Fill          bool         `json:"fill,omitempty"`
		Logs          []jsonLog    `json:"logs"`
		Lines         int64        `json:"lines"`
		Skipped       int64        `json:"skipped"`
		Filtered      int64        `json:"filtered"`
		FirstUnparsed *jsonBad     `json:"first_unparsed,omitempty"`
		Reasons       []jsonReason `json:"reasons,omitempty"`
		KeysDenied    int          `json:"keys_denied"`
		Cost          Total        `json:"cost"`
		Accepted      Total        `json:"cost_accepted"`
		Used          *Total       `json:"cost_used,omitempty"`
		Brim          int64        `json:"brim,omitempty"`
		First         time.Time    `json:"first"`
		Last          time.Time    `json:"last"`
		Disorder      jsonDisorder `json:"disorder"`
		Notes         []string     `json:"notes,omitempty"`
		BucketSeconds float64      `json:"bucket_seconds"`
		Buckets       []jsonBucket `json:"buckets"`
		Steps         []jsonStep   `json:"steps,omitempty"`
	}
)

// json returns what is written of a report.
func (r *Report) json() *jsonReport {
	out := &jsonReport{
		Requests: r.Requests, Keys: r.Keys, Allowed: r.Allowed, Denied: r.Denied, Unparsed: r.Unparsed,
		Top:   jsonKeys(r.Top),
		Limit: r.Notation, Bound: r.Bound, Field: r.Field, Fill: r.Fill, Lines: r.Lines, Skipped: r.Skipped,
		Filtered: r.Filtered, KeysDenied: r.Refused, Cost: r.Asked, Accepted: r.Accepted, Brim: r.Brim,
		First: r.First, Last: r.Last, Notes: r.Notes,
		Disorder:      jsonDisorder{r.Disorder.Requests, r.Disorder.Greatest.Seconds()},
		BucketSeconds: r.Width.Seconds(),
		Buckets:       []jsonBucket{},
	}
	if r.usage() {
		out.Used = &r.Used
	}
	for _, l := range r.Logs {
		out.Logs = append(out.Logs, jsonLog(l))
	}
	for _, b := range r.Buckets {
		out.Buckets = append(out.Buckets, jsonBucket(b))
	}
	for _, s := range r.Steps {
		out.Steps = append(out.Steps, jsonStep(s))
	}
	for _, w := range r.Reasons {
		out.Reasons = append(out.Reasons, jsonReason{w.Reason, w.Unparsed, w.Lines, jsonBad(w.First)})
	}
	if r.FirstUnparsed != nil {
		b := jsonBad(*r.FirstUnparsed)
		out.FirstUnparsed = &b
	}
	return out
}

func jsonKeys(list []KeyReport) []jsonKey {
	keys := make([]jsonKey, len(list))
	for i, k := range list {
		keys[i] = jsonKey{Key: k.Key, Requests: k.Requests, Denied: k.Denied}
		if k.Denied > 0 {
			keys[i].FirstDenied = &k.FirstDenied
		}
	}
	return keys
}

// WriteJSON writes the report as one JSON object.
func (r *Report) WriteJSON(w io.Writer) error { return writeJSON(w, r.json()) }

// WriteAllJSON writes reports as one JSON object: that of WriteJSON if there is one, else {"limits": [...]} with
// one for each.
func WriteAllJSON(w io.Writer, reports []*Report) error {
	if len(reports) == 1 {
		return reports[0].WriteJSON(w)
	}
	out := struct {
		Limits []*jsonReport `json:"limits"`
	}{}
	for _, r := range reports {
		out.Limits = append(out.Limits, r.json())
	}
	return writeJSON(w, out)
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// usage reports whether a log of model calls is among the logs.
func (r *Report) usage() bool {
	for _, l := range r.Logs {
		if l.Format == accesslog.Usage && !r.Fill {
			return true
		}
	}
	return false
}
