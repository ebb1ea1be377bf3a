package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html"
	"text/template"

	"github.com/headgate/headgate/bench/compare"
)

//go:embed picture.svg.tmpl
var pictureText string

var picture = template.Must(template.New("picture").Parse(pictureText))

// The measures of a picture, in pixels.
const (
	margin = 12
	head   = 50
	row    = 26
	thick  = 18
	names  = 280 // for what stands before the bars
	bars   = 380
	values = 150 // for what stands behind them
)

type bar struct {
	Name, Value, Class       string
	Y, TextY, Length, ValueX int
}

// Picture returns horizontal bars as SVG, as long as the figures are large; nil
// if there is nothing to compare. It reads well on light and on dark.
func Picture(r *compare.Result) []byte {
	var shown []*compare.Figure
	longest := 0.0
	for _, side := range []compare.Side{compare.Ours, compare.Rival, compare.Ceiling, compare.Self} {
		for i := range r.Figures {
			if f := &r.Figures[i]; f.Side == side && f.Err == nil {
				shown = append(shown, f)
				longest = max(longest, f.Median)
			}
		}
	}
	if len(shown) == 0 || longest == 0 {
		return nil
	}
	data := struct {
		Width, Height, Left, BarX, Thick int
		Title, Note                      string
		Bars                             []bar
	}{
		Width: margin + names + bars + values + margin, Height: head + row*len(shown) + margin,
		Left: margin, BarX: margin + names, Thick: thick,
		Title: html.EscapeString(r.Title), Note: html.EscapeString(note(r)),
	}
	for i, f := range shown {
		y := head + row*i
		length := max(1, int(bars*f.Median/longest))
		data.Bars = append(data.Bars, bar{
			Name: html.EscapeString(f.Label), Value: html.EscapeString(value(r, f)),
			Class: [...]string{"ours", "rival", "ceiling", "rival"}[f.Side],
			Y:     y, TextY: y + thick - 5, Length: length, ValueX: margin + names + length + 6,
		})
	}
	var b bytes.Buffer
	if err := picture.Execute(&b, data); err != nil {
		return nil
	}
	return b.Bytes()
}

// value is what stands behind a bar.
func value(r *compare.Result, f *compare.Figure) string {
	text := amount(f.Median, r.Unit)
	if f.P99 > 0 {
		text += ", p99 " + latency(f.P99)
	}
	return text
}

// note says how to read the bars.
func note(r *compare.Result) string {
	what := map[compare.Unit]string{
		compare.PerSecond:  "Decisions a second; longer is better.",
		compare.Nanosecond: "Nanoseconds a decision; shorter is better.",
		compare.Bytes:      "Bytes a key; shorter is better.",
		compare.Millis:     "Milliseconds; shorter is better.",
		compare.Statements: "Statements a second at the store; shorter is better.",
	}[r.Unit]
	if ratio := r.Ratio(); ratio > 0 {
		what += fmt.Sprintf(" Ratio to %s: %s.", r.Against().Label, times(ratio))
	}
	return what
}
