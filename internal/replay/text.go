package replay

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/accesslog"
)

// textRows bounds the rows of the table over time.
const textRows = 24

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	line := writer(&b)
	line("limit", "%s", r.Notation)
	if r.Bound != "" {
		line("bound", "%s", r.Bound)
	}
	r.textLog(&b)
	b.WriteByte('\n')
	yes, no := r.words()
	n := len(comma(r.Requests))
	line("requests", "%*s   from %s (%s)", n, comma(r.Requests), plural(int64(r.Keys), "key"), r.Field)
	line(yes, "%*s   %s", n, comma(r.Allowed), percent(r.Allowed, r.Requests))
	line(no, "%*s   %s, %s", n, comma(r.Denied), percent(r.Denied, r.Requests), plural(int64(r.Refused), "key"))
	if r.Fill {
		line("at brim", "%*s   %s", n, comma(r.Brim), percent(r.Brim, r.Requests))
	}
	if r.usage() {
		line("cost", "%s reserved of %s, %s used", r.Accepted, r.Asked, r.Used)
	} else if r.Asked != (Total{units: r.Requests}) {
		line("cost", "%s of %s", r.Accepted, r.Asked)
	}
	r.textLines(&b)
	r.textSteps(&b)
	r.textTop(&b)
	r.textTime(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// writer returns a function that writes a line with a word in front.
func writer(b *strings.Builder) func(what, format string, args ...any) {
	return func(what, format string, args ...any) {
		fmt.Fprintf(b, "%-10s %s\n", what, fmt.Sprintf(format, args...))
	}
}

// words returns what a request is called that passes, and one that does not.
func (r *Report) words() (yes, no string) {
	if r.Fill {
		return "fitted", "overflowed"
	}
	return "admitted", "refused"
}

// textLog writes which logs were read.
func (r *Report) textLog(b *strings.Builder) {
	line := writer(b)
	for _, l := range r.Logs {
		line("log", "%s (%s)", l.Name, l.Format)
	}
	line("time", "%s to %s (%s)", stamp(r.First), stamp(r.Last), span(r.Last.Sub(r.First)))
}

// textLines writes what became of the lines of the logs.
func (r *Report) textLines(b *strings.Builder) {
	line := writer(b)
	n := len(comma(r.Requests))
	line("unparsed", "%*s   %s", n, comma(r.Unparsed), plural(r.Lines, "line")+" read, "+comma(r.Skipped)+" skipped")
	if r.Filtered > 0 {
		line("left out", "%*s   by where, since or until", n, comma(r.Filtered))
	}
	for _, w := range r.Reasons {
		what := "skipped"
		if w.Unparsed {
			what = "first"
		}
		line("", "%*s   %s: %s", n, comma(w.Lines), what, &w.First)
	}
	if r.Disorder.Requests > 0 {
		line("disorder", "%*s   requests were out of order, by up to %s; sorted", n, comma(r.Disorder.Requests),
			span(r.Disorder.Greatest))
	}
	for _, note := range r.Notes {
		line("note", "%s", note)
	}
}

// textSteps writes what the first requests did to the level.
func (r *Report) textSteps(b *strings.Builder) {
	if len(r.Steps) == 0 {
		return
	}
	wide := len("key")
	for _, s := range r.Steps {
		wide = max(wide, utf8.RuneCountInString(shorten(printable(s.Key), 40)))
	}
	fmt.Fprintf(b, "\n%-26s  %s  %10s  %10s  %10s\n", "request, UTC", pad("key", wide), "cost", "level", "after")
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
		fmt.Fprintf(b, "%-26s  %s  %10s  %10.3f  %10.3f%s\n", s.At.Format("2006-01-02 15:04:05.999999"),
			pad(shorten(printable(s.Key), 40), wide), s.Cost, s.Before, s.After, mark)
	}
}

func (r *Report) textTop(b *strings.Builder) {
	if len(r.Top) == 0 {
		return
	}
	keys := make([]string, len(r.Top))
	wide := len("overflowed most")
	for i, k := range r.Top {
		keys[i] = shorten(printable(k.Key), 60)
		wide = max(wide, utf8.RuneCountInString(keys[i]))
	}
	_, no := r.words()
	fmt.Fprintf(b, "\n%s  %10s  %10s  %7s  %s\n", pad(no+" most", wide), "requests", no, "share", "first "+no)
	for i, k := range r.Top {
		fmt.Fprintf(b, "%s  %10s  %10s  %7s  %s\n", pad(keys[i], wide), comma(k.Requests), comma(k.Denied),
			percent(k.Denied, k.Requests), stamp(k.FirstDenied))
	}
	if more := r.Refused - len(r.Top); more > 0 {
		fmt.Fprintf(b, "and %s with fewer\n", plural(int64(more), "key"))
	}
}

func (r *Report) textTime(b *strings.Builder) {
	width := max(bucketWidth(r.Last.Sub(r.First).Microseconds(), textRows), r.Width.Microseconds())
	rows, most := wider(r.Buckets, width), int64(1)
	for _, row := range rows {
		most = max(most, row.Allowed+row.Denied)
	}
	const bar = 40
	yes, no := r.words()
	fmt.Fprintf(b, "\n%-19s  %10s  %10s  # %s, x %s\n",
		"when, UTC ("+span(time.Duration(width)*time.Microsecond)+")", yes, no, yes, no)
	for _, row := range rows {
		x := int((row.Denied*bar + most - 1) / most)
		a := int((row.Allowed*bar + most/2) / most)
		fmt.Fprintf(b, "%-19s  %10s  %10s  %s\n", row.Start.Format(time.DateTime), comma(row.Allowed),
			comma(row.Denied), strings.Repeat("#", a)+strings.Repeat("x", x))
	}
}

func stamp(t time.Time) string { return t.Format(time.DateTime) + " UTC" }

// span writes a duration shortly, with its two greatest units.
func span(d time.Duration) string {
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

// finely is percent for shares that are small: it has two digits that count.
func finely(part, whole int64) string {
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

// The words of messages about logs.
var (
	comma  = accesslog.Comma
	plural = accesslog.Plural
	quote  = accesslog.Quote
)

// printable leaves plain text as it is and quotes the rest.
func printable(s string) string {
	plain := s != "" && utf8.ValidString(s) && strings.TrimSpace(s) == s
	for _, c := range s {
		plain = plain && unicode.IsPrint(c)
	}
	if plain {
		return s
	}
	return quote(s)
}

// shorten cuts text to n characters.
func shorten(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-3]) + "..."
	}
	return s
}

func pad(s string, n int) string {
	return s + strings.Repeat(" ", max(0, n-utf8.RuneCountInString(s)))
}
