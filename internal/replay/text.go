package replay

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/accesslog"
)

// maxTimelineRows is the maximum number of rows of the table over time.
const maxTimelineRows = 24

func (r *Report) writeText(b *strings.Builder) {
	line := lineWriter(b)
	line("limit", "%s", r.Notation)
	if r.Bound != "" {
		line("bound", "%s", r.Bound)
	}
	r.writeLog(b)
	b.WriteByte('\n')
	admitted, refused := resultWords(r.Fill)
	width := len(comma(r.Requests))
	r.writeRequestCount(b)
	line(admitted, "%*s   %s", width, comma(r.Allowed), formatPercent(r.Allowed, r.Requests))
	keys := plural(r.DeniedKeys, "key")
	line(refused, "%*s   %s, %s", width, comma(r.Denied), formatPercent(r.Denied, r.Requests), keys)
	if r.Fill {
		line("at brim", "%*s   %s", width, comma(r.Brim), formatPercent(r.Brim, r.Requests))
	}
	switch {
	case r.Used != nil:
		line("cost", "%s reserved of %s, %s used", r.Accepted, r.Asked, r.Used)
	case r.Priced():
		line("cost", "%s of %s", r.Accepted, r.Asked)
	}
	r.writeLineCounts(b)
	r.writeSteps(b)
	r.writeTopKeys(b)
	r.writeTimeline(b)
}

// Priced reports whether the total cost differs from the number of requests.
func (r *Report) Priced() bool { return r.Asked != Total{units: r.Requests} }

// DeniedBelowTop returns how many refused keys are not in Top.
func (r *Report) DeniedBelowTop() int64 { return r.DeniedKeys - int64(len(r.Top)) }

// lineWriter returns a function that writes a line with a label in front.
func lineWriter(b *strings.Builder) func(label, format string, args ...any) {
	return func(label, format string, args ...any) {
		fmt.Fprintf(b, "%-10s %s\n", label, fmt.Sprintf(format, args...))
	}
}

// writeTable writes an empty line and rows, the first of them the head. The first column is of texts, and as wide as
// the longest; format writes the other columns.
func writeTable(b *strings.Builder, format string, rows [][]any) {
	width := 0
	for _, row := range rows {
		width = max(width, utf8.RuneCountInString(row[0].(string)))
	}
	b.WriteByte('\n')
	for _, row := range rows {
		fmt.Fprintf(b, "%-*s"+format+"\n", slices.Concat([]any{width}, row)...)
	}
}

func (r *Report) writeRequestCount(b *strings.Builder) {
	lineWriter(b)("requests", "%s   from %s (%s)", comma(r.Requests), plural(r.Keys, "key"), r.Field)
}

// resultWords returns the word for requests that pass, and the word for requests that do not.
func resultWords(fill bool) (admitted, refused string) {
	if fill {
		return "fitted", "overflowed"
	}
	return "admitted", "refused"
}

// writeLog writes which logs were read, and from when to when.
func (r *Report) writeLog(b *strings.Builder) {
	line := lineWriter(b)
	for _, l := range r.Logs {
		line("log", "%s (%s)", l.Name, l.Format)
	}
	line("time", "%s to %s (%s)", formatTime(r.First), formatTime(r.Last), formatDuration(r.Last.Sub(r.First)))
}

// writeLineCounts writes how many lines were not read, skipped or left out, with the reasons, the disorder and notes.
func (r *Report) writeLineCounts(b *strings.Builder) {
	line := lineWriter(b)
	width := len(comma(r.Requests))
	line("unparsed", "%*s   %s read, %s skipped", width, comma(r.Unparsed), plural(r.Lines, "line"), comma(r.Skipped))
	if r.Filtered > 0 {
		line("left out", "%*s   by where, since or until", width, comma(r.Filtered))
	}
	for _, reason := range r.Reasons {
		label := "skipped"
		if reason.Unparsed {
			label = "first"
		}
		line("", "%*s   %s: %s", width, comma(reason.Lines), label, &reason.First)
	}
	if r.Disorder.Requests > 0 {
		line("disorder", "%*s   requests were out of order, by up to %s; sorted", width, comma(r.Disorder.Requests),
			formatDuration(r.Disorder.Greatest.Duration))
	}
	for _, note := range r.Notes {
		line("note", "%s", note)
	}
}

// writeSteps writes the effect of the first requests on the level.
func (r *Report) writeSteps(b *strings.Builder) {
	if len(r.Steps) == 0 {
		return
	}
	const layout = "%-26s  %s"
	rows := [][]any{{fmt.Sprintf(layout, "request, UTC", "key"), "cost", "level", "after", ""}}
	for _, s := range r.Steps {
		mark := ""
		switch {
		case !s.Allowed && r.Fill:
			mark = "  at the brim, " + s.Overflow.String() + " overflowed"
		case !s.Allowed:
			mark = "  refused"
		case s.Brim:
			mark = "  at the brim"
		}
		rows = append(rows, []any{
			fmt.Sprintf(layout, s.At.Format("2006-01-02 15:04:05.999999"), displayKey(s.Key, 40)),
			s.Cost, fmt.Sprintf("%.3f", s.Before), fmt.Sprintf("%.3f", s.After), mark,
		})
	}
	writeTable(b, "  %10s  %10s  %10s%s", rows)
}

func (r *Report) writeTopKeys(b *strings.Builder) {
	if len(r.Top) == 0 {
		return
	}
	_, refused := resultWords(r.Fill)
	rows := [][]any{{fmt.Sprintf("%-15s", refused+" most"), "requests", refused, "share", "first " + refused}}
	for _, k := range r.Top {
		rows = append(rows, []any{
			displayKey(k.Key, 60), comma(k.Requests), comma(k.Denied),
			formatPercent(k.Denied, k.Requests), formatTime(k.FirstDenied),
		})
	}
	writeTable(b, "  %10s  %10s  %7s  %s", rows)
	if r.DeniedBelowTop() > 0 {
		fmt.Fprintf(b, "and %s with fewer\n", plural(r.DeniedBelowTop(), "key"))
	}
}

func (r *Report) writeTimeline(b *strings.Builder) {
	width := max(bucketWidth(r.Last.Sub(r.First).Microseconds(), maxTimelineRows), r.Width.Microseconds())
	buckets, maxRequests := mergeBuckets(r.Buckets, width), int64(1)
	for _, bucket := range buckets {
		maxRequests = max(maxRequests, bucket.Allowed+bucket.Denied)
	}
	const barWidth = 40
	admitted, refused := resultWords(r.Fill)
	rows := [][]any{{
		"when, UTC (" + formatDuration(time.Duration(width)*time.Microsecond) + ")", admitted, refused,
		"# " + admitted + ", x " + refused,
	}}
	for _, bucket := range buckets { // any refusal has a mark
		admittedBar := strings.Repeat("#", int((bucket.Allowed*barWidth+maxRequests/2)/maxRequests))
		refusedBar := strings.Repeat("x", int((bucket.Denied*barWidth+maxRequests-1)/maxRequests))
		rows = append(rows, []any{
			bucket.Start.Format(time.DateTime), comma(bucket.Allowed), comma(bucket.Denied), admittedBar + refusedBar,
		})
	}
	writeTable(b, "  %10s  %10s  %s", rows)
}

func formatTime(t time.Time) string { return t.Format(time.DateTime) + " UTC" }

// formatDuration formats a duration with its greatest unit and the next smaller one: days, hours, minutes, seconds.
func formatDuration(d time.Duration) string {
	if d < time.Second {
		return d.String()
	}
	var parts []string
	for _, u := range []struct {
		name string
		len  time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}} {
		if n := d / u.len; n > 0 && len(parts) < 2 {
			parts = append(parts, strconv.FormatInt(int64(n), 10)+u.name)
			d %= u.len
		} else if len(parts) > 0 {
			break
		}
	}
	return strings.Join(parts, " ")
}

// formatFinePercent formats a percentage with one decimal; below 0.1 to its first significant digit or five decimals.
func formatFinePercent(part, whole int64) string {
	if part == 0 || whole == 0 {
		return "0 %"
	}
	share := 100 * float64(part) / float64(whole)
	digits := 1
	for f := share; f < 0.1 && digits < 5; f *= 10 {
		digits++
	}
	return strconv.FormatFloat(share, 'f', digits, 64) + " %"
}

// formatPercent formats a share as a percentage with one decimal, or as "-" if the whole is 0.
func formatPercent(part, whole int64) string {
	if whole == 0 {
		return "-"
	}
	return strconv.FormatFloat(100*float64(part)/float64(whole), 'f', 1, 64) + " %"
}

// Formats of numbers and texts in messages about logs.
var (
	comma  = accesslog.Comma
	plural = accesslog.Plural
	quote  = accesslog.Quote
)

// displayKey returns at most maxRunes of a key: plain text as it is, and other text in quotes. A cut ends with "...".
func displayKey(key string, maxRunes int) string {
	plain := key != "" && utf8.ValidString(key) && strings.TrimSpace(key) == key
	for _, c := range key {
		plain = plain && unicode.IsPrint(c)
	}
	if !plain {
		key = quote(key)
	}
	if runes := []rune(key); len(runes) > maxRunes {
		return string(runes[:maxRunes-3]) + "..."
	}
	return key
}
