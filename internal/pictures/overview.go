package pictures

import (
	"bytes"
	_ "embed"
	"fmt"
	"slices"
	"text/template"
	"time"
)

//go:embed overview.svg.tmpl
var overviewText string

var overviewTemplate = template.Must(template.New("overview").Parse(overviewText))

// asker is a kind of program that asks, and when it does, in seconds.
type asker struct {
	name, way string
	asks      []int
}

var askers = []asker{
	{"Go programs", "library, middleware", []int{3, 24, 41, 66, 88, 112}},
	{"nginx, Envoy, any service", "forward auth, HTTP, gRPC", []int{8, 30, 52, 70, 95}},
	{"psql, PostgREST, triggers", "SQL functions", []int{15, 36, 61, 79, 104}},
	{"cron, scripts", "headgate take", []int{20, 47, 75, 100, 116}},
}

// What the overview shows: this limit, for so long.
const (
	overviewLimit  = "sliding-log 5/1m"
	overviewLength = 120 * time.Second
)

// The lanes of the overview.
const (
	laneLeft  = 262.0
	laneRight = 572.0
	laneTop   = 52.0
	laneStep  = 56.0
)

type laneOf struct {
	Name, Way         string
	Top, Middle       float64 // of its box
	Admitted, Refused []float64
}

// DrawOverview returns the picture of the README as SVG: what asks, one limit, and the database. Which requests pass
// is what the limit decides.
func DrawOverview() ([]byte, error) {
	var all []time.Duration
	for _, a := range askers {
		for _, s := range a.asks {
			all = append(all, time.Duration(s)*time.Second)
		}
	}
	slices.Sort(all)
	r, err := play(overviewLimit, all, overviewLength, 0)
	if err != nil {
		return nil, err
	}
	_, most := r.busiest(time.Minute)
	d := struct {
		Style, Title, Sum, Row string
		LaneLeft, LaneRight    float64
		Lanes                  []laneOf
		Columns                []column
	}{
		Style: style, LaneLeft: laneLeft, LaneRight: laneRight,
		Title: "One limit for all: " + overviewLimit + ", at most 5 for each user in any minute",
		Sum: fmt.Sprintf("alice: %d of %d admitted, never more than %d within a minute", r.admitted(), len(r.requests),
			most),
		Row: fmt.Sprintf("login  alice  %g of 5", r.way[len(r.way)-1].level),
	}
	at := func(t time.Duration) float64 {
		return round(laneLeft + (laneRight-laneLeft)*t.Seconds()/overviewLength.Seconds())
	}
	for i, a := range askers {
		l := laneOf{Name: a.name, Way: a.way, Top: laneTop + laneStep*float64(i)}
		l.Middle = l.Top + 22
		for _, q := range r.requests {
			if !slices.Contains(a.asks, int(q.at.Seconds())) {
				continue
			}
			if q.admitted {
				l.Admitted = append(l.Admitted, at(q.at)-1.5)
			} else {
				l.Refused = append(l.Refused, at(q.at)-1.5)
			}
		}
		d.Lanes = append(d.Lanes, l)
	}
	for t := time.Duration(0); t <= overviewLength; t += time.Minute {
		d.Columns = append(d.Columns, column{at(t), fmt.Sprintf("%g min", t.Minutes())})
	}
	var b bytes.Buffer
	if err := overviewTemplate.Execute(&b, d); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
