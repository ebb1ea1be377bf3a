// Command bench compares Headgate with other limiters, and with the functions
// of five articles, side by side in one run. It prints one table, and writes
// it with the machine, the versions, the commit and a picture for each
// comparison.
package main

import (
	"context"
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
	duration := flag.Duration("duration", time.Second, "how long a cell of a round is measured")
	out := flag.String("out", "results", "`folder` for the page and the pictures; empty: none are written")
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
			fmt.Printf("%-26s %s: %s\n", c.Name, c.Title, r.Aim())
		}
		return nil
	}
	plan := compare.Plan{Rounds: *rounds, Duration: *duration, Progress: func(text string) { log.Print(text) }}
	var results []compare.Result
	for _, c := range chosen {
		results = append(results, compare.Run(ctx, c, plan))
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if err := report.Table(os.Stdout, results); err != nil || *out == "" {
		return err
	}
	name := time.Now().Format(time.DateOnly)
	if *only != "" {
		name += "-part" // does not take the place of a page with all of them
	}
	setting := report.Setting{
		Name: name, Command: strings.TrimSpace("go run . " + strings.Join(os.Args[1:], " ")), Rounds: *rounds,
		Duration: *duration,
		Facts:    append(report.Facts(ctx), b.facts...),
	}
	path, err := report.Write(*out, setting, results)
	if err == nil {
		log.Print("written: ", path)
	}
	return err
}
