// Nightly runs what takes hours, one step after another, and writes a table of what ran, with which seed, and how it went:
//
//	go run ./internal/testing/nightly
//	go run ./internal/testing/nightly -seed 4711 histories sim
//
// A step that fails does not end the run. Each step says in a file of its own what it said; the table names the file.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/headgate/headgate/internal/testing/tier"
)

// step is a command of make.
type step struct {
	name    string
	what    string        // it does, for the table
	longest time.Duration // after which it is ended, and has failed
	target  string        // of the Makefile
	args    []string      // variables of the Makefile; SEED stands for the seed
}

var steps = []step{
	{"tests", "every test of every tier, with the race detector everywhere", 3 * time.Hour, "race", nil},
	{
		"engines", "the tests of the stores on all other servers", 3 * time.Hour, "engines", nil,
	},
	{
		"histories", "20,000 random histories on every engine, 2,000 on clusters", 6 * time.Hour, "histories",
		[]string{"HISTORIES=20000", "FEW=2000"},
	},
	{"sim", "an hour of simulations", 2 * time.Hour, "sim", []string{"SIM=-for 1h -json -from SEED"}},
	{"planted", "53 planted faults, looked for by the simulator", 3 * time.Hour, "planted", nil},
	{
		"chaos", "ten minutes of faults for each engine", 4 * time.Hour, "chaos",
		[]string{"FOR=10m", "ENGINE=all", "SEED=SEED"},
	},
	{"fuzz", "every fuzz target for two minutes", 3 * time.Hour, "fuzz", []string{"FUZZTIME=2m"}},
	{"packaging", "chart, compose file, alerts, image and two equal builds", 2 * time.Hour, "packaging", nil},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr, "make", steps)
	stop()
	os.Exit(code)
}

// run returns what to exit with: 1 if a step has failed, 2 if it was called wrongly.
func run(ctx context.Context, args []string, out, errs io.Writer, program string, steps []step) int {
	flags := flag.NewFlagSet("nightly", flag.ContinueOnError)
	flags.SetOutput(errs)
	seed := flags.Uint64("seed", uint64(time.Now().UnixNano()), "of all random tests")
	folder := flags.String("folder", "bin", "where nightly.md and what the steps said are written")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	chosen, err := choose(steps, flags.Args())
	if err == nil {
		err = os.MkdirAll(*folder, 0o755)
	}
	if err != nil {
		fmt.Fprintln(errs, "nightly:", err)
		return 2
	}
	table := &report{path: filepath.Join(*folder, "nightly.md"), begin: time.Now()}
	failed := false
	for _, s := range chosen {
		log := filepath.Join(*folder, "nightly-"+s.name+".log")
		fmt.Fprintf(out, "%s  %s: %s\n", time.Now().Format(time.TimeOnly), s.name, s.what)
		begin := time.Now()
		err := s.do(ctx, program, *seed, log)
		failed = failed || err != nil
		if werr := table.add(&s, *seed, time.Since(begin), log, err); werr != nil {
			fmt.Fprintln(errs, "nightly:", werr)
			return 1
		}
		fmt.Fprintln(out, table.last())
		if ctx.Err() != nil {
			break
		}
	}
	fmt.Fprintf(out, "the table is in %s\n", table.path)
	if failed || ctx.Err() != nil {
		return 1
	}
	return 0
}

// choose returns the steps of some names, or all.
func choose(steps []step, names []string) ([]step, error) {
	if len(names) == 0 {
		return steps, nil
	}
	var chosen []step
	for _, name := range names {
		i := slices.IndexFunc(steps, func(s step) bool { return s.name == name })
		if i < 0 {
			var known []string
			for _, s := range steps {
				known = append(known, s.name)
			}
			return nil, fmt.Errorf("no step %q is known, only %s", name, strings.Join(known, ", "))
		}
		chosen = append(chosen, steps[i])
	}
	return chosen, nil
}

// do runs a step and writes what it says to a file.
func (s *step) do(ctx context.Context, program string, seed uint64, log string) error {
	ctx, cancel := context.WithTimeout(ctx, s.longest)
	defer cancel()
	f, err := os.Create(log)
	if err != nil {
		return err
	}
	defer f.Close()
	args := []string{s.target}
	for _, arg := range s.args {
		args = append(args, strings.ReplaceAll(arg, "SEED", strconv.FormatUint(seed, 10)))
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = f, f
	cmd.Env = append(os.Environ(), tier.Env+"="+tier.OfNightly.String(),
		"HEADGATE_TEST_SEED="+strconv.FormatUint(seed, 10))
	// The command is a group of processes: make does not pass signals on.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	err = cmd.Run()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("not done after %v", s.longest)
	}
	return err
}

// report is the table.
type report struct {
	path  string
	begin time.Time
	rows  []string
}

// add adds a row, and writes the table as it is so far.
func (r *report) add(s *step, seed uint64, took time.Duration, log string, err error) error {
	result := "ok"
	if err != nil {
		result = "FAILED: " + err.Error()
	}
	r.rows = append(r.rows, fmt.Sprintf("| %s | %s | %d | %s | %.1f | %s |", s.name, s.what, seed, result,
		took.Minutes(), filepath.Base(log)))
	text := "# The night of " + r.begin.Format(time.DateOnly) + "\n\n" +
		"| step | what ran | seed | result | minutes | log |\n|---|---|---|---|---|---|\n" +
		strings.Join(r.rows, "\n") + "\n"
	return os.WriteFile(r.path, []byte(text), 0o644)
}

func (r *report) last() string { return r.rows[len(r.rows)-1] }
