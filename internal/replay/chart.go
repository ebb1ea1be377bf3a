package replay

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// frame is where the parts of a chart are, in units of its view box.
type frame struct {
	Name          string // for the style: each is shown on screens of its width
	Width, Height float64
	Left, Right   float64 // of the plot
	Top, Bottom   float64
	lane          float64 // the height of the bars of refusals, above the plot
	bin           float64 // their width
	ticks         int64   // how many columns are labelled at most
}

// The frames: a chart is drawn for wide screens and for phones, so that its text is as high on both.
var frames = []frame{
	{Name: "wide", Width: 960, Height: 240, Left: 52, Right: 946, Top: 36, Bottom: 212, lane: 22, bin: 4, ticks: 9},
	{Name: "narrow", Width: 380, Height: 240, Left: 40, Right: 372, Top: 36, Bottom: 212, lane: 22, bin: 4, ticks: 6},
}

// Foot returns where the marks of columns end.
func (f frame) Foot() float64 { return f.Bottom + 5 }

// chart is a picture in SVG, its shapes computed here and drawn by the page.
type chart struct {
	Frame   frame
	Label   string // for people who cannot see it
	Rows    []tick
	Columns []tick
	Bands   []shape
	Bars    []shape
	Area    string
	Line    string
	Cap     *tick
	Lane    []shape // refusals, above the plot
	Most    string  // how many the highest bar of the lane stands for
	Overs   []shape // what overflowed, above the capacity
	Dots    []shape
	Notes   []shape // figures beside their dots
}

type tick struct {
	At    float64
	Label string
}

type shape struct {
	Class      string
	X, Y, W, H float64
	Title      string
}

// axes maps times and amounts to places.
type axes struct {
	frame
	start, end int64
	most       float64
}

func (f frame) axes(start, end int64, most float64) axes {
	return axes{f, start, max(end, start+1), max(most, 1e-9)}
}

func (a axes) x(at int64) float64 {
	f := float64(at-a.start) / float64(a.end-a.start)
	return round(a.Left + (a.Right-a.Left)*min(max(f, 0), 1))
}

func (a axes) y(v float64) float64 {
	return round(a.Bottom - (a.Bottom-a.Top)*min(max(v/a.most, 0), 1))
}

func round(f float64) float64 { return math.Round(f*10) / 10 }

// rows returns marks at round amounts.
func (a axes) rows() (ticks []tick) {
	step := math.Pow(10, math.Floor(math.Log10(a.most)))
	for _, f := range []float64{0.1, 0.2, 0.5, 1, 2} {
		if a.most/(step*f) <= 5 {
			step *= f
			break
		}
	}
	for i := 0; i < 12 && float64(i)*step <= a.most; i++ {
		ticks = append(ticks, tick{a.y(float64(i) * step), number(float64(i) * step)})
	}
	return ticks
}

// columns returns marks at round times.
func (a axes) columns() (ticks []tick) {
	width := bucketWidth(a.end-a.start, a.ticks)
	form := "15:04"
	if width < 60*second {
		form = "15:04:05"
	}
	date := ""
	for t := a.start - a.start%width + width; t <= a.end; t += width {
		if a.x(t) > a.Right-14 {
			break
		}
		label := at(t).Format(form)
		if d := at(t).Format("2 Jan"); width >= day || t%day == 0 || date == "" && a.end-a.start > day {
			label, date = d, d
			if t%day != 0 {
				label += " " + at(t).Format(form)
			}
		}
		ticks = append(ticks, tick{a.x(t), label})
	}
	return ticks
}

// chart returns a chart with marks at its edges.
func (a axes) chart(label string) chart {
	return chart{Frame: a.frame, Label: label, Rows: a.rows(), Columns: a.columns()}
}

// number writes an amount shortly.
func number(v float64) string {
	if v >= 1000 && v == math.Trunc(v) && v < 1e15 {
		return comma(int64(v))
	}
	return strconv.FormatFloat(math.Round(v*1000)/1000, 'f', -1, 64)
}

// traffic shows admitted and refused requests as stacked bars.
func (r *Report) traffic(f frame) chart {
	var most int64 = 1
	for _, b := range r.Buckets {
		most = max(most, b.Allowed+b.Denied)
	}
	yes, no := words(r.Fill)
	start := r.Buckets[0].Start.UnixMicro()
	width := r.Width.Microseconds()
	f.Top = 12
	a := f.axes(start, start+width*int64(len(r.Buckets)), 1.06*float64(most))
	c := a.chart("requests " + yes + " and " + no + " over time")
	for _, b := range r.Buckets {
		if b.Allowed+b.Denied == 0 {
			continue
		}
		t := b.Start.UnixMicro()
		x := a.x(t)
		w := max(0.6, round((a.x(t+width)-x)*0.86))
		title := fmt.Sprintf("%s, %s: %s %s, %s %s", stamp(b.Start), span(r.Width.Duration), comma(b.Allowed), yes,
			comma(b.Denied), no)
		low := a.y(float64(b.Allowed))
		if b.Allowed > 0 {
			c.Bars = append(c.Bars, shape{"admitted", x, low, w, round(a.Bottom - low), title})
		}
		if b.Denied > 0 {
			top := min(a.y(float64(b.Allowed+b.Denied)), low-1)
			c.Bars = append(c.Bars, shape{"refused", x, top, w, round(low - top), title})
		}
	}
	return c
}

// chart returns a chart of the level from start to end, which has the capacity and a peak in it, and its axes.
func (p *picture) chart(f frame, start, end int64, peak float64, label string) (chart, axes) {
	a := f.axes(start, end, 1.16*max(peak, p.capacity))
	c := a.chart(label)
	c.Cap = &tick{a.y(p.capacity), "capacity " + number(p.capacity)}
	return c, a
}

// refusal is refused requests at a place of a chart.
type refusal struct {
	x     float64
	count int64
	title string // of the first
}

// addLane draws refusals as bars above the plot: many that are close together become one bar that is as
// high as they are many, so that they cover nothing.
func (c *chart) addLane(a axes, no string, list []refusal) {
	var bars []refusal
	most := int64(1)
	for _, r := range list {
		at := a.Left + math.Floor((r.x-a.Left)/a.bin)*a.bin
		if n := len(bars); n > 0 && bars[n-1].x == at {
			bars[n-1].count += r.count
		} else {
			bars = append(bars, refusal{at, r.count, r.title})
		}
		most = max(most, bars[len(bars)-1].count)
	}
	for _, b := range bars {
		h := max(3, round(a.lane*float64(b.count)/float64(most)))
		title := b.title
		if b.count > 1 {
			title = fmt.Sprintf("from %s on: %s %s", b.title, comma(b.count), no)
		}
		c.Lane = append(c.Lane, shape{"refused", round(b.x), a.Top - 6 - h, a.bin - 1, h, title})
	}
	if len(bars) > 0 {
		c.Most = comma(most)
	}
}

// whole shows the highest level in each column over the whole log.
func (p *picture) whole(f frame) chart {
	peak := 0.0
	for _, c := range p.columns {
		peak = max(peak, c.peak)
	}
	c, a := p.chart(f, p.start, p.start+p.width*int64(len(p.columns)), peak,
		"highest level of "+shown(p.key.Key, 120)+" over the whole log, against the capacity")
	together := max(1, int(math.Ceil(float64(len(p.columns))/((f.Right-f.Left)/1.8))))
	var area strings.Builder
	fmt.Fprintf(&area, "M%g %gV", f.Left, f.Bottom)
	var list []refusal
	for i := 0; i < len(p.columns); i += together {
		t, high, denied := p.start+int64(i)*p.width, 0.0, int64(0)
		last := min(i+together, len(p.columns))
		for _, col := range p.columns[i:last] {
			high, denied = max(high, col.peak), denied+col.denied
		}
		if i > 0 {
			area.WriteString("V")
		}
		fmt.Fprintf(&area, "%gH%g", a.y(high), a.x(p.start+int64(last)*p.width))
		if denied > 0 {
			list = append(list, refusal{a.x(t), denied, stamp(at(t))})
		}
	}
	fmt.Fprintf(&area, "V%gZ", f.Bottom)
	c.Area = area.String()
	_, no := words(p.fill)
	c.addLane(a, no, list)
	return c
}

// maxNotes is how many levels are written beside their dots at most.
const maxNotes = 12

// close shows some consecutive requests, of which there is one at least, each with what it did.
func (p *picture) close(f frame) chart {
	first, last := p.closer[0].at, p.closer[len(p.closer)-1].at
	margin := max((last-first)/40, second/10)
	peak := 0.0
	for _, m := range p.closer {
		peak = max(peak, m.before, m.after)
		if p.fill {
			peak = max(peak, m.after+m.over)
		}
	}
	c, a := p.chart(f, first-margin, last+margin, peak,
		"level of "+shown(p.key.Key, 120)+" in a part of the log, against the capacity")
	begin := first
	if p.closer[0].before == 0 { // else the level came falling from before
		begin -= margin
	}
	c.Line = p.line(a, begin)
	c.Area = fmt.Sprintf("M%g %gL%s", a.x(begin), f.Bottom, strings.TrimPrefix(c.Line, "M")) +
		fmt.Sprintf("L%g %gZ", a.x(last), f.Bottom)
	var list []refusal
	for i := range p.closer {
		m := &p.closer[i]
		c.mark(a, p, m)
		if !m.end && m.refused() {
			list = append(list, refusal{a.x(m.at), 1, precise(m.at)})
		}
	}
	if len(c.Dots) > maxNotes {
		c.Notes = nil
	}
	if !p.fill { // what overflows has a mark of its own
		c.addLane(a, "refused", list)
	}
	return c
}

// line returns the way of the level.
func (p *picture) line(a axes, begin int64) string {
	var line strings.Builder
	command := "M"
	to := func(at int64, level float64) {
		fmt.Fprintf(&line, "%s%g %g", command, a.x(at), a.y(level))
		command = "L"
	}
	to(begin, p.closer[0].before)
	for i, m := range p.closer {
		if i > 0 {
			for _, w := range m.way {
				to(w.at, w.level)
			}
		}
		to(m.at, m.before)
		if !m.end && m.after != m.before {
			to(m.at, m.after)
		}
	}
	return line.String()
}

// mark draws what a request or the end of a call did.
func (c *chart) mark(a axes, p *picture, m *moment) {
	x, y := a.x(m.at), a.y(m.after)
	dot := func(class, title string) {
		level := number(m.after)
		title = precise(m.at) + ": " + title + ", level " + level
		c.Dots = append(c.Dots, shape{Class: class, X: x, Y: y, Title: title})
		c.note(x, y, level)
	}
	switch {
	case m.end:
	case m.settles:
		dot("settled", "settled")
	case p.fill && !m.allowed:
		top := a.y(m.after + m.over)
		c.Overs = append(c.Overs, shape{"over", round(x - 1), top, 2, max(2, round(y-top)), ""})
		dot("brim", "at the brim, "+number(m.over)+" overflowed")
		c.note(x, top, "+"+number(m.over))
	case p.fill && m.brim:
		dot("brim", "at the brim")
	case m.allowed && p.fill:
		dot("admitted", "fitted")
	case m.allowed:
		dot("admitted", "admitted")
	case m.blocked > 0:
		end := a.x(m.blocked)
		if n := len(c.Bands); n > 0 && c.Bands[n-1].X+c.Bands[n-1].W >= end {
			return // the same block
		}
		c.Bands = append(c.Bands, shape{
			Class: "blocked", X: x, Y: a.Top, W: round(end - x), H: a.Bottom - a.Top,
			Title: "blocked until " + precise(m.blocked),
		})
	}
}

// note writes a figure beside a place, unless it would cover the one before.
func (c *chart) note(x, y float64, text string) {
	if n := len(c.Notes); n > 0 && x-c.Notes[n-1].X < 26 && math.Abs(y-c.Notes[n-1].Y) < 12 {
		return
	}
	c.Notes = append(c.Notes, shape{X: x, Y: y, Title: text})
}

// precise writes a time with the fraction of its second, if it has one.
func precise(us int64) string { return at(us).Format("2006-01-02 15:04:05.999999") + " UTC" }
