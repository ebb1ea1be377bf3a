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
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/testing/tier"
)

// tests are those that a command of the form [ENV=VALUE] go test PACKAGES -run 'TESTS' names.
type tests struct {
	env      string
	packages []string
	names    []string // a name with slashes is that of a subtest
}

var goTest = regexp.MustCompile(`^((?:[A-Z_]+=\S+ )*)go test ((?:\.\S* )+)-run '?([^' ]+)'?$`)

// tested returns the tests of a command, and whether it has that form.
func tested(command string) (*tests, bool) {
	m := goTest.FindStringSubmatch(command)
	if m == nil {
		return nil, false
	}
	return &tests{strings.TrimSpace(m[1]), strings.Fields(m[2]), strings.Split(m[3], "|")}, true
}

// suite is the tests of one package that claims name. They are run by one process.
type suite struct {
	env, dir string
	names    []string
	results  map[string]*result
	output   string // of a package that does not build
}

// result is what became of a test.
type result struct {
	action string // pass, fail or skip
	took   time.Duration
	output string
}

// prove runs the commands of claims. It calls done for each as soon as all of its commands have ended.
func prove(ctx context.Context, root string, all []*claim, done func(*claim, error)) error {
	suites := group(all)
	waiting := slices.Clone(all)
	settle := func() {
		waiting = slices.DeleteFunc(waiting, func(c *claim) bool {
			ended, err := c.ended(suites)
			if ended {
				done(c, errors.Join(err, c.shell(ctx, root)))
			}
			return ended
		})
	}
	settle() // those that name no tests
	for _, s := range suites {
		if err := s.run(ctx, root); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		settle()
	}
	return nil
}

// group returns the tests of claims by package.
func group(all []*claim) (suites []*suite) {
	for _, c := range all {
		for _, command := range c.commands {
			t, ok := tested(command)
			if !ok {
				continue
			}
			for _, dir := range t.packages {
				i := slices.IndexFunc(suites, func(s *suite) bool { return s.env == t.env && s.dir == dir })
				if i < 0 {
					i = len(suites)
					suites = append(suites, &suite{env: t.env, dir: dir})
				}
				suites[i].names = append(suites[i].names, t.names...)
			}
		}
	}
	return suites
}

// ended returns whether all tests of a claim have ended, and what went wrong.
func (c *claim) ended(suites []*suite) (bool, error) {
	var wrong []error
	c.took = 0
	for _, command := range c.commands {
		t, ok := tested(command)
		if !ok {
			continue
		}
		for _, s := range suites {
			if s.env != t.env || !slices.Contains(t.packages, s.dir) {
				continue
			}
			if s.results == nil {
				return false, nil
			}
			for _, name := range t.names {
				took, err := s.judge(name)
				c.took += took
				wrong = append(wrong, err)
			}
		}
	}
	return true, errors.Join(wrong...)
}

// judge says what is wrong with a test, or nil.
func (s *suite) judge(name string) (time.Duration, error) {
	r := s.results[name]
	switch {
	case s.output != "":
		return 0, fmt.Errorf("%s: %s", s.dir, s.output)
	case r == nil:
		return 0, fmt.Errorf("%s: %s was not run", s.dir, name)
	case r.action != "pass":
		return r.took, fmt.Errorf("%s: %s: %s\n%s", s.dir, name, r.action, tail(r.output))
	}
	return r.took, nil
}

// shell runs the commands of a claim that are not go test. Each has a minute.
func (c *claim) shell(ctx context.Context, root string) error {
	for _, command := range c.commands {
		if _, ok := tested(command); ok {
			continue
		}
		begin := time.Now()
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		cmd := exec.CommandContext(ctx, "sh", "-c", command)
		cmd.Dir = root
		cmd.WaitDelay = time.Second
		out, err := cmd.CombinedOutput()
		cancel()
		c.took += time.Since(begin)
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", command, err, tail(string(out)))
		}
	}
	return nil
}

// event is a line of go test -json.
type event struct {
	Action, Test, Output string
	Elapsed              float64
}

// run runs the tests. Its error says that they could not be started.
func (s *suite) run(ctx context.Context, root string) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-json", "-count=1", "-run", s.pattern(), s.dir)
	cmd.Dir = root
	// A claim may rest on a test that takes too long for make test.
	cmd.Env = append(append(os.Environ(), tier.Env+"="+tier.OfNightly.String()), strings.Fields(s.env)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return err
	}
	s.results = map[string]*result{}
	rest := ""
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var e event
		if err := dec.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("go test -json %s: %w\n%s", s.dir, err, stderr.String())
		}
		s.note(e, &rest)
	}
	if len(s.results) == 0 && exit != nil {
		s.output = tail(rest + stderr.String())
	}
	return nil
}

// note keeps what an event says.
func (s *suite) note(e event, rest *string) {
	if e.Test == "" {
		*rest += e.Output
		return
	}
	r := s.results[e.Test]
	if r == nil {
		r = &result{action: "did not end"}
		s.results[e.Test] = r
	}
	switch e.Action {
	case "pass", "fail", "skip":
		r.action, r.took = e.Action, time.Duration(e.Elapsed*float64(time.Second))
	case "output":
		r.output += e.Output
		if parent, _, ok := strings.Cut(e.Test, "/"); ok && s.results[parent] != nil {
			s.results[parent].output += e.Output
		}
	}
}

// pattern matches the names of the suite's tests and no others.
func (s *suite) pattern() string {
	var patterns []string
	for _, name := range s.names {
		var parts []string
		for part := range strings.SplitSeq(name, "/") {
			parts = append(parts, "^"+regexp.QuoteMeta(part)+"$")
		}
		patterns = append(patterns, strings.Join(parts, "/"))
	}
	slices.Sort(patterns)
	return strings.Join(slices.Compact(patterns), "|")
}

// tail returns the last lines of a text.
func tail(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}
