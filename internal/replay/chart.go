package replay

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// The frame of a chart, in units of its view box.
const (
	chartWidth  = 960
	plotLeft    = 52
	plotRight   = 946
	plotTop     = 14
	plotBottom  = 196
	chartHeight = 222
	laneHeight  = 9 // of the marks of refusals, at the top
)

// chart is a picture in SVG, its shapes computed here and drawn by the page.
type chart struct {
	Label   string // for people who cannot see it
	Rows    []tick
	Columns []tick
	Bands   []shape
	Bars    []shape
	Area    string
	Line    string
	Cap     *tick
	Stems   []shape
	Dots    []shape
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
	start, end int64
	most       float64
}

func newAxes(start, end int64, most float64) axes {
	return axes{start, max(end, start+1), max(most, 1e-9)}
}

func (a axes) x(at int64) float64 {
	f := float64(at-a.start) / float64(a.end-a.start)
	return round(plotLeft + (plotRight-plotLeft)*min(max(f, 0), 1))
}

func (a axes) y(v float64) float64 {
	return round(plotBottom - (plotBottom-plotTop)*min(max(v/a.most, 0), 1))
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
	width := bucketWidth(a.end-a.start, 9)
	form := "15:04"
	if width < 60*second {
		form = "15:04:05"
	}
	date := ""
	for t := a.start - a.start%width + width; t <= a.end; t += width {
		if a.x(t) > plotRight-14 {
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

// number writes an amount shortly.
func number(v float64) string {
	if v >= 1000 && v == math.Trunc(v) && v < 1e15 {
		return comma(int64(v))
	}
	return strconv.FormatFloat(math.Round(v*1000)/1000, 'f', -1, 64)
}

// trafficChart shows admitted and refused requests as stacked bars.
func (r *Report) trafficChart() chart {
	var most int64 = 1
	for _, b := range r.Buckets {
		most = max(most, b.Allowed+b.Denied)
	}
	start := r.Buckets[0].Start.UnixMicro()
	width := r.Width.Microseconds()
	a := newAxes(start, start+width*int64(len(r.Buckets)), 1.06*float64(most))
	c := chart{
		Label:   "requests admitted and refused over time",
		Rows:    a.rows(),
		Columns: a.columns(),
	}
	for _, b := range r.Buckets {
		if b.Allowed+b.Denied == 0 {
			continue
		}
		t := b.Start.UnixMicro()
		x := a.x(t)
		w := max(0.6, round((a.x(t+width)-x)*0.86))
		title := fmt.Sprintf("%s, %s: %s admitted, %s refused", stamp(b.Start), span(r.Width), comma(b.Allowed),
			comma(b.Denied))
		low := a.y(float64(b.Allowed))
		if b.Allowed > 0 {
			c.Bars = append(c.Bars, shape{"admitted", x, low, w, round(plotBottom - low), title})
		}
		if b.Denied > 0 {
			top := min(a.y(float64(b.Allowed+b.Denied)), low-1)
			c.Bars = append(c.Bars, shape{"refused", x, top, w, round(low - top), title})
		}
	}
	return c
}

func (p *picture) axes(start, end int64, peak float64) axes {
	return newAxes(start, end, 1.16*max(peak, p.capacity))
}

func (p *picture) cap(a axes) *tick {
	return &tick{a.y(p.capacity), "capacity " + number(p.capacity)}
}

// wholeChart shows the highest level in each column over the whole log.
func (p *picture) wholeChart() chart {
	var peak float64
	for _, c := range p.columns {
		peak = max(peak, c.peak)
	}
	a := p.axes(p.start, p.start+p.width*int64(len(p.columns)), peak)
	c := chart{
		Label:   "highest level of " + printable(p.key.Key) + " over the whole log, against the capacity",
		Rows:    a.rows(),
		Columns: a.columns(),
		Cap:     p.cap(a),
	}
	var area strings.Builder
	fmt.Fprintf(&area, "M%g %gV", float64(plotLeft), float64(plotBottom))
	for i, col := range p.columns {
		t := p.start + int64(i)*p.width
		if i > 0 {
			area.WriteString("V")
		}
		fmt.Fprintf(&area, "%gH%g", a.y(col.peak), a.x(t+p.width))
		if col.denied > 0 {
			x := a.x(t)
			c.Stems = append(c.Stems, shape{
				Class: "refused", X: x, Y: plotTop - laneHeight, W: max(1.4, round(a.x(t+p.width)-x)), H: laneHeight,
				Title: fmt.Sprintf("%s, %s: %s admitted, %s refused", stamp(at(t)),
					span(time.Duration(p.width)*time.Microsecond), comma(col.allowed), comma(col.denied)),
			})
		}
	}
	fmt.Fprintf(&area, "V%gZ", float64(plotBottom))
	c.Area = area.String()
	return c
}

// closerChart shows some consecutive requests, each with what it did.
func (p *picture) closerChart() chart {
	if len(p.closer) == 0 {
		return chart{}
	}
	first, last := p.closer[0].at, p.closer[len(p.closer)-1].at
	margin := max((last-first)/40, second/10)
	var peak float64
	for _, m := range p.closer {
		peak = max(peak, m.before, m.after)
	}
	a := p.axes(first-margin, last+margin, peak)
	c := chart{
		Label:   "level of " + printable(p.key.Key) + " in a part of the log, against the capacity",
		Rows:    a.rows(),
		Columns: a.columns(),
		Cap:     p.cap(a),
	}
	var line strings.Builder
	to := func(at int64, level float64) {
		if line.Len() == 0 {
			fmt.Fprintf(&line, "M%g %g", a.x(at), a.y(level))
		} else {
			fmt.Fprintf(&line, "L%g %g", a.x(at), a.y(level))
		}
	}
	begin := first
	if p.closer[0].before == 0 { // else the level came falling from before
		begin -= margin
	}
	to(begin, p.closer[0].before)
	for i, m := range p.closer {
		if i > 0 {
			for _, w := range m.way {
				to(w.at, w.level)
			}
		}
		to(m.at, m.before)
		switch {
		case m.end:
		case m.allowed:
			to(m.at, m.after)
			c.Dots = append(c.Dots, shape{
				Class: "admitted", X: a.x(m.at), Y: a.y(m.after),
				Title: fmt.Sprintf("%s: admitted, level %s", precise(m.at), number(m.after)),
			})
		default:
			x, y := a.x(m.at), a.y(m.before)
			c.Stems = append(c.Stems, shape{
				Class: "refused", X: x - 0.7, Y: plotTop - laneHeight, W: 1.4, H: round(y - plotTop + laneHeight),
				Title: fmt.Sprintf("%s: refused, level %s", precise(m.at), number(m.before)),
			})
			if m.blocked > 0 {
				end := a.x(m.blocked)
				if n := len(c.Bands); n > 0 && c.Bands[n-1].X+c.Bands[n-1].W >= end {
					continue // the same block
				}
				c.Bands = append(c.Bands, shape{
					Class: "blocked", X: x, Y: plotTop, W: round(end - x),
					H: plotBottom - plotTop, Title: "blocked until " + precise(m.blocked),
				})
			}
		}
	}
	c.Line = line.String()
	c.Area = fmt.Sprintf("M%g %gL%s", a.x(begin), float64(plotBottom), strings.TrimPrefix(c.Line, "M")) +
		fmt.Sprintf("L%g %gZ", a.x(last), float64(plotBottom))
	return c
}

// precise writes a time with the fraction of its second, if it has one.
func precise(us int64) string { return at(us).Format("2006-01-02 15:04:05.999999") + " UTC" }
