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

// result is how the tests of a suite went.
type result struct {
	suite     *suite
	histories int
	versions  []string // of the servers that were tested
	passed    int      // tests, without those within others
	failed    []string
	took      time.Duration
	said      string // by what failed or was skipped
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

// run runs the tests of a suite. What failed or was skipped says why.
func run(ctx context.Context, s *suite, histories int, only bool) (r result) {
	r = result{suite: s, histories: histories}
	begin := time.Now()
	defer func() { r.took = time.Since(begin) }()
	args := []string{"test", "-json", "-count=1", "-timeout=60m"}
	packages := s.packages
	switch {
	case only:
		packages = packages[:1]
		args = append(args, "-run="+cmp.Or(s.conformance, conformance))
	case s.name == usual:
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
	if !only && tier.Current() < tier.OfEngines {
		cmd.Env = append(cmd.Env, tier.Env+"="+tier.OfEngines.String())
	}
	if !s.usual {
		cmd.Env = append(cmd.Env, dbtest.Engine+"="+s.name)
	}
	out, err := cmd.Output()
	said := map[string]string{}
	for line := range strings.Lines(string(out)) {
		var e event
		if json.Unmarshal([]byte(line), &e) != nil {
			r.said += line
			continue
		}
		r.note(&e, said)
	}
	r.err = err
	r.said += stderr.String()
	if r.err == nil && (r.passed == 0 || len(r.versions) == 0 && !s.memory) {
		r.err = errors.New("nothing was tested on it")
	}
	return r
}

// note takes an event to the result. said has what each test has said so far.
func (r *result) note(e *event, said map[string]string) {
	name := e.Package + " " + e.Test
	switch e.Action {
	case "output", "build-output":
		said[name] += e.Output
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
		r.said += said[name]
		if e.Action == "fail" && e.Test != "" && !strings.Contains(e.Test, "/") {
			r.failed = append(r.failed, e.Test)
		}
	}
	if e.Action == "pass" || e.Action == "fail" || e.Action == "skip" {
		delete(said, name)
	}
}
