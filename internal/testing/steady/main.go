// Steady runs `make test` again and again without cached results, to show that luck decides nothing: half of the runs
// alone, a quarter beside eight busy loops, a quarter with GOMAXPROCS=1.
//
//	go run ./internal/testing/steady -n 20
//
// It writes what failed to bin/steady-N.log, goes on, and prints a table. It ends with status 1 if a run has failed.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// loops is how many busy loops disturb a run, for one spell after another, with a pause as long between them. A run
// on two cores takes twice as long then; beside loops that never pause it takes five times as long.
const (
	loops = 8
	spell = 20 * time.Second
)

// mode is how a run is disturbed.
type mode struct {
	name string
	busy bool
	env  []string
}

var (
	alone  = mode{name: "alone"}
	beside = mode{name: fmt.Sprintf("beside %d busy loops", loops), busy: true}
	single = mode{name: "GOMAXPROCS=1", env: []string{"GOMAXPROCS=1"}}
)

// modes returns how so many runs are disturbed: by turns, so that the first few say something of all.
func modes(n int) []mode {
	return slices.Repeat([]mode{alone, beside, alone, single}, n/4+1)[:n]
}

func main() {
	n := flag.Int("n", 20, "how often to run the tests")
	folder := flag.String("folder", "bin", "where what the runs said is written")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	runtime.GOMAXPROCS(loops + 1)
	command := []string{"make", "test", "TESTFLAGS=-count=1"}
	if flag.NArg() > 0 {
		command = flag.Args()
	}
	failed, err := run(ctx, os.Stdout, modes(*n), *folder, command)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "steady:", err)
	}
	if failed > 0 || err != nil {
		os.Exit(1)
	}
}

// run returns how many of the runs have failed.
func run(ctx context.Context, out io.Writer, runs []mode, folder string, command []string) (failed int, err error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return 0, err
	}
	fmt.Fprintln(out, "| run | how | seconds | result |\n|---|---|---|---|")
	done := 0
	for i, m := range runs {
		log := filepath.Join(folder, fmt.Sprintf("steady-%d.log", i+1))
		begin := time.Now()
		err := m.run(ctx, command, log)
		if ctx.Err() != nil {
			return failed, ctx.Err()
		}
		done++
		result := "ok"
		if err != nil {
			failed++
			result = fmt.Sprintf("FAILED: %v: %s", err, log)
		} else if err := os.Remove(log); err != nil {
			return failed, err
		}
		fmt.Fprintf(out, "| %d | %s | %.0f | %s |\n", i+1, m.name, time.Since(begin).Seconds(), result)
	}
	fmt.Fprintf(out, "%d of %d runs failed\n", failed, done)
	return failed, nil
}

// run runs the command once, and writes what it says to a file.
func (m *mode) run(ctx context.Context, command []string, log string) error {
	f, err := os.Create(log)
	if err != nil {
		return err
	}
	defer f.Close()
	if m.busy {
		defer burn()()
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = f, f
	cmd.Env = append(os.Environ(), m.env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(log)
		return fmt.Errorf("%w %s", err, strings.Join(failures(string(text)), ", "))
	}
	return nil
}

// failures returns the tests that a log of go test says have failed.
func failures(log string) (names []string) {
	for line := range strings.Lines(log) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "--- FAIL: "); ok {
			name, _, _ = strings.Cut(name, " ")
			names = append(names, name)
		}
	}
	return names
}

// burn starts the busy loops, and returns what ends them.
func burn() (stop func()) {
	var ended atomic.Bool
	var all sync.WaitGroup
	for range loops {
		all.Go(func() {
			for begin := time.Now(); !ended.Load(); {
				if time.Since(begin)/spell%2 == 1 {
					time.Sleep(spell / 100)
				}
			}
		})
	}
	return func() {
		ended.Store(true)
		all.Wait()
	}
}
