package replay

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// textRows bounds the rows of the table over time.
const textRows = 24

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	line := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s %s\n", what, fmt.Sprintf(format, args...))
	}
	line("limit", "%s", r.Notation)
	line("bound", "%s", r.Bound)
	for _, l := range r.Logs {
		line("log", "%s (%s)", l.Name, l.Format)
	}
	if r.Requests > 0 {
		line("time", "%s to %s (%s)", stamp(r.First), stamp(r.Last), span(r.Last.Sub(r.First)))
	}
	b.WriteByte('\n')
	n := len(comma(r.Requests))
	line("requests", "%*s   from %s (%s)", n, comma(r.Requests), plural(int64(r.Keys), "key"), r.Field)
	line("admitted", "%*s   %s", n, comma(r.Allowed), percent(r.Allowed, r.Requests))
	line("refused", "%*s   %s, %s", n, comma(r.Denied), percent(r.Denied, r.Requests), plural(int64(r.Refused), "key"))
	line("unparsed", "%*s   %s", n, comma(r.Unparsed), plural(r.Lines, "line")+" read, "+comma(r.Skipped)+" skipped")
	if r.FirstUnparsed != nil {
		line("", "first: %s", r.FirstUnparsed)
	}
	if r.Disorder.Requests > 0 {
		line("disorder", "%*s   requests were out of order, by up to %s; sorted", n, comma(r.Disorder.Requests),
			span(r.Disorder.Greatest))
	}
	for _, note := range r.Notes {
		line("note", "%s", note)
	}
	r.textTop(&b)
	r.textTime(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) textTop(b *strings.Builder) {
	if len(r.Top) == 0 {
		return
	}
	keys := make([]string, len(r.Top))
	wide := len("refused most")
	for i, k := range r.Top {
		keys[i] = shorten(printable(k.Key), 60)
		wide = max(wide, utf8.RuneCountInString(keys[i]))
	}
	fmt.Fprintf(b, "\n%s  %10s  %10s  %7s  %s\n", pad("refused most", wide), "requests", "refused", "share",
		"first refused")
	for i, k := range r.Top {
		fmt.Fprintf(b, "%s  %10s  %10s  %7s  %s\n", pad(keys[i], wide), comma(k.Requests), comma(k.Denied),
			percent(k.Denied, k.Requests), stamp(k.FirstDenied))
	}
	if more := r.Refused - len(r.Top); more > 0 {
		fmt.Fprintf(b, "and %s with fewer\n", plural(int64(more), "key"))
	}
}

func (r *Report) textTime(b *strings.Builder) {
	if r.Requests == 0 {
		return
	}
	width := max(bucketWidth(r.Last.Sub(r.First).Microseconds(), textRows), r.Width.Microseconds())
	var rows []Bucket
	most := int64(1)
	for _, k := range r.Buckets {
		start := k.Start.UnixMicro()
		if s := at(start - start%width); len(rows) == 0 || rows[len(rows)-1].Start != s {
			rows = append(rows, Bucket{Start: s})
		}
		row := &rows[len(rows)-1]
		row.Allowed += k.Allowed
		row.Denied += k.Denied
		most = max(most, row.Allowed+row.Denied)
	}
	const bar = 40
	fmt.Fprintf(b, "\n%-19s  %10s  %10s  # admitted, x refused\n",
		"when, UTC ("+span(time.Duration(width)*time.Microsecond)+")", "admitted", "refused")
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

// comma writes 12,345.
func comma(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return comma(n) + " " + what + "s"
}

func percent(part, whole int64) string {
	if whole == 0 {
		return "-"
	}
	return strconv.FormatFloat(100*float64(part)/float64(whole), 'f', 1, 64) + " %"
}

// quote writes what a log says in quotes, with nothing that a terminal obeys.
func quote(s string) string { return strconv.QuoteToGraphic(s) }

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
