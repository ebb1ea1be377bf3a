package replay

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// frame has the places of a chart's parts, in units of its view box.
type frame struct {
	Name          string // class in the style, which shows each frame on screens of its width
	Width, Height float64
	Left, Right   float64 // edges of the plot
	Top, Bottom   float64
	maxTicks      int64 // how many columns are labelled at most
}

// The lane above the plot has the refusals: the height of its highest bar, and the width of a bar with its gap.
const laneHeight, laneBarWidth = 22, 4

// The frames: a chart is drawn for wide screens and for phones, so that its text is as high on both.
var frames = []frame{
	{Name: "wide", Width: 960, Height: 240, Left: 52, Right: 946, Top: 36, Bottom: 212, maxTicks: 9},
	{Name: "narrow", Width: 380, Height: 240, Left: 40, Right: 372, Top: 36, Bottom: 212, maxTicks: 6},
}

// Foot returns the lower end of the marks of columns.
func (f frame) Foot() float64 { return f.Bottom + 5 }

// chart has the shapes of a picture, which the page's template writes as SVG.
type chart struct {
	Frame       frame
	Label       string  // for people who cannot see it
	Rows        []tick  // marks of amounts
	Columns     []tick  // marks of times
	Bands       []shape // blocks
	Bars        []shape // numbers of requests
	Area        string  // path of the area below the level
	Line        string  // path of the level
	Cap         *tick   // the line of the capacity
	Dots        []shape
	Notes       []shape // figures beside their dots: Title is the text
	LaneBars    []shape // bars of refusals, above the plot
	MaxRefusals string  // number of refusals of the highest of LaneBars
	Overflows   []shape // bars of what overflowed, above the level
}

type tick struct {
	At    float64 // place in the frame
	Label string
}

type shape struct {
	Class      string
	X, Y, W, H float64
	Title      string
}

// axes maps times and amounts to places in a frame.
type axes struct {
	frame
	start, end int64
	maxAmount  float64
}

func (f frame) axes(start, end int64, maxAmount float64) axes {
	return axes{f, start, max(end, start+1), max(maxAmount, 1e-9)}
}

func (a axes) x(at int64) float64 {
	f := float64(at-a.start) / float64(a.end-a.start)
	return round(a.Left + (a.Right-a.Left)*min(max(f, 0), 1))
}

func (a axes) y(v float64) float64 {
	return round(a.Bottom - (a.Bottom-a.Top)*min(max(v/a.maxAmount, 0), 1))
}

func round(f float64) float64 { return math.Round(f*10) / 10 }

// rowTicks returns marks at round amounts.
func (a axes) rowTicks() (ticks []tick) {
	step := math.Pow(10, math.Floor(math.Log10(a.maxAmount)))
	for _, f := range []float64{0.1, 0.2, 0.5, 1, 2} {
		if a.maxAmount/(step*f) <= 5 {
			step *= f
			break
		}
	}
	for i := 0; i < 12 && float64(i)*step <= a.maxAmount; i++ {
		ticks = append(ticks, tick{a.y(float64(i) * step), formatNumber(float64(i) * step)})
	}
	return ticks
}

// columnTicks returns marks at round times.
func (a axes) columnTicks() (ticks []tick) {
	width := bucketWidth(a.end-a.start, a.maxTicks)
	timeFormat := "15:04"
	if width < 60*second {
		timeFormat = "15:04:05"
	}
	date := ""
	for t := a.start - a.start%width + width; t <= a.end; t += width {
		if a.x(t) > a.Right-14 { // no room for half a label
			break
		}
		label := timeOf(t).Format(timeFormat)
		if d := timeOf(t).Format("2 Jan"); width >= day || t%day == 0 || date == "" && a.end-a.start > day {
			label, date = d, d
			if t%day != 0 {
				label += " " + timeOf(t).Format(timeFormat)
			}
		}
		ticks = append(ticks, tick{a.x(t), label})
	}
	return ticks
}

// newChart returns a chart that has only the marks at its edges.
func (a axes) newChart(label string) chart {
	return chart{Frame: a.frame, Label: label, Rows: a.rowTicks(), Columns: a.columnTicks()}
}

// formatNumber returns an amount with at most three decimals.
func formatNumber(v float64) string {
	if v >= 1000 && v == math.Trunc(v) && v < 1e15 {
		return comma(int64(v))
	}
	return strconv.FormatFloat(math.Round(v*1000)/1000, 'f', -1, 64)
}

// trafficChart shows admitted and refused requests as stacked bars.
func (r *Report) trafficChart(f frame) chart {
	var maxRequests int64 = 1
	for _, b := range r.Buckets {
		maxRequests = max(maxRequests, b.Allowed+b.Denied)
	}
	admitted, refused := resultWords(r.Fill)
	start := r.Buckets[0].Start.UnixMicro()
	width := r.Width.Microseconds()
	f.Top = 12
	a := f.axes(start, start+width*int64(len(r.Buckets)), 1.06*float64(maxRequests))
	c := a.newChart("requests " + admitted + " and " + refused + " over time")
	for _, b := range r.Buckets {
		if b.Allowed+b.Denied == 0 {
			continue
		}
		t := b.Start.UnixMicro()
		x := a.x(t)
		w := max(0.6, round((a.x(t+width)-x)*0.86))
		title := fmt.Sprintf("%s, %s: %s %s, %s %s", formatTime(b.Start), formatDuration(r.Width.Duration),
			comma(b.Allowed), admitted, comma(b.Denied), refused)
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

// levelChart returns a chart for levels from start to end, high enough for the capacity and a peak, and its axes.
func (p *picture) levelChart(f frame, start, end int64, peak float64, label string) (chart, axes) {
	a := f.axes(start, end, 1.16*max(peak, p.capacity))
	c := a.newChart(label)
	c.Cap = &tick{a.y(p.capacity), "capacity " + formatNumber(p.capacity)}
	return c, a
}

// refusal is a number of refused requests at one place of a chart.
type refusal struct {
	x     float64
	count int64
	title string // time of the request, or of the beginning of its columns
}

// addLane draws refusals as bars above the plot, where they cover nothing: refusals that are close together become one
// bar, whose height shows their number.
func (c *chart) addLane(a axes, refused string, refusals []refusal) {
	var bars []refusal
	maxCount := int64(1)
	for _, r := range refusals {
		at := a.Left + math.Floor((r.x-a.Left)/laneBarWidth)*laneBarWidth
		if n := len(bars); n > 0 && bars[n-1].x == at {
			bars[n-1].count += r.count
		} else {
			bars = append(bars, refusal{at, r.count, r.title})
		}
		maxCount = max(maxCount, bars[len(bars)-1].count)
	}
	for _, b := range bars {
		h := max(3, round(laneHeight*float64(b.count)/float64(maxCount)))
		title := b.title
		if b.count > 1 {
			title = fmt.Sprintf("from %s on: %s %s", b.title, comma(b.count), refused)
		}
		c.LaneBars = append(c.LaneBars, shape{"refused", round(b.x), a.Top - 6 - h, laneBarWidth - 1, h, title})
	}
	if len(bars) > 0 {
		c.MaxRefusals = comma(maxCount)
	}
}

// wholeChart shows the highest level and the refusals over the whole log, by columns or, in a narrow frame, by several.
func (p *picture) wholeChart(f frame) chart {
	peak := 0.0
	for _, c := range p.columns {
		peak = max(peak, c.peak)
	}
	c, a := p.levelChart(f, p.start, p.start+p.width*int64(len(p.columns)), peak,
		"highest level of "+displayKey(p.key.Key, 120)+" over the whole log, against the capacity")
	step := max(1, int(math.Ceil(float64(len(p.columns))/((f.Right-f.Left)/1.8)))) // at least 1.8 units wide
	var area strings.Builder
	fmt.Fprintf(&area, "M%g %gV", f.Left, f.Bottom)
	var refusals []refusal
	for i := 0; i < len(p.columns); i += step {
		t, high, denied := p.start+int64(i)*p.width, 0.0, int64(0)
		last := min(i+step, len(p.columns))
		for _, col := range p.columns[i:last] {
			high, denied = max(high, col.peak), denied+col.denied
		}
		if i > 0 {
			area.WriteString("V")
		}
		fmt.Fprintf(&area, "%gH%g", a.y(high), a.x(p.start+int64(last)*p.width))
		if denied > 0 {
			refusals = append(refusals, refusal{a.x(t), denied, formatTime(timeOf(t))})
		}
	}
	fmt.Fprintf(&area, "V%gZ", f.Bottom)
	c.Area = area.String()
	_, refused := resultWords(p.fill)
	c.addLane(a, refused, refusals)
	return c
}

// maxNotes is how many dots a chart may have if their levels are to be written beside them.
const maxNotes = 12

// closeUpChart shows each moment of closeUp, which is not empty, with its effect on the level.
func (p *picture) closeUpChart(f frame) chart {
	first, last := p.closeUp[0].at, p.closeUp[len(p.closeUp)-1].at
	margin := max((last-first)/40, second/10)
	peak := 0.0
	for _, m := range p.closeUp {
		peak = max(peak, m.before, m.after)
		if p.fill {
			peak = max(peak, m.after+m.overflow)
		}
	}
	c, a := p.levelChart(f, first-margin, last+margin, peak,
		"level of "+displayKey(p.key.Key, 120)+" in a part of the log, against the capacity")
	begin := first
	if p.closeUp[0].before == 0 { // else the line begins at a level that was already falling
		begin -= margin
	}
	c.Line = p.linePath(a, begin)
	c.Area = fmt.Sprintf("M%g %gL%s", a.x(begin), f.Bottom, strings.TrimPrefix(c.Line, "M")) +
		fmt.Sprintf("L%g %gZ", a.x(last), f.Bottom)
	var refusals []refusal
	for i := range p.closeUp {
		m := &p.closeUp[i]
		c.mark(a, p, m)
		if !m.isEnd && m.refused() {
			refusals = append(refusals, refusal{a.x(m.at), 1, formatPreciseTime(m.at)})
		}
	}
	if len(c.Dots) > maxNotes {
		c.Notes = nil
	}
	if !p.fill { // an overflow has its own mark
		c.addLane(a, "refused", refusals)
	}
	return c
}

// linePath returns the level from begin to the end of closeUp as the path of an SVG.
func (p *picture) linePath(a axes, begin int64) string {
	var line strings.Builder
	command := "M"
	lineTo := func(at int64, level float64) {
		fmt.Fprintf(&line, "%s%g %g", command, a.x(at), a.y(level))
		command = "L"
	}
	lineTo(begin, p.closeUp[0].before)
	for i, m := range p.closeUp {
		if i > 0 {
			for _, w := range m.path {
				lineTo(w.at, w.level)
			}
		}
		lineTo(m.at, m.before)
		if !m.isEnd && m.after != m.before {
			lineTo(m.at, m.after)
		}
	}
	return line.String()
}

// mark draws the effect of a request or of a settlement. Of a refusal it draws only the block: addLane draws the rest.
func (c *chart) mark(a axes, p *picture, m *moment) {
	x, y := a.x(m.at), a.y(m.after)
	addDot := func(class, title string) {
		level := formatNumber(m.after)
		title = formatPreciseTime(m.at) + ": " + title + ", level " + level
		c.Dots = append(c.Dots, shape{Class: class, X: x, Y: y, Title: title})
		c.note(x, y, level)
	}
	switch {
	case m.isEnd:
	case m.isSettlement:
		addDot("settled", "settled")
	case p.fill && !m.allowed:
		top := a.y(m.after + m.overflow)
		c.Overflows = append(c.Overflows, shape{"over", round(x - 1), top, 2, max(2, round(y-top)), ""})
		addDot("brim", "at the brim, "+formatNumber(m.overflow)+" overflowed")
		c.note(x, top, "+"+formatNumber(m.overflow))
	case p.fill && m.brim:
		addDot("brim", "at the brim")
	case m.allowed && p.fill:
		addDot("admitted", "fitted")
	case m.allowed:
		addDot("admitted", "admitted")
	case m.blockedUntil > 0:
		end := a.x(m.blockedUntil)
		if n := len(c.Bands); n > 0 && c.Bands[n-1].X+c.Bands[n-1].W >= end {
			return // the same block
		}
		c.Bands = append(c.Bands, shape{
			Class: "blocked", X: x, Y: a.Top, W: round(end - x), H: a.Bottom - a.Top,
			Title: "blocked until " + formatPreciseTime(m.blockedUntil),
		})
	}
}

// note writes a figure beside a place, unless it would cover the figure before it.
func (c *chart) note(x, y float64, text string) {
	if n := len(c.Notes); n > 0 && x-c.Notes[n-1].X < 26 && math.Abs(y-c.Notes[n-1].Y) < 12 {
		return
	}
	c.Notes = append(c.Notes, shape{X: x, Y: y, Title: text})
}

// formatPreciseTime returns a time with the fraction of its second, if it has one.
func formatPreciseTime(us int64) string {
	return timeOf(us).Format("2006-01-02 15:04:05.999999") + " UTC"
}
