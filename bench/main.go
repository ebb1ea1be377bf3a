// Command bench compares Headgate with other limiters, with the functions of articles and with bare statements, side
// by side in one run. It prints one table, and writes it with the machine, the versions and the commit.
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
	"slices"
	"strings"
	"syscall"
	"time"
)

// workerEnv is the environment variable that makes this program a worker: startWorkers sets it.
const workerEnv = "HEADGATE_BENCH_WORKER"

func main() {
	log.SetFlags(0)
	if os.Getenv(workerEnv) != "" {
		if err := runWorker(); err != nil {
			log.Fatal("bench worker: ", err)
		}
		return
	}
	if err := runBench(); err != nil {
		log.Fatal("bench: ", err)
	}
}

// runBench measures the comparisons that the flags choose, and writes the page.
func runBench() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	only := flag.String("only", "", "measure the comparisons whose name matches this `regexp`")
	rounds := flag.Int("rounds", 5, "rounds, of which the medians count")
	duration := flag.Duration("time", time.Second/2, "how long a cell of a round is measured")
	out := flag.String("out", "results", "`folder` for the page; empty: none is written")
	baseline := flag.String("before", "", "measure another build too: `program` is its bench")
	list := flag.Bool("list", false, "list the comparisons")
	flag.Parse()
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	if *rounds < 1 || *duration <= 0 || flag.NArg() > 0 {
		return errors.New("-rounds and -time must be above 0, and there are no arguments")
	}

	b := &bench{baseline: *baseline}
	defer b.close()
	groups, rowCount := b.groups(ctx), 0
	for _, g := range groups {
		defer g.close()
		g.rows = slices.DeleteFunc(g.rows, func(c comparison) bool { return !pattern.MatchString(c.name) })
		rowCount += len(g.rows)
		for _, c := range g.rows {
			if *list {
				fmt.Printf("%-24s %s\n", c.name, c.title)
			}
		}
	}
	if *list {
		return nil
	}
	name := time.Now().Format(time.DateOnly)
	if *only != "" {
		name += "-part" // does not replace a page with all comparisons
	}
	intro := fmt.Sprintf("`%s`, in bench: %d rounds, %s a cell; all cells of a comparison in a round,\n"+
		`then the next round. Figures are medians, the least and the most in brackets; errors and p99 in
brackets are those of the rival or the ceiling. A ratio above 1 says how many times better Headgate
is. [How to read them](../../docs/project/benchmarks.md).`,
		strings.TrimSpace("go run . "+strings.Join(os.Args[1:], " ")), *rounds, *duration)
	var results []result
	for _, g := range groups {
		for _, c := range g.rows {
			log.Printf("%d of %d: %s", len(results)+1, rowCount, c.name)
			results = append(results, g.run(ctx, c, *rounds, *duration))
			if ctx.Err() != nil {
				return errors.Join(ctx.Err(), writeTable(os.Stdout, results))
			}
			if *out == "" {
				continue
			}
			// The page is written after each comparison: an interrupt loses only the comparison under way.
			if err := writePage(*out, name, intro, append(machine(ctx), b.facts...), results); err != nil {
				return err
			}
		}
		g.close()
	}
	return writeTable(os.Stdout, results)
}
