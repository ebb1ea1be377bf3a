package pictures

import (
	"bytes"
	_ "embed"
	"fmt"
	"math"
	"regexp"
	"strings"
	"text/template"
	"time"

	"github.com/headgate/headgate/internal/palette"
)

//go:embed chart.svg.tmpl
var chartText string

var chartTemplate = template.Must(template.New("chart").Parse(chartText))

// Chart is a picture of what one limit does to the stream that all charts share.
type Chart struct {
	Name     string // of its file, without the ending
	Notation string
	hold     time.Duration
}

// period is that of all limits that are drawn.
const period = 10 * time.Second

// Charts are the pictures of docs/choosing-an-algorithm.md, in its order.
var Charts = []Chart{
	{Name: "token-bucket", Notation: "token-bucket 6/10s burst 6"},
	{Name: "leaky-bucket", Notation: "leaky-bucket 6/10s capacity 6"},
	{Name: "gcra", Notation: "gcra 6/10s burst 6"},
	{Name: "fixed-window", Notation: "fixed-window 6/10s"},
	{Name: "interval", Notation: "interval 6/10s burst 6"},
	{Name: "sliding-window", Notation: "sliding-window 6/10s"},
	{Name: "sliding-log", Notation: "sliding-log 6/10s"},
	{Name: "concurrency", Notation: "concurrency 6 ttl 30s", hold: 4 * time.Second},
}

// length is how long the stream is.
const length = 40 * time.Second

// stream is what all limits are asked: two requests, a burst before and after the boundary of a window, a caller that
// asks once a second, a pause, and another burst.
func stream() (times []time.Duration) {
	add := func(first, step time.Duration, n int) {
		for i := range n {
			times = append(times, first+time.Duration(i)*step)
		}
	}
	const ms = time.Millisecond
	add(2*time.Second, 2*time.Second, 2)
	add(8*time.Second, 300*ms, 7)
	add(10*time.Second+100*ms, 300*ms, 7)
	add(14*time.Second, time.Second, 10)
	add(33*time.Second, 300*ms, 8)
	return times
}

// Where the parts of a chart are: those that are computed. The template has the others.
const (
	left   = 92.0
	right  = 834.0
	top    = 50.0 // of the plot
	bottom = 148.0
	yes    = 158.0 // the lane of what was admitted
	no     = 178.0
	mark   = 2.4 // how wide a request is
)

type drawing struct {
	Style, Label, Title, Note string
	Left, Right, Top, Bottom  float64
	Yes, No, CapY             float64
	Capacity, Area, Line      string
	Columns                   []column
	Admitted, Refused         []float64
	Band                      *band
}

type column struct {
	X     float64
	Label string
}

// band marks the interval in which most passes.
type band struct {
	X, Width, Middle float64
	Text             string
}

// Draw returns the chart as SVG, readable on light and on dark.
func (c Chart) Draw() ([]byte, error) {
	r, err := play(c.Notation, stream(), length, c.hold)
	if err != nil {
		return nil, err
	}
	d := drawing{
		Style: style, Title: r.limit.String(), Note: fmt.Sprintf("%d of %d admitted", r.admitted(), len(r.requests)),
		Left: left, Right: right, Top: top, Bottom: bottom, Yes: yes, No: no,
		CapY: y(capacity), Capacity: fmt.Sprintf("capacity %d", capacity),
	}
	if c.hold > 0 {
		d.Note += fmt.Sprintf("; each holds its place for %g s", c.hold.Seconds())
	} else {
		from, most := r.busiest(period)
		d.Band = &band{X: x(from), Width: round(x(from+period) - x(from)), Middle: x(from + period/2)}
		d.Band.Text = fmt.Sprintf("most within %g s: %d", period.Seconds(), most)
		d.Label = "; " + d.Band.Text
	}
	d.Label = d.Title + ": " + d.Note + d.Label
	d.Line = line(r.way)
	d.Area = fmt.Sprintf("M%g %gL%sL%g %gZ", left, bottom, strings.TrimPrefix(d.Line, "M"), x(r.end), bottom)
	for at := time.Duration(0); at <= length; at += period {
		d.Columns = append(d.Columns, column{x(at), fmt.Sprintf("%d s", int(at.Seconds()))})
	}
	for _, q := range r.requests {
		if q.admitted {
			d.Admitted = append(d.Admitted, round(x(q.at)-mark/2))
		} else {
			d.Refused = append(d.Refused, round(x(q.at)-mark/2))
		}
	}
	var b bytes.Buffer
	if err := chartTemplate.Execute(&b, d); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// capacity is that of all limits that are drawn.
const capacity = 6

func x(at time.Duration) float64 {
	return round(left + (right-left)*at.Seconds()/length.Seconds())
}

func y(level float64) float64 {
	return round(bottom - (bottom-top)*level/(capacity*1.08))
}

func round(f float64) float64 { return math.Round(f*10) / 10 }

// line returns the way of a level, without the points that lie on a straight line.
func line(way []point) string {
	var b strings.Builder
	command := "M"
	for i := 0; i < len(way); {
		fmt.Fprintf(&b, "%s%g %g", command, x(way[i].at), y(way[i].level))
		command = "L"
		last := i + 1
		for last+1 < len(way) && straight(way[i:last+2]) {
			last++
		}
		i = last
	}
	return b.String()
}

// straight reports whether all points lie on the line from the first to the last, as far as eyes can tell.
func straight(way []point) bool {
	first, last := way[0], way[len(way)-1]
	dx, dy := x(last.at)-x(first.at), y(last.level)-y(first.level)
	for _, p := range way[1 : len(way)-1] {
		px, py := x(p.at)-x(first.at), y(p.level)-y(first.level)
		far := math.Abs(dx*py-dy*px) / max(math.Hypot(dx, dy), 1)
		if far > 0.3 || px < 0 || px > dx || py < min(0, dy)-0.3 || py > max(0, dy)+0.3 {
			return false
		}
	}
	return true
}

//go:embed style.css
var styleText string

// style is that of all pictures, with the colours of package palette written out: not every program that draws SVG
// knows custom properties and light-dark().
var style = inColours(styleText, 1) + "@media (prefers-color-scheme: dark) {\n" + inColours(styleText, 2) + "}\n"

var colour = regexp.MustCompile(`--([a-z]+): light-dark\((#[0-9a-f]+), (#[0-9a-f]+)\)`)

// inColours replaces the names of colours: by those for light paper (1) or for dark (2).
func inColours(text string, which int) string {
	for _, m := range colour.FindAllStringSubmatch(palette.CSS, -1) {
		text = strings.ReplaceAll(text, "var(--"+m[1]+")", m[1+which])
	}
	return text
}
