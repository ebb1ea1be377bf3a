package replay

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"
)

// WriteText writes the suggestion for people.
func (s *Suggestion) WriteText(w io.Writer) error {
	var b strings.Builder
	r := s.Choices[0].Report
	fmt.Fprintf(&b, "%s\n\n", r.sentence())
	r.writeLog(&b)
	line := lineWriter(&b)
	r.writeRequestCount(&b)
	line("may refuse", "%*s   %g %% of the %s", len(comma(r.Requests)), comma(s.MaxRefused), 100*s.Options.Refuse,
		s.Options.unit())
	r.writeLineCounts(&b)
	s.writePeaks(&b)
	s.writeChoices(&b)
	s.Choices[0].writeCurves(&b)
	writeKeyRows(&b, "busiest keys", "refused", 6, s.Busiest)
	_, err := io.WriteString(w, b.String())
	return err
}

// sentence sums up in one line what the limit would have done.
func (r *Report) sentence() string {
	return fmt.Sprintf("%s refuses %s of requests, %s of %s", r.Notation, formatFinePercent(r.Denied, r.Requests),
		comma(r.DeniedKeys), plural(r.Keys, "key"))
}

// unit returns what Refuse is a share of: requests or keys.
func (o *SuggestOptions) unit() string {
	if o.OfKeys {
		return "keys"
	}
	return "requests"
}

// periodNames are the periods that have a name.
var periodNames = map[time.Duration]string{
	time.Second: "second", time.Minute: "minute", time.Hour: "hour", 24 * time.Hour: "day",
}

// onePeriod returns "a minute" or "an hour" for a period with a name, else the duration.
func onePeriod(d time.Duration) string {
	switch periodNames[d] {
	case "":
		return formatDuration(d)
	case "hour":
		return "an hour"
	}
	return "a " + periodNames[d]
}

func (s *Suggestion) writePeaks(b *strings.Builder) {
	rows := [][]any{{"the keys' own peaks in a", "half", "90 %", "95 %", "99 %", "99.9 %", "all"}}
	for _, p := range s.Peaks {
		period := cmp.Or(periodNames[p.Period.Duration], formatDuration(p.Period.Duration))
		rows = append(rows, []any{period, p.Median, p.P90, p.P95, p.P99, p.P999, p.Highest})
	}
	writeTable(b, "  %9s  %9s  %9s  %9s  %9s  %9s", rows)
}

func (s *Suggestion) writeChoices(b *strings.Builder) {
	rows := [][]any{{"limits that refuse as little", "refused", "share", "keys", "share", "lets pass at most"}}
	for _, c := range s.Choices {
		rows = append(rows, []any{
			c.Notation, comma(c.Denied), formatFinePercent(c.Denied, c.Requests), comma(c.DeniedKeys),
			formatFinePercent(c.DeniedKeys, c.Keys), c.MostInPeriod.String() + " in " + onePeriod(c.Period.Duration),
		})
	}
	writeTable(b, "  %9s  %8s  %9s  %8s  %s", rows)
}

// writeCurves writes what the limit would refuse with other bursts or numbers, then the limits of OtherRates.
func (c *Choice) writeCurves(b *strings.Builder) {
	curve := "with another number"
	if c.family.kind == tokenBucket {
		curve = "with another burst"
	}
	for _, part := range []struct {
		name   string
		points []Point
	}{{curve, c.Curve}, {"with another rate, as little refused", c.OtherRates}} {
		if len(part.points) == 0 {
			continue
		}
		rows := [][]any{{part.name, "refused", "share", "keys", ""}}
		for _, p := range part.points {
			mark := ""
			if p.Chosen {
				mark = "  <"
			}
			share := formatFinePercent(p.Denied, c.Requests)
			rows = append(rows, []any{p.Limit, comma(p.Denied), share, comma(p.DeniedKeys), mark})
		}
		writeTable(b, "  %9s  %8s  %9s%s", rows)
	}
}
