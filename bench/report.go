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

// columns are the heads of the table, on the terminal and on the page.
var columns = []string{
	"comparison", "Headgate (min-max)", "against", "its figure", "ratio", "the build before",
	"CPU us: client, servers (its)", "p99 (its)", "over-admitted", "errors (its)",
}

// line returns a comparison's line of the table.
func (r *result) line() []string {
	line := append([]string{r.title}, "-", "-", "-", "-", "-", "-", "-", "-", "-")
	own, other, before := r.best(ours), r.against(), r.best(earlier)
	switch {
	case own != nil:
		line[1] = fmt.Sprintf("%s/s (%s-%s/s)", amount(own.value), amount(own.least), amount(own.most))
	case r.err != nil:
		line[1] = brief(r.err)
	case len(r.figures) > 0 && r.figures[0].err != nil:
		line[1] = brief(r.figures[0].err)
	}
	if other != nil {
		line[2], line[3] = other.label, amount(other.value)+"/s"
	}
	if own != nil && other != nil && other.value > 0 {
		line[4] = times(own.value / other.value)
	}
	if own != nil && before != nil && before.value > 0 {
		line[5] = times(own.value / before.value)
		if before.servers > 0 {
			line[5] += fmt.Sprintf(" at %.2f of the servers' CPU", own.servers/before.servers)
		}
	}
	line[6] = both(own, other, func(f *figure) string { return fmt.Sprintf("%.3g, %.3g", f.client, f.servers) })
	line[7] = both(own, other, func(f *figure) string { return latency(f.p99) })
	if own != nil && own.exact != nil {
		line[8] = amount(own.exact.over)
	}
	line[9] = both(own, other, failures)
	return line
}

// both returns the figure of Headgate, and in brackets that of the other.
func both(own, other *figure, tell func(*figure) string) string {
	texts := [2]string{"-", "-"}
	for i, f := range []*figure{own, other} {
		if f != nil {
			texts[i] = tell(f)
		}
	}
	return texts[0] + " (" + texts[1] + ")"
}

func failures(f *figure) string {
	if f.failed == 0 {
		return "0"
	}
	return fmt.Sprintf("%.2g%%", 100*float64(f.failed)/float64(f.asked))
}

// table writes the table.
func table(w io.Writer, results []result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join(columns, "\t"))
	for i := range results {
		fmt.Fprintln(t, strings.Join(results[i].line(), "\t"))
	}
	return t.Flush()
}

// write writes the page of a run, and its picture, into a folder.
func write(dir, name, intro string, facts [][2]string, results []result) error {
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
	if err := os.WriteFile(filepath.Join(dir, name+".svg"), picture(results), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+".md"), b.Bytes(), 0o644)
}

// detail writes all cells of a comparison.
func (r *result) detail(b *bytes.Buffer) {
	fmt.Fprintf(b, "\n## %s\n\n", r.title)
	if r.err != nil {
		fmt.Fprintf(b, "Not measured: %s.\n", brief(r.err))
		return
	}
	fmt.Fprint(b, "| | median (min-max) | p50 | p99 | admitted/allowed | errors | CPU us: client, servers |\n"+
		"|---|---|---|---|---|---|---|\n")
	for i := range r.figures {
		f := &r.figures[i]
		if f.err != nil {
			fmt.Fprintf(b, "| %s | %s | | | | | |\n", f.label, brief(f.err))
			continue
		}
		exact, failed, cpu := "-", failures(f), "-"
		if f.exact != nil {
			exact = fmt.Sprintf("%.0f/%.0f", f.exact.admitted, f.exact.allowed)
		}
		if f.firstError != nil {
			failed += ": " + brief(f.firstError)
		}
		if f.client > 0 {
			cpu = fmt.Sprintf("%.3g, %.3g", f.client, f.servers)
		}
		fmt.Fprintf(b, "| %s | %s/s (%s-%s) | %s | %s | %s | %s | %s |\n", f.label, amount(f.value),
			amount(f.least), amount(f.most), latency(f.p50), latency(f.p99), exact, failed, cpu)
	}
}

// brief cuts an error to its first line, and shorter.
func brief(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	if len(text) > 100 {
		text = text[:100] + "..."
	}
	return strings.ReplaceAll(text, "|", "/")
}

// amount writes a figure with three digits that count, in groups of three.
func amount(v float64) string {
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
	if ratio >= 10 {
		return amount(ratio) + "x"
	}
	return fmt.Sprintf("%.2fx", ratio)
}

func latency(d time.Duration) string {
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

// modules are the libraries whose versions matter.
var modules = []string{
	"github.com/jackc/pgx/v5", "github.com/go-sql-driver/mysql", "github.com/redis/rueidis", "modernc.org/sqlite",
	"github.com/redis/go-redis/v9", "github.com/go-redis/redis_rate/v10", "google.golang.org/grpc",
	"golang.org/x/time", "github.com/sethvargo/go-limiter",
}

// machine describes the machine, the versions of the modules and the commit, for the head of a report.
func machine(ctx context.Context) [][2]string {
	versions := make([]string, len(modules))
	for i, m := range modules {
		versions[i] = named(m, m)
	}
	hash := output(ctx, "git", "rev-parse", "--short=12", "HEAD")
	if output(ctx, "git", "status", "--porcelain") != "" {
		hash += ", with changes that are not committed"
	}
	return [][2]string{
		{"machine", fmt.Sprintf("%d x %s, %s", runtime.NumCPU(), after("/proc/cpuinfo", "model name"),
			after("/proc/meminfo", "MemTotal"))},
		{"system", fmt.Sprintf("%s %s, %s", runtime.GOOS, output(ctx, "uname", "-r"),
			after("/etc/os-release", "PRETTY_NAME"))},
		{"Go", fmt.Sprintf("%s, GOMAXPROCS %d", runtime.Version(), runtime.GOMAXPROCS(0))},
		{"commit", hash},
		{"modules", strings.Join(versions, ", ")},
	}
}

// named returns a name with the version of its module in this program.
func named(module, name string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == module {
				return name + " " + m.Version
			}
		}
	}
	return name
}

// after returns what a file says after a word.
func after(path, word string) string {
	text, _ := os.ReadFile(path)
	for l := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(l, word); ok {
			return strings.Trim(rest, " \t\n:=\"")
		}
	}
	return "unknown"
}

func output(ctx context.Context, name string, args ...string) string {
	out, _ := exec.CommandContext(ctx, name, args...).Output()
	return strings.TrimSpace(string(out))
}
