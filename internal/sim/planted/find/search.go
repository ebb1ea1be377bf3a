package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/headgate/headgate/internal/sim/planted"
)

// search looks for faults, one after another.
type search struct {
	root, dir string        // of the module, and for what is built
	seeds     int64         // the most that a fault may need
	limit     time.Duration // for which the simulator plays
	grace     time.Duration // after which it is ended if it goes on
	build     func(ctx context.Context, root, overlay, bin string) error
}

// result is what became of a fault.
type result struct {
	Fault   string  `json:"fault"`
	File    string  `json:"file"`
	Found   bool    `json:"found"`
	Seeds   int64   `json:"seeds"`          // that were played
	Seed    int64   `json:"seed,omitempty"` // at which it was found
	Seconds float64 `json:"seconds"`        // that the simulator took
	Rule    string  `json:"rule,omitempty"` // that was violated; or panic, deadlock, or exit status 2
	Text    string  `json:"text,omitempty"` // what the simulator said of it, or why it was not found
}

// all looks for each fault, and tells on progress how it goes. It ends early with ctx.
func (s *search) all(ctx context.Context, faults []planted.Fault, progress io.Writer) (list []result) {
	for i, f := range faults {
		fmt.Fprintf(progress, "%d of %d: %s ...", i+1, len(faults), f.Name)
		r := s.one(ctx, f)
		if ctx.Err() != nil {
			fmt.Fprintln(progress, " interrupted")
			break
		}
		fmt.Fprintf(progress, " %s\n", r.how())
		list = append(list, r)
	}
	return list
}

// one looks for one fault.
func (s *search) one(ctx context.Context, f planted.Fault) result {
	r := result{Fault: f.Name, File: f.File}
	bin := filepath.Join(s.dir, f.Name+".test")
	defer os.Remove(bin)
	overlay, err := f.Overlay(s.root, s.dir)
	if err == nil {
		err = s.build(ctx, s.root, overlay, bin)
	}
	if err != nil {
		r.Text = err.Error()
		return r
	}
	r.play(ctx, s, bin, s.limit)
	if r.Found && r.Seeds > s.seeds {
		r.Found, r.Text = false, fmt.Sprintf("found only at seed %d: %s", r.Seed, r.Text)
	}
	return r
}

// without plays without a fault. What it finds is wrong with the module or with the
// simulator, and would be taken for the fault of each.
func (s *search) without(ctx context.Context, limit time.Duration) error {
	bin := filepath.Join(s.dir, "none.test")
	defer os.Remove(bin)
	if err := s.build(ctx, s.root, "", bin); err != nil {
		return err
	}
	var r result
	if r.play(ctx, s, bin, limit); r.Found {
		return fmt.Errorf("seed %d fails without a fault: %s: %s", r.Seed, r.Rule, r.Text)
	}
	if r.Text != clean {
		return errors.New(r.Text)
	}
	return nil
}

// play plays, and reads what the simulator says.
func (r *result) play(ctx context.Context, s *search, bin string, limit time.Duration) {
	begin := time.Now() //nolint:forbidigo // how long it takes
	stdout, stderr, err := s.run(ctx, bin, limit)
	r.Seconds = time.Since(begin).Seconds()
	r.read(stdout, stderr, err)
}

// run runs the simulator, and returns what it has said.
func (s *search) run(ctx context.Context, bin string, limit time.Duration) (stdout, stderr []byte, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit+s.grace, errEndless)
	defer cancel()
	// One process, so that the seeds are played in order, and nothing but the first violation.
	cmd := command(ctx, bin, "-test.run", "^TestSim$", "-for", limit.String(), "-from", "1", "-stop", "-json",
		"-workers", "2", "-shrink", "0s")
	cmd.Dir = filepath.Join(s.root, simulator)
	if _, err := os.Stat(cmd.Dir); err != nil {
		cmd.Dir = s.root
	}
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err = cmd.Run(); err != nil && context.Cause(ctx) != nil {
		err = context.Cause(ctx)
	}
	return out.Bytes(), log.Bytes(), err
}

var errEndless = errors.New("the simulator did not end in time")

// simulator is the package whose TestSim plays the seeds.
const simulator = "internal/sim"

// build makes the simulator with an overlay, or without one if it is "".
func build(ctx context.Context, root, overlay, bin string) error {
	cmd := command(ctx, "go", "test", "-c", "-overlay="+overlay, "-o", bin, "./"+simulator)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err == nil {
		_, err = os.Stat(bin) // a package without tests makes none
	}
	if err != nil {
		return fmt.Errorf("go test -c ./%s: %w: %s", simulator, err, lastLine(out))
	}
	return nil
}

// lastLine returns the last line of an output that says something.
func lastLine(out []byte) string {
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	return string(bytes.TrimSpace(lines[len(lines)-1]))
}

// command is a command that gets an interrupt when ctx ends, and a while to heed it.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

var (
	violation = regexp.MustCompile(`(?m)^\s*seed (\d+): ([^:\n]+): (.*)$`)
	seedNamed = regexp.MustCompile(`(?m)\bseed[ =:]*(\d+)|^running (\d+)$`)
	crash     = regexp.MustCompile(`(?m)^(panic: .*|fatal error: .*)$`)
	deadlock  = regexp.MustCompile(`(?i)deadlock|all goroutines are asleep`)
)

// clean is the Text of a search that has found nothing.
const clean = "no violation"

// total is the last line of the simulator.
type total struct {
	Decisions  int64   `json:"decisions"`
	NodeHours  float64 `json:"node_hours"`
	Seeds      int64   `json:"seeds"`
	Violations int64   `json:"violations"`
}

// read finds out what the simulator has said. It has found the fault if it says which
// seed violates which rule; or if it ends otherwise than without a violation and names
// the seed: with a panic, a deadlock, or exit status 2.
func (r *result) read(stdout, stderr []byte, err error) {
	var t total
	told := json.Unmarshal([]byte(lastLine(stdout)), &t) == nil
	r.Seeds = t.Seeds
	var exit *exec.ExitError
	both := append(append(append([]byte{}, stdout...), '\n'), stderr...)
	m := violation.FindSubmatch(both)
	switch {
	case m != nil:
		r.found(m[1], string(m[2]), string(m[3]))
		return
	case told && t.Violations == 0 && err == nil:
		r.Text = clean
		return
	case err != nil && !errors.As(err, &exit):
		r.Text = err.Error()
		return
	}
	named := seedNamed.FindAllSubmatch(both, -1)
	said := crash.Find(both)
	if said == nil && (exit == nil || exit.ExitCode() != 2) || len(named) == 0 {
		r.Text = fmt.Sprintf("the simulator failed (%v) and named no seed and rule: %.200s", err, lastLine(both))
		return
	}
	rule, text := "exit status 2", lastLine(both)
	switch {
	case deadlock.Match(both):
		rule = "deadlock"
	case said != nil:
		rule = "panic"
	}
	if said != nil {
		text = string(said)
	}
	under := named[len(named)-1] // the one under way
	r.found(append(under[1], under[2]...), rule, text)
}

// found notes that a seed has found the fault.
func (r *result) found(seed []byte, rule, text string) {
	r.Found, r.Rule, r.Text = true, rule, text
	r.Seed, _ = strconv.ParseInt(string(seed), 10, 64) // digits; one that is too large is cut to the largest
	if r.Seeds == 0 {
		r.Seeds = r.Seed // they are played from 1 on
	}
}

// how says in a few words what became of the fault.
func (r *result) how() string {
	if !r.Found {
		return "NOT FOUND: " + r.Text
	}
	return fmt.Sprintf("found by seed %d in %.1f s: %s", r.Seed, r.Seconds, r.Rule)
}
