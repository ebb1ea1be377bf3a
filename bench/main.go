// Command bench compares Headgate with other limiters, and with the functions
// of five articles, side by side in one run. It prints one table, and writes
// it with the machine, the versions, the commit and a picture for each
// comparison.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/headgate/headgate/bench/compare"
	"github.com/headgate/headgate/bench/report"
)

func main() {
	log.SetFlags(0)
	if err := run(); err != nil {
		log.Fatal("bench: ", err)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	only := flag.String("only", "", "measure the comparisons whose name matches this `regexp`")
	rounds := flag.Int("rounds", 5, "rounds, of which the medians count")
	duration := flag.Duration("duration", time.Second/2, "how long a cell of a round is measured")
	out := flag.String("out", "results", "`folder` for the page and the pictures; empty: none are written")
	flag.DurationVar(duration, "time", time.Second/2, "the same as -duration")
	calls := flag.Bool("calls", false, "count the statements of PostgreSQL, by pg_stat_statements")
	list := flag.Bool("list", false, "list the comparisons and their goals")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(),
			"usage: go run . [options]\n\n"+
				"Compares Headgate with rivals; see -list. Databases are started, or taken from\n"+
				"the environment as the tests do.\n\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	wanted, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	if *rounds < 1 || *duration <= 0 || flag.NArg() > 0 {
		return fmt.Errorf("-rounds and -duration must be above 0, and there are no arguments")
	}

	b := newBench()
	b.calls = *calls
	defer b.close()
	var chosen []compare.Comparison
	for _, c := range b.comparisons() {
		if wanted.MatchString(c.Name) {
			chosen = append(chosen, c)
		}
	}
	if *list {
		for _, c := range chosen {
			r := compare.Result{Comparison: c}
			fmt.Println(strings.TrimSuffix(fmt.Sprintf("%-28s %s: %s", c.Name, c.Title, r.Aim()), ": "))
		}
		return nil
	}
	name := time.Now().Format(time.DateOnly)
	if *only != "" {
		name += "-part" // does not take the place of a page with all of them
	}
	setting := report.Setting{
		Name: name, Command: strings.TrimSpace("go run . " + strings.Join(os.Args[1:], " ")), Rounds: *rounds,
		Duration: *duration,
	}
	path := ""
	// An interrupt ends the process with its servers, so the page is written again after each
	// comparison: what took an hour is not lost.
	keep := func(results []compare.Result) (err error) {
		if *out == "" {
			return nil
		}
		setting.Facts = append(report.Facts(ctx), b.facts...)
		path, err = report.Write(*out, setting, results)
		return err
	}
	results, err := measure(ctx, chosen, *rounds, *duration, keep)
	if err != nil {
		return errors.Join(err, report.Table(os.Stdout, results))
	}
	if path != "" {
		log.Print("written: ", path)
	}
	return report.Table(os.Stdout, results)
}

// measure measures comparisons, and says before each cell how long all of it will take.
// Keep is called after each of them, with all that is measured so far.
func measure(ctx context.Context, chosen []compare.Comparison, rounds int, duration time.Duration,
	keep func([]compare.Result) error,
) (results []compare.Result, err error) {
	for _, c := range chosen {
		if c.Shared != nil {
			c.Shared.Left++
		}
	}
	defer func() { // what was not come to
		for _, c := range chosen[len(results):] {
			c.Shared.Done()
		}
	}()
	begin := time.Now()
	for i, c := range chosen {
		// A comparison has about five cells, each is warmed up for a fifth of its time, and
		// getting ready and counting take some seconds; then it is known better.
		each := time.Duration(rounds)*5*duration*6/5 + 2*time.Second + duration
		if spent := time.Since(begin); i > 0 {
			each = (each + spent) / time.Duration(i+1)
		}
		left := (each * time.Duration(len(chosen)-i)).Round(time.Minute / 2)
		results = append(results, compare.Run(ctx, c, compare.Plan{
			Rounds: rounds, Duration: duration,
			Progress: func(text string) { log.Printf("%d of %d, about %s left: %s", i+1, len(chosen), left, text) },
		}))
		if ctx.Err() != nil {
			return results, ctx.Err()
		}
		if err := keep(results); err != nil {
			return results, err
		}
	}
	log.Printf("measured in %s", time.Since(begin).Round(time.Second))
	return results, nil
}
