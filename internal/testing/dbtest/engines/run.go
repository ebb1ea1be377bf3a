package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/tier"
)

// result is the result of the tests of a suite.
type result struct {
	suite     *suite
	histories int
	versions  []string // versions of the tested servers
	passed    int      // number of tests that passed, without subtests
	failed    []string // names of tests that failed, without subtests
	duration  time.Duration
	output    string // output of tests that failed or were skipped, and of go test itself
	err       error
}

func (r *result) verdict() string {
	if r.err == nil {
		return "ok"
	}
	return "FAILED: " + cmp.Or(strings.Join(r.failed, ", "), r.err.Error())
}

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
}

// run runs the tests of a suite, or only its random histories.
func run(ctx context.Context, s *suite, histories int, onlyHistories bool) (r result) {
	r = result{suite: s, histories: histories}
	begin := time.Now()
	defer func() { r.duration = time.Since(begin) }()
	args := []string{"test", "-json", "-count=1", "-timeout=60m"}
	packages := s.packages
	switch {
	case onlyHistories:
		packages = packages[:1]
		args = append(args, "-run="+cmp.Or(s.conformance, conformance))
	case s.name == usualSuite:
		if packages, r.err = usualPackages(ctx, "./..."); r.err != nil {
			return r
		}
	default:
		args = append(args, "-run="+s.run, "-skip="+s.skip)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, packages...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	var stderr strings.Builder
	cmd.Stderr = &stderr
	cmd.Env = append(os.Environ(), "HEADGATE_TEST_HISTORIES="+strconv.Itoa(histories))
	if !onlyHistories && tier.Current() < tier.OfEngines {
		cmd.Env = append(cmd.Env, tier.Env+"="+tier.OfEngines.String())
	}
	if !s.usual {
		cmd.Env = append(cmd.Env, dbtest.EngineEnv+"="+s.name)
	}
	out, err := cmd.Output()
	outputs := map[string]string{}
	for line := range strings.Lines(string(out)) {
		var e event
		if json.Unmarshal([]byte(line), &e) != nil {
			r.output += line
			continue
		}
		r.addEvent(&e, outputs)
	}
	r.err = err
	r.output += stderr.String()
	if r.err == nil && (r.passed == 0 || len(r.versions) == 0 && !s.noServer) {
		r.err = errors.New("nothing was tested on it")
	}
	return r
}

// addEvent adds an event to the result. outputs has the output of each running test.
func (r *result) addEvent(e *event, outputs map[string]string) {
	name := e.Package + " " + e.Test
	switch e.Action {
	case "output", "build-output":
		outputs[name] += e.Output
		if _, version, found := strings.Cut(e.Output, " engine: "); found {
			if version = strings.TrimSpace(version); !slices.Contains(r.versions, version) {
				r.versions = append(r.versions, version)
			}
		}
	case "pass":
		if e.Test != "" && !strings.Contains(e.Test, "/") {
			r.passed++
		}
	case "fail", "skip":
		r.output += outputs[name]
		if e.Action == "fail" && e.Test != "" && !strings.Contains(e.Test, "/") {
			r.failed = append(r.failed, e.Test)
		}
	}
	if e.Action == "pass" || e.Action == "fail" || e.Action == "skip" {
		delete(outputs, name)
	}
}
