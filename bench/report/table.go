// Package report writes down what was measured: a table for the terminal, a
// page of Markdown, and a picture for each comparison.
package report

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/headgate/headgate/bench/compare"
)

// columns are the heads of the one table.
var columns = []string{
	"comparison", "Headgate (min-max)", "against", "its figure", "ratio", "goal", "met", "p99 (its)",
	"admitted/allowed (its)", "over-admitted", "errors (its)",
}

// cells returns a comparison's line of the table.
func cells(r *compare.Result) []string {
	line := make([]string, len(columns))
	for i := range line {
		line[i] = "-"
	}
	line[0], line[5] = r.Title, r.Aim()
	ours, other := r.Best(compare.Ours), r.Against()
	if ours != nil {
		line[1] = fmt.Sprintf("%s (%s-%s)", amount(ours.Median, r.Unit), bare(ours.Least), amount(ours.Most, r.Unit))
	} else if why := missing(r); why != "" {
		line[1] = why
	}
	if other != nil {
		line[2], line[3] = other.Label, amount(other.Median, r.Unit)
	}
	if ratio := r.Ratio(); ratio > 0 {
		line[4] = times(ratio)
	}
	if len(r.Goals) > 0 {
		line[6] = r.Verdict()
	}
	line[7] = both(ours, other, func(f *compare.Figure) string {
		if f.P99 == 0 {
			return ""
		}
		return latency(f.P99)
	})
	line[8] = both(ours, other, func(f *compare.Figure) string {
		if !f.HasExact {
			return ""
		}
		return fmt.Sprintf("%.3f", f.Exact.Admitted/f.Exact.Allowed)
	})
	if ours != nil && ours.HasExact {
		line[9] = bare(ours.Exact.Over)
	}
	line[10] = both(ours, other, errorsOf)
	return line
}

// both returns what is told of Headgate, and in brackets of the other.
func both(ours, other *compare.Figure, tell func(*compare.Figure) string) string {
	ask := func(f *compare.Figure) string {
		if f == nil {
			return "-"
		}
		if s := tell(f); s != "" {
			return s
		}
		return "-"
	}
	a, b := ask(ours), ask(other)
	if a == "-" && b == "-" {
		return "-"
	}
	return a + " (" + b + ")"
}

func errorsOf(f *compare.Figure) string {
	switch {
	case f.Asked == 0:
		return ""
	case f.Failed == 0:
		return "0"
	}
	return fmt.Sprintf("%.2g%%", 100*float64(f.Failed)/float64(f.Asked))
}

// missing says why Headgate has no figure.
func missing(r *compare.Result) string {
	if r.Err != nil {
		return brief(r.Err)
	}
	for _, f := range r.Figures {
		if f.Side == compare.Ours && f.Err != nil {
			return brief(f.Err)
		}
	}
	return ""
}

// brief is the first line of an error, and not too much of it.
func brief(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	if len(text) > 100 {
		text = text[:100] + "..."
	}
	return strings.ReplaceAll(text, "|", "/")
}

// Table writes the one table.
func Table(w io.Writer, results []compare.Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join(columns, "\t"))
	for i := range results {
		fmt.Fprintln(t, strings.Join(cells(&results[i]), "\t"))
	}
	return t.Flush()
}

// amount writes a figure with its unit.
func amount(v float64, u compare.Unit) string {
	if u == compare.PerSecond {
		return bare(v) + "/s"
	}
	return bare(v) + " " + u.Name
}

// bare writes a figure with three digits that count, in groups of three.
func bare(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	}
	unit := math.Pow(10, math.Floor(math.Log10(v))-2)
	digits := fmt.Sprintf("%.0f", math.Round(v/unit)*unit)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func times(ratio float64) string {
	switch {
	case ratio >= 10:
		return bare(ratio) + "x"
	default:
		return fmt.Sprintf("%.2fx", ratio)
	}
}

func latency(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%d us", d.Microseconds())
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/1e6)
	}
	return fmt.Sprintf("%.0f ms", float64(d)/1e6)
}
