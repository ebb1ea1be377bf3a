package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
	"text/template"
)

//go:embed curve.svg.tmpl
var curveText string

var curveTemplate = template.Must(template.New("curve").Parse(curveText))

// The measures of a picture, in pixels.
const (
	panelWidth  = 300
	panelHeight = 200
	panelLeft   = 58 // for the figures of the scale
	panelTop    = 72
	panelGap    = 16
	panelFoot   = 44
)

type (
	// point is a comparison's place in a picture over callers.
	point struct {
		picture, title string // for the file; above it
		panel          string // which work
		callers        int
	}
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

// curves returns, by its name, each picture of decisions a second over callers that the results name: a panel for
// each work, with Headgate, the best rival and the best ceiling. Both axes are logarithmic.
func curves(results []result) map[string][]byte {
	of := map[string][]*result{}
	for i := range results {
		if r := &results[i]; r.curve != nil && r.best(ours) != nil {
			of[r.curve.picture] = append(of[r.curve.picture], r)
		}
	}
	pictures := map[string][]byte{}
	for name, points := range of {
		pictures[name] = draw(points)
	}
	return pictures
}

func draw(points []*result) []byte {
	var works []string
	of := map[string][]*result{}
	low, high := math.Inf(1), 0.0
	for _, r := range points {
		if !slices.Contains(works, r.curve.panel) {
			works = append(works, r.curve.panel)
		}
		of[r.curve.panel] = append(of[r.curve.panel], r)
		for _, s := range []side{ours, rival, ceiling} {
			if f := r.best(s); f != nil {
				low, high = min(low, f.median), max(high, f.median)
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
		Title:  html.EscapeString(points[0].curve.title + ": decisions a second, by the number of callers"),
		Legend: html.EscapeString(legend(points)),
	}
	for i, work := range works {
		p := panel{
			X: panelLeft + i*(panelWidth+panelGap), Title: html.EscapeString(work),
			Top: panelTop, Bottom: panelTop + panelHeight,
		}
		p.Left, p.Right, p.Middle = p.X, p.X+panelWidth-panelLeft/2, p.X+panelWidth/2-panelLeft/4
		p.draw(of[work], low, high, i == 0)
		data.Panels = append(data.Panels, p)
	}
	var b bytes.Buffer
	if err := curveTemplate.Execute(&b, data); err != nil {
		return nil
	}
	return b.Bytes()
}

// draw puts the points of a work into its panel. The scale goes from 10^low to 10^high.
func (p *panel) draw(of []*result, low, high float64, first bool) {
	y := func(v float64) int { return p.Bottom - int(panelHeight*(math.Log10(v)-low)/(high-low)) }
	x := func(i int) int { return p.Left + 14 + i*(p.Right-p.Left-28)/max(1, len(of)-1) }
	for e := low; e <= high; e++ {
		text := ""
		if first {
			text = power(e)
		}
		p.Scale = append(p.Scale, label{p.Left - 6, y(math.Pow(10, e)), text})
	}
	for i, r := range of {
		p.Callers = append(p.Callers, label{x(i), p.Bottom + 18, fmt.Sprint(r.curve.callers)})
	}
	for _, s := range []side{ceiling, rival, ours} {
		l := polyline{Class: [...]string{"ours", "rival", "ceiling"}[s]}
		var points []string
		for i, r := range of {
			if f := r.best(s); f != nil && f.median > 0 {
				dot := label{x(i), y(f.median), html.EscapeString(f.label + ": " + amount(f.median) + "/s")}
				l.Dots = append(l.Dots, dot)
				points = append(points, fmt.Sprintf("%d,%d", dot.X, dot.Y))
			}
		}
		l.Points = strings.Join(points, " ")
		p.Lines = append(p.Lines, l)
	}
}

// legend names what the lines are.
func legend(points []*result) string {
	names := func(of side) string {
		var list []string
		for _, r := range points {
			if f := r.best(of); f != nil {
				name, _, _ := strings.Cut(f.label, ", ")
				if !slices.Contains(list, name) {
					list = append(list, name)
				}
			}
		}
		return strings.Join(list, " or ")
	}
	text := "Green: Headgate."
	if n := names(rival); n != "" {
		text += " Grey: " + n + "."
	}
	if n := names(ceiling); n != "" {
		text += " Dashed: " + n + "."
	}
	return text
}

// power writes a power of ten.
func power(e float64) string {
	unit := [...]string{"", "k", "M", "G"}[max(0, int(e)/3)]
	return fmt.Sprintf("%.0f%s", math.Pow(10, e-3*math.Floor(e/3)), unit)
}
