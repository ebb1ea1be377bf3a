package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestAFailureDoesNotEndTheNight runs steps by a program that fails at one of them.
func TestAFailureDoesNotEndTheNight(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program := filepath.Join(dir, "make")
	const script = "#!/bin/sh\necho \"$* in tier $HEADGATE_TEST_TIER by seed $HEADGATE_TEST_SEED\"\n" +
		"case $1 in bad) exit 2 ;; long) sleep 600 ;; esac\n"
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	few := []step{
		{"one", "the first", time.Minute, "bad", nil},
		{"two", "the second", time.Nanosecond, "long", nil},
		{"three", "the third", time.Minute, "good", []string{"ARG=-from SEED"}},
	}
	var out, errs bytes.Buffer
	args := []string{"-seed", "4711", "-folder", filepath.Join(dir, "bin")}
	if code := run(context.Background(), args, &out, &errs, program, few); code != 1 || errs.Len() > 0 {
		t.Errorf("status %d, %s", code, &errs)
	}
	table, err := os.ReadFile(filepath.Join(dir, "bin", "nightly.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`(?m)^\| one \| the first \| 4711 \| FAILED: exit status 2 \| 0.\d \| nightly-one.log \|$`,
		`(?m)^\| two \| the second \| 4711 \| FAILED: not done after 1ns \| 0.\d \| nightly-two.log \|$`,
		`(?m)^\| three \| the third \| 4711 \| ok \| 0.\d \| nightly-three.log \|$`,
	} {
		if !regexp.MustCompile(want).Match(table) {
			t.Errorf("the table has no row %s:\n%s", want, table)
		}
	}
	log, err := os.ReadFile(filepath.Join(dir, "bin", "nightly-three.log"))
	if want := "good ARG=-from 4711 in tier nightly by seed 4711\n"; err != nil || string(log) != want {
		t.Errorf("the log says %q, %v; want %q", log, err, want)
	}
	if code := run(context.Background(), append(args, "three"), &out, &errs, program, few); code != 0 {
		t.Errorf("status %d of one step", code)
	}
	if code := run(context.Background(), append(args, "four"), &out, &errs, program, few); code != 2 ||
		!strings.Contains(errs.String(), "only one, two, three") {
		t.Errorf("status %d of no step: %s", code, &errs)
	}
}

// TestTheTargetsAreThere looks for the steps in the Makefile.
func TestTheTargetsAreThere(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("../../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range steps {
		if !regexp.MustCompile(`(?m)^` + s.target + `:`).Match(makefile) {
			t.Errorf("%s: the Makefile has no target %s", s.name, s.target)
		}
		for _, arg := range s.args {
			name, _, _ := strings.Cut(arg, "=")
			if !regexp.MustCompile(`\$[({][^)}]*\b` + name + `\b`).Match(makefile) {
				t.Errorf("%s: the Makefile has no variable %s", s.name, name)
			}
		}
	}
}
