package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// switchboard is the file that decides which mutant is done, and notes which were reached.
const switchboard = `package %s

import (
	"os"
	"strconv"
	"sync/atomic"
)

var (
	mutantActive, _  = strconv.Atoi(os.Getenv(%q))
	mutantRecords, _ = os.OpenFile(os.Getenv(%q), os.O_WRONLY|os.O_APPEND, 0)
	mutantReached    [%d]atomic.Bool
)

func mutantOn(n int) bool { return n == mutantActive || mutantRecords != nil && mutantNote(n) }

func mutantNote(n int) bool {
	if !mutantReached[n].Swap(true) {
		mutantRecords.WriteString(strconv.Itoa(n) + "\n")
	}
	return false
}
`

// The environment of a test process: the number of its mutant, and the file for the numbers of those that it reaches.
const (
	activeEnv  = "HEADGATE_MUTANT"
	recordsEnv = "HEADGATE_MUTANTS_REACHED"
)

// suite is a package whose tests look for mutants.
type suite struct {
	dir    string
	binary string
}

// test is a top-level test.
type test struct {
	suite   *suite
	name    string
	took    time.Duration
	reaches map[int]bool
}

// build builds the tests of some packages, with all mutants in the files of one.
func build(ctx context.Context, temp, pkg string, mutants int, files map[string]string, dirs []string) (
	[]*suite, error,
) {
	replace := map[string]string{}
	add := func(path, text string) error {
		replace[path] = filepath.Join(temp, filepath.Base(path))
		return os.WriteFile(replace[path], []byte(text), 0o600)
	}
	dir := ""
	for path, text := range files {
		dir = filepath.Dir(path)
		if err := add(path, text); err != nil {
			return nil, err
		}
	}
	text := fmt.Sprintf(switchboard, pkg, activeEnv, recordsEnv, mutants+1)
	if err := add(filepath.Join(dir, "mutants_switchboard.go"), text); err != nil {
		return nil, err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, err
	}
	path := filepath.Join(temp, "overlay.json")
	if err := os.WriteFile(path, overlay, 0o600); err != nil {
		return nil, err
	}
	var suites []*suite
	for i, d := range dirs {
		s := &suite{dir: d, binary: filepath.Join(temp, strconv.Itoa(i)+".test")}
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", path, "-o", s.binary, ".")
		cmd.Dir = d
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build the tests of %s with all mutants: %w\n%s", d, err, out)
		}
		suites = append(suites, s)
	}
	return suites, nil
}

// errKilled says that tests failed.
var errKilled = errors.New("killed")

// run runs tests of a suite. It returns errKilled if they fail, and context.DeadlineExceeded if they take too long.
// A mutant may ask for all the memory that there is; it gets a part.
func (s *suite) run(ctx context.Context, pattern string, limit time.Duration, env ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", `ulimit -v 8000000; exec "$0" "$@"`, s.binary,
		"-test.run", pattern, "-test.short", "-test.failfast", "-test.timeout", "0")
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return string(out), ctx.Err()
	case errors.As(err, &exit):
		return string(out), errKilled
	}
	return string(out), err
}

// only returns the pattern of -test.run for some tests.
func only(tests ...*test) string {
	names := make([]string, len(tests))
	for i, t := range tests {
		names[i] = t.name
	}
	return "^(" + strings.Join(names, "|") + ")$"
}

// record runs each test by itself without a mutant, and notes which mutants it reaches. The shortest test is first.
func (s *suite) record(ctx context.Context, temp, skip string, limit time.Duration) ([]*test, error) {
	cmd := exec.CommandContext(ctx, s.binary, "-test.list", "^(Test|Example|Fuzz)")
	cmd.Dir = s.dir
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the tests of %s: %w", s.dir, err)
	}
	var tests []*test
	for name := range strings.FieldsSeq(string(out)) {
		if skip != "" && strings.Contains(name, skip) {
			continue
		}
		records, err := os.CreateTemp(temp, "reached-")
		if err != nil {
			return nil, err
		}
		defer records.Close()
		t := &test{suite: s, name: name, reaches: map[int]bool{}}
		begin := time.Now()
		if out, err := s.run(ctx, only(t), limit, recordsEnv+"="+records.Name()); err != nil {
			return nil, fmt.Errorf("%s of %s fails without a mutant: %w\n%s", name, s.dir, err, out)
		}
		t.took = time.Since(begin)
		for lines := bufio.NewScanner(records); lines.Scan(); {
			n, err := strconv.Atoi(lines.Text())
			if err != nil {
				return nil, err
			}
			t.reaches[n] = true
		}
		if len(t.reaches) > 0 {
			tests = append(tests, t)
		}
	}
	slices.SortStableFunc(tests, func(a, b *test) int { return cmp.Compare(a.took, b.took) })
	return tests, nil
}
