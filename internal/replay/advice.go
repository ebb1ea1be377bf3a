package replay

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// WriteText writes the suggestion for people.
func (g *Suggestion) WriteText(w io.Writer) error {
	var b strings.Builder
	r := g.Choices[0].Report
	fmt.Fprintf(&b, "%s\n\n", g.Choices[0].Sentence())
	r.textLog(&b)
	line := writer(&b)
	n := len(comma(r.Requests))
	line("requests", "%*s   from %s (%s)", n, comma(r.Requests), plural(int64(r.Keys), "key"), r.Field)
	of := "requests"
	if g.Ask.Keys {
		of = "keys"
	}
	line("may refuse", "%*s   %s of the %s", n, comma(g.Most), shareOf(g.Ask.Refuse), of)
	r.textLines(&b)
	g.textPeaks(&b)
	g.textChoices(&b)
	g.Choices[0].textCurve(&b)
	g.textBusiest(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// Sentence says in one line what the limit would have done.
func (c *Choice) Sentence() string {
	return fmt.Sprintf("%s refuses %s of requests, %s of %s", c.Notation, finely(c.Denied, c.Requests),
		comma(int64(c.Refused)), plural(int64(c.Keys), "key"))
}

func shareOf(f float64) string { return fmt.Sprintf("%g %%", 100*f) }

// per writes a period for people.
func per(d time.Duration) string {
	switch d {
	case time.Second:
		return "second"
	case time.Minute:
		return "minute"
	case time.Hour:
		return "hour"
	case 24 * time.Hour:
		return "day"
	}
	return span(d)
}

// aPer is per with its article.
func aPer(d time.Duration) string {
	switch name := per(d); name {
	case "hour":
		return "an " + name
	case "second", "minute", "day":
		return "a " + name
	default:
		return name
	}
}

func (g *Suggestion) textPeaks(b *strings.Builder) {
	fmt.Fprintf(b, "\n%-24s  %9s  %9s  %9s  %9s  %9s  %9s\n", "the keys' own peaks in a", "half", "90 %", "95 %",
		"99 %", "99.9 %", "all")
	for _, p := range g.Peaks {
		fmt.Fprintf(b, "%-24s  %9s  %9s  %9s  %9s  %9s  %9s\n", per(p.Period), p.Median, p.P90, p.P95, p.P99, p.P999,
			p.Highest)
	}
}

func (g *Suggestion) textChoices(b *strings.Builder) {
	wide := len("limits that refuse as little")
	for _, c := range g.Choices {
		wide = max(wide, utf8.RuneCountInString(c.Notation))
	}
	fmt.Fprintf(b, "\n%s  %9s  %8s  %9s  %8s  %s\n", pad("limits that refuse as little", wide), "refused", "share",
		"keys", "share", "lets pass at most")
	for _, c := range g.Choices {
		fmt.Fprintf(b, "%s  %9s  %8s  %9s  %8s  %s in %s\n", pad(c.Notation, wide), comma(c.Denied),
			finely(c.Denied, c.Requests), comma(int64(c.Refused)), finely(int64(c.Refused), int64(c.Keys)), c.Passes,
			aPer(c.Period))
	}
}

// number is what the limits of a Curve differ in.
func (k kind) number() string {
	if k == tokenBucket {
		return "burst"
	}
	return "number"
}

// textCurve writes what other bursts would refuse, and which bursts other rates need.
func (c *Choice) textCurve(b *strings.Builder) {
	for _, part := range []struct {
		name   string
		points []Point
	}{{"with another " + c.family.kind.number(), c.Curve}, {"with another rate, as little refused", c.Others}} {
		if len(part.points) == 0 {
			continue
		}
		wide := utf8.RuneCountInString(part.name)
		for _, p := range part.points {
			wide = max(wide, utf8.RuneCountInString(p.Limit))
		}
		fmt.Fprintf(b, "\n%s  %9s  %8s  %9s\n", pad(part.name, wide), "refused", "share", "keys")
		for _, p := range part.points {
			mark := ""
			if p.Chosen {
				mark = "  <"
			}
			fmt.Fprintf(b, "%s  %9s  %8s  %9s%s\n", pad(p.Limit, wide), comma(p.Denied), finely(p.Denied, c.Requests),
				comma(int64(p.Keys)), mark)
		}
	}
}

func (g *Suggestion) textBusiest(b *strings.Builder) {
	if len(g.Busiest) == 0 {
		return
	}
	wide := len("busiest keys")
	for _, k := range g.Busiest {
		wide = max(wide, utf8.RuneCountInString(shorten(printable(k.Key), 60)))
	}
	fmt.Fprintf(b, "\n%s  %10s  refused by each limit, in their order\n", pad("busiest keys", wide), "requests")
	for _, k := range g.Busiest {
		fmt.Fprintf(b, "%s  %10s", pad(shorten(printable(k.Key), 60), wide), comma(k.Requests))
		for _, n := range k.Denied {
			fmt.Fprintf(b, "  %6s", comma(n))
		}
		b.WriteByte('\n')
	}
}

// WriteJSON writes the suggestion as one JSON object. Each limit of it has the members that WriteJSON of its
// Report writes.
func (g *Suggestion) WriteJSON(w io.Writer) error {
	type point struct {
		Limit  string `json:"limit"`
		Denied int64  `json:"denied"`
		Keys   int    `json:"keys_denied"`
		Chosen bool   `json:"chosen,omitempty"`
	}
	type choice struct {
		*jsonReport
		Sentence string  `json:"sentence"`
		Period   float64 `json:"period_seconds"`
		Passes   float64 `json:"most_in_period"`
		Curve    []point `json:"curve"`
		Others   []point `json:"other_rates,omitempty"`
	}
	type peaks struct {
		Seconds float64 `json:"seconds"`
		Median  Total   `json:"p50"`
		P90     Total   `json:"p90"`
		P95     Total   `json:"p95"`
		P99     Total   `json:"p99"`
		P999    Total   `json:"p999"`
		Highest Total   `json:"max"`
	}
	type row struct {
		Key      string  `json:"key"`
		Requests int64   `json:"requests"`
		Denied   []int64 `json:"denied"`
	}
	out := struct {
		Refuse  float64  `json:"refuse"`
		Of      string   `json:"of"`
		Most    int64    `json:"most"`
		Peaks   []peaks  `json:"peaks"`
		Limits  []choice `json:"limits"`
		Busiest []row    `json:"busiest"`
	}{Refuse: g.Ask.Refuse, Of: "requests", Most: g.Most}
	if g.Ask.Keys {
		out.Of = "keys"
	}
	for _, p := range g.Peaks {
		out.Peaks = append(out.Peaks, peaks{p.Period.Seconds(), p.Median, p.P90, p.P95, p.P99, p.P999, p.Highest})
	}
	for i := range g.Choices {
		c := &g.Choices[i]
		o := choice{
			jsonReport: c.json(), Sentence: c.Sentence(), Period: c.Period.Seconds(),
			Passes: c.Passes.Float64(),
		}
		for _, p := range c.Curve {
			o.Curve = append(o.Curve, point(p))
		}
		for _, p := range c.Others {
			o.Others = append(o.Others, point(p))
		}
		out.Limits = append(out.Limits, o)
	}
	for _, k := range g.Busiest {
		out.Busiest = append(out.Busiest, row(k))
	}
	return writeJSON(w, out)
}
