package replay

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"
)

// WriteText writes the suggestion for people.
func (g *Suggestion) WriteText(w io.Writer) error {
	var b strings.Builder
	r := g.Choices[0].Report
	fmt.Fprintf(&b, "%s\n\n", r.sentence())
	r.textLog(&b)
	line := lineWriter(&b)
	r.textRequests(&b)
	line("may refuse", "%*s   %g %% of the %s", len(comma(r.Requests)), comma(g.Most), 100*g.Ask.Refuse, g.Ask.unit())
	r.textLines(&b)
	g.textPeaks(&b)
	g.textChoices(&b)
	g.Choices[0].textCurve(&b)
	textKeys(&b, "busiest keys", "refused", 6, g.Busiest)
	_, err := io.WriteString(w, b.String())
	return err
}

// sentence sums up in one line what the limit would have done.
func (r *Report) sentence() string {
	return fmt.Sprintf("%s refuses %s of requests, %s of %s", r.Notation, fineShare(r.Denied, r.Requests),
		comma(r.Refused), plural(r.Keys, "key"))
}

// unit returns what the share counts: requests or keys.
func (ask *Ask) unit() string {
	if ask.Keys {
		return "keys"
	}
	return "requests"
}

// periodNames are the periods that have a name.
var periodNames = map[time.Duration]string{
	time.Second: "second", time.Minute: "minute", time.Hour: "hour", 24 * time.Hour: "day",
}

// periodText writes a period for people.
func periodText(d time.Duration) string { return cmp.Or(periodNames[d], span(d)) }

// onePeriod writes a period with its article.
func onePeriod(d time.Duration) string {
	switch periodNames[d] {
	case "":
		return span(d)
	case "hour":
		return "an hour"
	}
	return "a " + periodNames[d]
}

func (g *Suggestion) textPeaks(b *strings.Builder) {
	rows := [][]any{{"the keys' own peaks in a", "half", "90 %", "95 %", "99 %", "99.9 %", "all"}}
	for _, p := range g.Peaks {
		rows = append(rows, []any{periodText(p.Period.Duration), p.Median, p.P90, p.P95, p.P99, p.P999, p.Highest})
	}
	table(b, "  %9s  %9s  %9s  %9s  %9s  %9s", rows)
}

func (g *Suggestion) textChoices(b *strings.Builder) {
	rows := [][]any{{"limits that refuse as little", "refused", "share", "keys", "share", "lets pass at most"}}
	for _, c := range g.Choices {
		rows = append(rows, []any{
			c.Notation, comma(c.Denied), fineShare(c.Denied, c.Requests), comma(c.Refused),
			fineShare(c.Refused, c.Keys), c.Passes.String() + " in " + onePeriod(c.Period.Duration),
		})
	}
	table(b, "  %9s  %8s  %9s  %8s  %s", rows)
}

// textCurve writes what the limit would refuse with other bursts, and which bursts other rates need.
func (c *Choice) textCurve(b *strings.Builder) {
	parameter := "number"
	if c.family.kind == tokenBucket {
		parameter = "burst"
	}
	for _, part := range []struct {
		name   string
		points []Point
	}{{"with another " + parameter, c.Curve}, {"with another rate, as little refused", c.Others}} {
		if len(part.points) == 0 {
			continue
		}
		rows := [][]any{{part.name, "refused", "share", "keys", ""}}
		for _, p := range part.points {
			mark := ""
			if p.Chosen {
				mark = "  <"
			}
			rows = append(rows, []any{p.Limit, comma(p.Denied), fineShare(p.Denied, c.Requests), comma(p.Keys), mark})
		}
		table(b, "  %9s  %8s  %9s%s", rows)
	}
}
