package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/leaktest"
	"github.com/headgate/headgate/internal/sim/planted"
	"github.com/headgate/headgate/internal/testing/await"
)

// stubbed makes the binary of these tests a simulator, which behaves as its name says.
const stubbed = "PLANTED_STUB"

func TestMain(m *testing.M) {
	if os.Getenv(stubbed) == "" {
		leaktest.Main(m)
	}
	want := []string{"-test.run", "^TestSim$", "-for", "1s", "-from", "1", "-stop", "-json", "-workers", "2", "-shrink", "0s"}
	if !slices.Equal(os.Args[1:], want) {
		fmt.Fprintf(os.Stderr, "called with %q, want %q\n", os.Args[1:], want)
		os.Exit(3)
	}
	os.Exit(stub(strings.TrimSuffix(filepath.Base(os.Args[0]), ".test")))
}

// runs is the end of the name of a file that says that an endless simulator runs.
const runs = ".runs"

// stub prints what a simulator prints, and returns its exit status.
func stub(name string) int {
	switch name {
	case "bound":
		fmt.Println("playing\nseed 7: BOUND: 6 of 5 passed: within 1s")
		fmt.Println(`{"decisions":900,"node_hours":1.5,"seeds":7,"violations":1}`)
		return 1
	case "none":
		fmt.Println(`{"decisions":900,"node_hours":1.5,"seeds":400,"violations":0}`)
		return 0
	case "late":
		fmt.Println("seed 101: IDS: charged twice")
		fmt.Println(`{"decisions":900,"node_hours":1.5,"seeds":101,"violations":1}`)
		return 1
	case "panics":
		fmt.Println("running 2\nrunning 3")
		fmt.Fprintln(os.Stderr, "panic: runtime error: index out of range\n\ngoroutine 7 [running]:\nmain.f()")
		return 2
	case "deadlocks":
		fmt.Fprintln(os.Stderr, "seed 12: all goroutines are asleep - deadlock!")
		return 2
	case "status":
		fmt.Fprintln(os.Stderr, "seed=5 cannot go on")
		return 2
	case "broken":
		fmt.Fprintln(os.Stderr, "flag provided but not defined: -for")
		return 2
	case "failed":
		fmt.Println("FAIL")
		return 1
	case "endless":
		interrupted := make(chan os.Signal, 1)
		signal.Notify(interrupted, os.Interrupt)
		if err := os.WriteFile(os.Args[0]+runs, nil, 0o600); err != nil {
			return 3
		}
		<-interrupted
	}
	return 0
}

// stubs returns a search whose simulator is this binary, and a fault of each name.
func stubs(t *testing.T, names ...string) (*search, []planted.Fault) {
	t.Helper()
	t.Setenv(stubbed, "1")
	s := &search{root: t.TempDir(), dir: t.TempDir(), seeds: 100, limit: time.Second, grace: time.Minute}
	s.build = func(_ context.Context, _, overlay, bin string) error {
		if _, err := os.Stat(overlay); err != nil && overlay != "" {
			return err
		}
		self, err := os.Executable()
		if err != nil {
			return err
		}
		return os.Symlink(self, bin)
	}
	if err := os.WriteFile(filepath.Join(s.root, "f.go"), []byte("package f\n\nconst n = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	faults := make([]planted.Fault, len(names))
	for i, name := range names {
		faults[i] = planted.Fault{Name: name, File: "f.go", Old: "1", New: "2"}
	}
	return s, faults
}

func TestSearch(t *testing.T) {
	s, faults := stubs(t, "bound", "none", "late", "panics", "deadlocks", "status", "broken", "failed", "gone")
	faults[8].Old = "3"
	var progress bytes.Buffer
	list := s.all(t.Context(), faults, &progress)
	for i, want := range []result{
		{Found: true, Seeds: 7, Seed: 7, Rule: "BOUND", Text: "6 of 5 passed: within 1s"},
		{Seeds: 400, Text: "no violation"},
		{Seeds: 101, Seed: 101, Rule: "IDS", Text: "found only at seed 101: charged twice"},
		{Found: true, Seeds: 3, Seed: 3, Rule: "panic", Text: "panic: runtime error: index out of range"},
		{Found: true, Seeds: 12, Seed: 12, Rule: "deadlock", Text: "seed 12: all goroutines are asleep - deadlock!"},
		{Found: true, Seeds: 5, Seed: 5, Rule: "exit status 2", Text: "seed=5 cannot go on"},
		{Text: "the simulator failed (exit status 2) and named no seed and rule: flag provided but not defined: -for"},
		{Text: "the simulator failed (exit status 1) and named no seed and rule: FAIL"},
		{Text: "fault gone: its old text occurs 0 times in f.go, want once"},
	} {
		got := list[i]
		want.Fault, want.File, got.Seconds = faults[i].Name, "f.go", 0
		if got != want {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}
	for _, part := range []string{"1 of 9: bound ... found by seed 7 in ", "2 of 9: none ... NOT FOUND: no violation\n"} {
		if !strings.Contains(progress.String(), part) {
			t.Errorf("%q is not in\n%s", part, &progress)
		}
	}
	if left, err := filepath.Glob(filepath.Join(s.dir, "*.test")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

func TestASimulatorThatDoesNotEnd(t *testing.T) {
	s, faults := stubs(t, "endless")
	s.grace = -900 * time.Millisecond
	if got := s.one(t.Context(), faults[0]); got.Found || got.Text != errEndless.Error() {
		t.Errorf("%+v", got)
	}
}

// TestWithoutAFault plays with what finds nothing, what finds something, and what fails.
func TestWithoutAFault(t *testing.T) {
	s, _ := stubs(t)
	build := s.build
	for name, want := range map[string]string{
		"none":  "",
		"bound": "seed 7 fails without a fault: BOUND: 6 of 5 passed: within 1s",
		"broken": "the simulator failed (exit status 2) and named no seed and rule: " +
			"flag provided but not defined: -for",
	} {
		s.build = func(ctx context.Context, root, overlay, bin string) error {
			if overlay != "" {
				t.Errorf("overlay %q", overlay)
			}
			if name == "none" {
				return build(ctx, root, overlay, bin)
			}
			as := filepath.Join(s.dir, name+".test")
			return errors.Join(build(ctx, root, overlay, as), os.WriteFile(bin,
				[]byte("#!/bin/sh\nexec "+as+" \"$@\"\n"), 0o700))
		}
		got := ""
		if err := s.without(t.Context(), time.Second); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

func TestInterrupted(t *testing.T) {
	s, faults := stubs(t, "bound", "endless", "none")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var progress, out bytes.Buffer
	ended := make(chan []result, 1)
	go func() { ended <- s.all(ctx, faults, &progress) }()
	await.Until(t, "the second simulator", func() bool {
		_, err := os.Stat(filepath.Join(s.dir, "endless.test"+runs))
		return err == nil
	})
	cancel()
	list := await.Receive(t, "the end", ended)
	if len(list) != 1 || !strings.HasSuffix(progress.String(), "endless ... interrupted\n") {
		t.Errorf("%d results\n%s", len(list), &progress)
	}
	if code := report(list, true, false, &out); code != exitInterrupted {
		t.Errorf("exit status %d, want %d", code, exitInterrupted)
	}
}

func TestReport(t *testing.T) {
	list := []result{
		{Fault: "one", Found: true, Seeds: 3, Seconds: 0.34, Rule: "BOUND"},
		{Fault: "another", Found: true, Seeds: 10, Seconds: 100, Rule: "panic"},
	}
	var out bytes.Buffer
	if code := report(list, false, false, &out); code != exitFound {
		t.Errorf("exit status %d", code)
	}
	want := `FAULT    RESULT  SEEDS  TIME   RULE
one      found   3      300ms  BOUND
another  found   10     1m40s  panic
2 of 2 found, median 6 seeds, median 50.2s
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
	out.Reset()
	list = append(list, result{Fault: "third", Text: "no violation"})
	if code := report(list, false, true, &out); code != exitNotFound {
		t.Errorf("exit status %d", code)
	}
	lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
	var r result
	var s summary
	if err := errors.Join(json.Unmarshal(lines[2], &r), json.Unmarshal(lines[3], &s)); err != nil ||
		r != list[2] || s.Found != 2 || s.Faults != 3 || s.MedianSeeds != 6 {
		t.Errorf("%v\n%s", err, &out)
	}
}

func TestArguments(t *testing.T) {
	for _, args := range [][]string{
		{"-only", "("},
		{"-only", "no such fault"},
		{"more"},
		{"-time", "0s"},
		{"-seeds", "0"},
		{"-clean", "-1s"},
		{"-such"},
	} {
		var out, log bytes.Buffer
		if code := run(t.Context(), args, &out, &log); code != exitError || log.Len() == 0 || out.Len() > 0 {
			t.Errorf("%q: exit status %d, %q, %q", args, code, &out, &log)
		}
	}
	if list, err := matching(planted.All(), "^exactness-"); err != nil || len(list) != 3 {
		t.Errorf("%d faults, %v", len(list), err)
	}
}
