package report

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/bench/compare"
)

// Setting is what a run was made with.
type Setting struct {
	Name     string // of the page, without .md: a date
	Command  string
	Rounds   int
	Duration time.Duration
	Facts    [][2]string // machine, versions, commit
}

// Write writes the page of a run, and a picture for each comparison, into a
// folder. It returns the path of the page.
func Write(dir string, s Setting, results []compare.Result) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for i := range results {
		r := &results[i]
		if r.Curve != nil {
			continue // a point of a curve
		}
		if picture := Picture(r); picture != nil {
			if err := os.WriteFile(filepath.Join(dir, r.Name+".svg"), picture, 0o644); err != nil {
				return "", err
			}
		}
	}
	pictures := Curves(results)
	for name, picture := range pictures {
		if err := os.WriteFile(filepath.Join(dir, name+".svg"), picture, 0o644); err != nil {
			return "", err
		}
	}
	path := filepath.Join(dir, s.Name+".md")
	return path, os.WriteFile(path, page(s, results, slices.Sorted(maps.Keys(pictures))), 0o644)
}

func page(s Setting, results []compare.Result, pictures []string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Benchmarks of %s\n\n", s.Name)
	fmt.Fprintf(&b, "`%s`, in bench: %d rounds, %s a cell, 2s where requests take long; all cells of a\n"+
		"comparison in a round, then the next round. Figures are medians, the least and the most in\n"+
		"brackets. The p99, the share admitted and the errors in brackets are those of what is held against.\n",
		s.Command, s.Rounds, s.Duration)
	fmt.Fprint(&b, "A ratio above 1 says how many times better Headgate is. Admitted/allowed is\ncounted apart, "+
		"with a limit that binds; 1 is exact. Over-admitted is what single keys got above their\nbound, and has to be 0. "+
		"CPU is of this process with its callers, and of the servers that it started, for a\ndecision; log is what the "+
		"database wrote to its log for one.\n\n")
	fmt.Fprint(&b, "| | |\n|---|---|\n")
	for _, f := range s.Facts {
		fmt.Fprintf(&b, "| %s | %s |\n", f[0], f[1])
	}
	fmt.Fprintln(&b)
	for _, name := range pictures {
		fmt.Fprintf(&b, "![%s](%[1]s.svg)\n", name)
	}
	fmt.Fprintf(&b, "\n| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	for i := range results {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells(&results[i]), " | "))
	}
	for i := range results {
		detail(&b, &results[i])
	}
	return b.Bytes()
}

// detail writes all cells of a comparison.
func detail(b *bytes.Buffer, r *compare.Result) {
	fmt.Fprintf(b, "\n## %s\n\n", r.Title)
	if r.Err != nil {
		fmt.Fprintf(b, "Not measured: %s.\n", brief(r.Err))
		return
	}
	if verdict := r.Verdict(); len(r.Goals) > 0 && verdict != "yes" {
		fmt.Fprintf(b, "Goal: %s. Met: %s.\n\n", r.Aim(), verdict)
	}
	if r.Curve == nil && Picture(r) != nil {
		fmt.Fprintf(b, "![%s](%s.svg)\n\n", r.Title, r.Name)
	}
	fmt.Fprint(b, "| | median (min-max) | p50 | p99 | admitted/allowed | over-admitted | errors | "+
		"B/op, allocs/op | CPU us: client, servers | log B | round trips |\n"+
		"|---|---|---|---|---|---|---|---|---|---|---|\n")
	for i := range r.Figures {
		f := &r.Figures[i]
		if f.Err != nil {
			fmt.Fprintf(b, "| %s | %s | | | | | | | | | |\n", f.Label, brief(f.Err))
			continue
		}
		line := []string{
			f.Label, fmt.Sprintf("%s (%s-%s)", amount(f.Median, r.Unit), bare(f.Least), bare(f.Most)), "-",
			"-", "-", "-", "-", "-", "-", "-", "-",
		}
		if f.P99 > 0 {
			line[2], line[3] = latency(f.P50), latency(f.P99)
		}
		if f.HasExact {
			line[4] = fmt.Sprintf("%.0f/%.0f = %.3f", f.Exact.Admitted, f.Exact.Allowed,
				f.Exact.Admitted/f.Exact.Allowed)
			line[5] = bare(f.Exact.Over)
		}
		if e := errorsOf(f); e != "" {
			line[6] = e
			if f.FirstError != nil {
				line[6] += ": " + brief(f.FirstError)
			}
		}
		if f.HasAllocs {
			line[7] = fmt.Sprintf("%.0f B, %.2g", f.Bytes, f.Allocs)
		}
		if f.HasCost {
			line[8], line[9], line[10] = spent(f.Cost)
		}
		fmt.Fprintf(b, "| %s |\n", strings.Join(line, " | "))
	}
}

// spent writes what a decision costs: microseconds of CPU, bytes of log, round trips.
func spent(c compare.Cost) (cpu, log, calls string) {
	known := func(v float64) string {
		if v < 0 {
			return "-"
		}
		return fmt.Sprintf("%.3g", v)
	}
	server := float64(c.Server) / 1e3
	if c.Server < 0 {
		server = -1
	}
	return known(float64(c.Client)/1e3) + ", " + known(server), known(c.Log), known(c.Calls)
}
