package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
	"text/template"

	"github.com/headgate/headgate/bench/compare"
)

//go:embed curve.svg.tmpl
var curveText string

var curve = template.Must(template.New("curve").Parse(curveText))

// The measures of a picture with curves, in pixels.
const (
	panelWidth  = 300
	panelHeight = 200
	panelLeft   = 58 // for the figures of the scale
	panelTop    = 72
	panelGap    = 16
	panelFoot   = 44
)

type (
	label struct {
		X, Y int
		Text string
	}
	polyline struct {
		Class, Points string
		Dots          []label
	}
	panel struct {
		X                                int
		Title                            string
		Scale, Callers                   []label
		Lines                            []polyline
		Left, Right, Top, Bottom, Middle int
	}
)

// Curves returns a picture of decisions a second over callers for each picture that the results
// name, by its name: a panel for each work, with Headgate, the best rival and the best ceiling.
// Both axes are logarithmic.
func Curves(results []compare.Result) map[string][]byte {
	of := map[string][]*compare.Result{}
	for i := range results {
		if r := &results[i]; r.Curve != nil && r.Best(compare.Ours) != nil {
			of[r.Curve.Picture] = append(of[r.Curve.Picture], r)
		}
	}
	pictures := map[string][]byte{}
	for name, points := range of {
		pictures[name] = curves(points)
	}
	return pictures
}

func curves(points []*compare.Result) []byte {
	var works []string
	low, high := math.Inf(1), 0.0
	for _, r := range points {
		if !slices.Contains(works, r.Curve.Panel) {
			works = append(works, r.Curve.Panel)
		}
		for _, side := range []compare.Side{compare.Ours, compare.Rival, compare.Ceiling} {
			if f := r.Best(side); f != nil {
				low, high = min(low, f.Median), max(high, f.Median)
			}
		}
	}
	low, high = math.Floor(math.Log10(low)), math.Ceil(math.Log10(high)+0.01)
	data := struct {
		Width, Height int
		Title, Legend string
		Panels        []panel
	}{
		Width:  panelLeft + len(works)*(panelWidth+panelGap) + panelGap,
		Height: panelTop + panelHeight + panelFoot,
		Title:  html.EscapeString(points[0].Curve.Title + ": decisions a second, by the number of callers"),
		Legend: html.EscapeString(legend(points)),
	}
	for i, work := range works {
		p := panel{
			X: panelLeft + i*(panelWidth+panelGap), Title: html.EscapeString(work),
			Top: panelTop, Bottom: panelTop + panelHeight,
		}
		p.Left, p.Right, p.Middle = p.X, p.X+panelWidth-panelLeft/2, p.X+panelWidth/2-panelLeft/4
		var of []*compare.Result
		for _, r := range points {
			if r.Curve.Panel == work {
				of = append(of, r)
			}
		}
		p.draw(of, low, high, i == 0)
		data.Panels = append(data.Panels, p)
	}
	var b bytes.Buffer
	if err := curve.Execute(&b, data); err != nil {
		return nil
	}
	return b.Bytes()
}

// draw puts the points of a work into its panel. The scale goes from 10^low to 10^high.
func (p *panel) draw(of []*compare.Result, low, high float64, first bool) {
	y := func(v float64) int {
		return p.Bottom - int(float64(panelHeight)*(math.Log10(v)-low)/(high-low))
	}
	x := func(i int) int { return p.Left + 14 + i*(p.Right-p.Left-28)/max(1, len(of)-1) }
	for e := low; e <= high; e++ {
		text := ""
		if first {
			text = short(math.Pow(10, e))
		}
		p.Scale = append(p.Scale, label{p.Left - 6, y(math.Pow(10, e)), text})
	}
	for i, r := range of {
		p.Callers = append(p.Callers, label{x(i), p.Bottom + 18, fmt.Sprint(r.Curve.Callers)})
	}
	for _, side := range []compare.Side{compare.Ceiling, compare.Rival, compare.Ours} {
		l := polyline{Class: [...]string{"ours", "rival", "ceiling"}[side]}
		var points []string
		for i, r := range of {
			if f := r.Best(side); f != nil && f.Median > 0 {
				dot := label{x(i), y(f.Median), html.EscapeString(f.Label + ": " + amount(f.Median, r.Unit))}
				l.Dots = append(l.Dots, dot)
				points = append(points, fmt.Sprintf("%d,%d", dot.X, dot.Y))
			}
		}
		l.Points = strings.Join(points, " ")
		p.Lines = append(p.Lines, l)
	}
}

// legend names what the lines are.
func legend(points []*compare.Result) string {
	names := func(side compare.Side) string {
		var list []string
		for _, r := range points {
			if f := r.Best(side); f != nil {
				name, _, _ := strings.Cut(f.Label, ", ")
				if !slices.Contains(list, name) {
					list = append(list, name)
				}
			}
		}
		return strings.Join(list, " or ")
	}
	text := "Green: Headgate."
	if n := names(compare.Rival); n != "" {
		text += " Grey: " + n + "."
	}
	if n := names(compare.Ceiling); n != "" {
		text += " Dashed: " + n + "."
	}
	return text
}

// short writes a power of ten.
func short(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.0fM", v/1e6)
	case v >= 1e3:
		return fmt.Sprintf("%.0fk", v/1e3)
	}
	return fmt.Sprintf("%.0f", v)
}
