// Command claims re-proves what the documentation claims. docs/claims.md is its source: a table of claims, each with
// the page that makes it and the commands that prove it.
//
// A claim is false if its words no longer stand in its page, if one of its commands fails, if a test that it names is
// not there, is skipped or fails, or if a figure differs from the result that it names.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run does what the arguments say and returns the exit status: 0 if all claims are true, 1 if one is false, and 2 if
// the claims cannot be read.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("claims", flag.ContinueOnError)
	flags.SetOutput(stderr)
	root := flags.String("root", ".", "folder of the project")
	only := flags.String("only", "", "regular expression; only claims whose words or commands match are looked at")
	static := flags.Bool("static", false, "run no commands: compare words and figures, and look up tests")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	all, err := read(*root)
	if err == nil {
		all, err = choose(all, *only)
	}
	if err != nil {
		fmt.Fprintln(stderr, "claims:", err)
		return 2
	}
	begin := time.Now()
	r := &report{w: stdout}
	var quick []*claim
	for _, c := range all {
		err := c.stands(*root)
		switch {
		case err != nil:
			r.add(c, err)
		case c.result != "" || *static:
			r.add(c, nil)
		default:
			quick = append(quick, c)
		}
	}
	if err := prove(ctx, *root, quick, r.add); err != nil {
		fmt.Fprintln(stderr, "claims:", err)
		return 2
	}
	fmt.Fprintf(stdout, "%d claims: %d ok, %d failed, in %.0f s\n", len(all), len(all)-r.failed, r.failed,
		time.Since(begin).Seconds())
	if r.failed > 0 {
		return 1
	}
	return 0
}

// choose returns the claims whose words or commands match a regular expression.
func choose(all []*claim, pattern string) (some []*claim, err error) {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, err
	}
	for _, c := range all {
		if re.MatchString(c.words) || re.MatchString(fmt.Sprint(c.commands)) {
			some = append(some, c)
		}
	}
	if len(some) == 0 {
		return nil, fmt.Errorf("no claim matches %q", pattern)
	}
	return some, nil
}

// report prints a line for each claim.
type report struct {
	w      io.Writer
	failed int
}

func (r *report) add(c *claim, err error) {
	how := fmt.Sprintf("%6.1f s", c.took.Seconds())
	if c.result != "" {
		how = "  result"
	}
	if err == nil {
		fmt.Fprintf(r.w, "ok     %s  %s: %s\n", how, c.page, c.words)
		return
	}
	r.failed++
	fmt.Fprintf(r.w, "FAILED %s  %s: %s\n%s\n", how, c.page, c.words, indent(err.Error()))
}
