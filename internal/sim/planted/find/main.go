// Command find counts what it takes the simulator to find each planted fault.
//
//	go run ./internal/sim/planted/find [-only regexp] [-seeds 10000] [-time 2m] [-clean 30s] [-json]
//
// First it plays without a fault, and ends if that finds something. Then, for each fault,
// it builds the test binary of internal/sim with the fault in it, and lets TestSim play
// seeds from 1 on until it finds a violation or its time is over. It prints which rule was
// violated after how many seeds and how long; at the end how many faults were found. A
// panic, a deadlock and exit status 2 find a fault too, where they name the seed. It exits
// with 1 if a fault was not found, 2 if it cannot work, and 130 if it was interrupted.
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
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/headgate/headgate/internal/sim/planted"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the whole program.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("find", flag.ContinueOnError)
	flags.SetOutput(stderr)
	only := flags.String("only", "", "look for the faults whose names match this regular expression")
	seeds := flags.Int64("seeds", 10_000, "a fault that needs more seeds than that counts as not found")
	limit := flags.Duration("time", 2*time.Minute, "how long to look for one fault")
	first := flags.Duration("clean", 30*time.Second, "how long to play without a fault first; 0: not at all")
	asJSON := flags.Bool("json", false, "print an object of JSON for each fault, and one for all")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return exitFound
		}
		return exitError
	}
	faults, err := matching(planted.All(), *only)
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("%q is not a flag", flags.Arg(0))
	}
	if err == nil && (*limit <= 0 || *seeds < 1 || *first < 0) {
		err = errors.New("-time and -seeds must be above 0, and -clean not below")
	}
	var root, dir string
	if err == nil {
		root, err = moduleRoot(ctx)
	}
	if err == nil {
		dir, err = os.MkdirTemp("", "planted-")
	}
	if err != nil {
		fmt.Fprintln(stderr, "find:", err)
		return exitError
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s := search{root: root, dir: dir, seeds: *seeds, limit: *limit, grace: 30*time.Second + *limit/2, build: build}
	if *first > 0 {
		if err := s.without(ctx, *first); err != nil && ctx.Err() == nil {
			fmt.Fprintln(stderr, "find:", err)
			return exitError
		}
	}
	return report(s.all(ctx, faults, stderr), ctx.Err() != nil, *asJSON, stdout)
}

// matching returns the faults whose names match a regular expression.
func matching(all []planted.Fault, only string) (list []planted.Fault, err error) {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return nil, err
	}
	for _, f := range all {
		if pattern.MatchString(f.Name) {
			list = append(list, f)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("no fault has a name that matches %q", only)
	}
	return list, nil
}

// moduleRoot returns the folder of the module's go.mod.
func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	mod := strings.TrimSpace(string(out))
	if filepath.Base(mod) != "go.mod" {
		return "", errors.New("run it within the module")
	}
	return filepath.Dir(mod), nil
}
