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

// textRows is the maximum number of rows of the table over time.
const textRows = 24

// writeText writes the report for people.
func (r *Report) writeText(b *strings.Builder) {
	line := lineWriter(b)
	line("limit", "%s", r.Notation)
	if r.Bound != "" {
		line("bound", "%s", r.Bound)
	}
	r.textLog(b)
	b.WriteByte('\n')
	admitted, refused := resultWords(r.Fill)
	n := len(comma(r.Requests))
	r.textRequests(b)
	line(admitted, "%*s   %s", n, comma(r.Allowed), percent(r.Allowed, r.Requests))
	line(refused, "%*s   %s, %s", n, comma(r.Denied), percent(r.Denied, r.Requests), plural(r.Refused, "key"))
	if r.Fill {
		line("at brim", "%*s   %s", n, comma(r.Brim), percent(r.Brim, r.Requests))
	}
	switch {
	case r.Used != nil:
		line("cost", "%s reserved of %s, %s used", r.Accepted, r.Asked, r.Used)
	case r.Priced():
		line("cost", "%s of %s", r.Accepted, r.Asked)
	}
	r.textLines(b)
	r.textSteps(b)
	r.textTop(b)
	r.textTime(b)
}

// Priced reports whether the requests' costs are not all one.
func (r *Report) Priced() bool { return r.Asked != Total{units: r.Requests} }

// More returns how many refused keys are not in Top.
func (r *Report) More() int64 { return r.Refused - int64(len(r.Top)) }

// lineWriter returns a function that writes lines with a word in front.
func lineWriter(b *strings.Builder) func(label, format string, args ...any) {
	return func(label, format string, args ...any) {
		fmt.Fprintf(b, "%-10s %s\n", label, fmt.Sprintf(format, args...))
	}
}

// writeTable writes rows, the first of them the head. The first column is as wide as its longest cell; format writes
// the other columns.
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

// textRequests writes how many requests there are.
func (r *Report) textRequests(b *strings.Builder) {
	lineWriter(b)("requests", "%s   from %s (%s)", comma(r.Requests), plural(r.Keys, "key"), r.Field)
}

// resultWords returns the word for requests that pass, and the word for requests that do not.
func resultWords(fill bool) (admitted, refused string) {
	if fill {
		return "fitted", "overflowed"
	}
	return "admitted", "refused"
}

// textLog writes which logs were read, and from when to when.
func (r *Report) textLog(b *strings.Builder) {
	line := lineWriter(b)
	for _, l := range r.Logs {
		line("log", "%s (%s)", l.Name, l.Format)
	}
	line("time", "%s to %s (%s)", formatTime(r.First), formatTime(r.Last), formatDuration(r.Last.Sub(r.First)))
}

// textLines writes how many lines were not read, skipped or left out, with the reasons.
func (r *Report) textLines(b *strings.Builder) {
	line := lineWriter(b)
	n := len(comma(r.Requests))
	line("unparsed", "%*s   %s", n, comma(r.Unparsed), plural(r.Lines, "line")+" read, "+comma(r.Skipped)+" skipped")
	if r.Filtered > 0 {
		line("left out", "%*s   by where, since or until", n, comma(r.Filtered))
	}
	for _, w := range r.Reasons {
		label := "skipped"
		if w.Unparsed {
			label = "first"
		}
		line("", "%*s   %s: %s", n, comma(w.Lines), label, &w.First)
	}
	if r.Disorder.Requests > 0 {
		line("disorder", "%*s   requests were out of order, by up to %s; sorted", n, comma(r.Disorder.Requests),
			formatDuration(r.Disorder.Greatest.Duration))
	}
	for _, note := range r.Notes {
		line("note", "%s", note)
	}
}

// textSteps writes the effect of the first requests on the level.
func (r *Report) textSteps(b *strings.Builder) {
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

func (r *Report) textTop(b *strings.Builder) {
	if len(r.Top) == 0 {
		return
	}
	_, refused := resultWords(r.Fill)
	rows := [][]any{{fmt.Sprintf("%-15s", refused+" most"), "requests", refused, "share", "first " + refused}}
	for _, k := range r.Top {
		rows = append(rows, []any{
			displayKey(k.Key, 60), comma(k.Requests), comma(k.Denied),
			percent(k.Denied, k.Requests), formatTime(k.FirstDenied),
		})
	}
	writeTable(b, "  %10s  %10s  %7s  %s", rows)
	if r.More() > 0 {
		fmt.Fprintf(b, "and %s with fewer\n", plural(r.More(), "key"))
	}
}

func (r *Report) textTime(b *strings.Builder) {
	width := max(bucketWidth(r.Last.Sub(r.First).Microseconds(), textRows), r.Width.Microseconds())
	buckets, maxRequests := mergeBuckets(r.Buckets, width), int64(1)
	for _, k := range buckets {
		maxRequests = max(maxRequests, k.Allowed+k.Denied)
	}
	const bar = 40
	admitted, refused := resultWords(r.Fill)
	rows := [][]any{{
		"when, UTC (" + formatDuration(time.Duration(width)*time.Microsecond) + ")", admitted, refused,
		"# " + admitted + ", x " + refused,
	}}
	for _, k := range buckets {
		admittedBar := strings.Repeat("#", int((k.Allowed*bar+maxRequests/2)/maxRequests))
		refusedBar := strings.Repeat("x", int((k.Denied*bar+maxRequests-1)/maxRequests))
		rows = append(rows, []any{
			k.Start.Format(time.DateTime), comma(k.Allowed), comma(k.Denied), admittedBar + refusedBar,
		})
	}
	writeTable(b, "  %10s  %10s  %s", rows)
}

func formatTime(t time.Time) string { return t.Format(time.DateTime) + " UTC" }

// formatDuration formats a duration with its two greatest units.
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

// formatShare formats a share as a percentage with one decimal, or a small share with two significant digits.
func formatShare(part, whole int64) string {
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

func percent(part, whole int64) string {
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

// displayKey returns at most n characters of a key: plain text as it is, and other text in quotes.
func displayKey(key string, n int) string {
	plain := key != "" && utf8.ValidString(key) && strings.TrimSpace(key) == key
	for _, c := range key {
		plain = plain && unicode.IsPrint(c)
	}
	if !plain {
		key = quote(key)
	}
	if runes := []rune(key); len(runes) > n {
		return string(runes[:n-3]) + "..."
	}
	return key
}
