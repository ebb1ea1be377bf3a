package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"text/tabwriter"
	"time"
)

var columns = []string{
	"comparison", "Headgate (min-max)", "against", "its figure", "ratio", "the build before",
	"CPU us: client, servers (its)", "p99 (its)", "over-admitted", "errors (its)",
}

// line returns the cells of a line of the table.
func (r *result) line() []string {
	line := append([]string{r.title}, "-", "-", "-", "-", "-", "-", "-", "-", "-")
	headgate, reference, previous := r.bestFigure(headgateSide), r.reference(), r.bestFigure(baselineSide)
	switch {
	case headgate != nil:
		line[1] = fmt.Sprintf("%s/s (%s-%s/s)", formatAmount(headgate.value), formatAmount(headgate.minValue),
			formatAmount(headgate.maxValue))
	case r.err != nil:
		line[1] = briefError(r.err)
	case len(r.figures) > 0 && r.figures[0].err != nil:
		line[1] = briefError(r.figures[0].err)
	}
	if reference != nil {
		line[2], line[3] = reference.label, formatAmount(reference.value)+"/s"
	}
	if headgate != nil && reference != nil && reference.value > 0 {
		line[4] = formatRatio(headgate.value / reference.value)
	}
	if headgate != nil && previous != nil && previous.value > 0 {
		line[5] = formatRatio(headgate.value / previous.value)
		if previous.serverCPU > 0 {
			line[5] += fmt.Sprintf(" at %.2f of the servers' CPU", headgate.serverCPU/previous.serverCPU)
		}
	}
	line[6] = bothSides(headgate, reference, func(f *figure) string {
		return fmt.Sprintf("%.3g, %.3g", f.clientCPU, f.serverCPU)
	})
	line[7] = bothSides(headgate, reference, func(f *figure) string { return formatLatency(f.p99) })
	if headgate != nil && headgate.exact != nil {
		line[8] = formatAmount(headgate.exact.over)
	}
	line[9] = bothSides(headgate, reference, formatErrors)
	return line
}

// bothSides returns a text about Headgate's figure, and in brackets the same about the reference.
func bothSides(headgate, reference *figure, format func(*figure) string) string {
	texts := [2]string{"-", "-"}
	for i, f := range []*figure{headgate, reference} {
		if f != nil {
			texts[i] = format(f)
		}
	}
	return texts[0] + " (" + texts[1] + ")"
}

func formatErrors(f *figure) string {
	if f.errors == 0 {
		return "0"
	}
	return fmt.Sprintf("%.2g%%", 100*float64(f.errors)/float64(f.requests))
}

func writeTable(w io.Writer, results []result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join(columns, "\t"))
	for i := range results {
		fmt.Fprintln(t, strings.Join(results[i].line(), "\t"))
	}
	return t.Flush()
}

// writePage writes the page of a run, and its picture, into a folder.
func writePage(dir, name, intro string, facts [][2]string, results []result) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Benchmarks of %s\n\n%s\n\n| | |\n|---|---|\n", name, intro)
	for _, f := range facts {
		fmt.Fprintf(&b, "| %s | %s |\n", f[0], f[1])
	}
	fmt.Fprintf(&b, "\n| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	for i := range results {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(results[i].line(), " | "))
	}
	for i := range results {
		results[i].detail(&b)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".svg"), drawPicture(results), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+".md"), b.Bytes(), 0o644)
}

// detail writes all cells of a comparison.
func (r *result) detail(b *bytes.Buffer) {
	fmt.Fprintf(b, "\n## %s\n\n", r.title)
	if r.err != nil {
		fmt.Fprintf(b, "Not measured: %s.\n", briefError(r.err))
		return
	}
	fmt.Fprint(b, "| | median (min-max) | p50 | p99 | admitted/allowed | errors | CPU us: client, servers |\n"+
		"|---|---|---|---|---|---|---|\n")
	for i := range r.figures {
		f := &r.figures[i]
		if f.err != nil {
			fmt.Fprintf(b, "| %s | %s | | | | | |\n", f.label, briefError(f.err))
			continue
		}
		exact, failed, cpu := "-", formatErrors(f), "-"
		if f.exact != nil {
			exact = fmt.Sprintf("%.0f/%.0f", f.exact.admitted, f.exact.allowed)
		}
		if f.firstError != nil {
			failed += ": " + briefError(f.firstError)
		}
		if f.clientCPU > 0 {
			cpu = fmt.Sprintf("%.3g, %.3g", f.clientCPU, f.serverCPU)
		}
		fmt.Fprintf(b, "| %s | %s/s (%s-%s) | %s | %s | %s | %s | %s |\n", f.label, formatAmount(f.value),
			formatAmount(f.minValue), formatAmount(f.maxValue), formatLatency(f.p50), formatLatency(f.p99),
			exact, failed, cpu)
	}
}

// briefError returns the first 100 bytes of the first line of an error, for a cell of a table.
func briefError(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	if len(text) > 100 {
		text = text[:100] + "..."
	}
	return strings.ReplaceAll(text, "|", "/")
}

// formatAmount returns a number with three significant digits, or two decimals below 1, in groups of three.
func formatAmount(v float64) string {
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

func formatRatio(ratio float64) string {
	if ratio >= 10 {
		return formatAmount(ratio) + "x"
	}
	return fmt.Sprintf("%.2fx", ratio)
}

func formatLatency(d time.Duration) string {
	switch {
	case d == 0:
		return "-"
	case d < time.Millisecond:
		return fmt.Sprintf("%d us", d.Microseconds())
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/1e6)
	}
	return fmt.Sprintf("%.0f ms", float64(d)/1e6)
}

// modules are the libraries whose versions the page names.
var modules = []string{
	"github.com/jackc/pgx/v5", "github.com/go-sql-driver/mysql", "github.com/redis/rueidis", "modernc.org/sqlite",
	"github.com/redis/go-redis/v9", "github.com/go-redis/redis_rate/v10", "google.golang.org/grpc",
	"golang.org/x/time", "github.com/sethvargo/go-limiter",
}

// machine describes the machine, the versions of the modules and the commit, for the head of a page.
func machine(ctx context.Context) [][2]string {
	versions := make([]string, len(modules))
	for i, m := range modules {
		versions[i] = versionedName(m, m)
	}
	hash := commandOutput(ctx, "git", "rev-parse", "--short=12", "HEAD")
	if commandOutput(ctx, "git", "status", "--porcelain") != "" {
		hash += ", with changes that are not committed"
	}
	return [][2]string{
		{"machine", fmt.Sprintf("%d x %s, %s", runtime.NumCPU(), valueAfter("/proc/cpuinfo", "model name"),
			valueAfter("/proc/meminfo", "MemTotal"))},
		{"system", fmt.Sprintf("%s %s, %s", runtime.GOOS, commandOutput(ctx, "uname", "-r"),
			valueAfter("/etc/os-release", "PRETTY_NAME"))},
		{"Go", fmt.Sprintf("%s, GOMAXPROCS %d", runtime.Version(), runtime.GOMAXPROCS(0))},
		{"commit", hash},
		{"modules", strings.Join(versions, ", ")},
	}
}

// versionedName returns a name with the version of its module in this program.
func versionedName(module, name string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == module {
				return name + " " + m.Version
			}
		}
	}
	return name
}

// valueAfter returns the value after a word at the beginning of a line in a file, or "unknown".
func valueAfter(path, word string) string {
	text, _ := os.ReadFile(path)
	for l := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(l, word); ok {
			return strings.Trim(rest, " \t\n:=\"")
		}
	}
	return "unknown"
}

func commandOutput(ctx context.Context, name string, args ...string) string {
	out, _ := exec.CommandContext(ctx, name, args...).Output()
	return strings.TrimSpace(string(out))
}
