package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestModes(t *testing.T) {
	t.Parallel()
	count := map[string]int{}
	for _, m := range modes(20) {
		count[m.name]++
	}
	if count[alone.name] != 10 || count[beside.name] != 5 || count[single.name] != 5 {
		t.Errorf("20 runs: %v", count)
	}
	if got := modes(1); len(got) != 1 || got[0].name != alone.name {
		t.Errorf("one run: %v", got)
	}
}

func TestFailuresAreCounted(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	var out bytes.Buffer
	command := []string{"sh", "-c", `[ -z "$FAILS" ] || { echo "    --- FAIL: TestA/b (0.00s)"; exit 1; }`}
	failed, err := run(t.Context(), &out, []mode{alone, {name: "another", env: []string{"FAILS=1"}}}, folder, command)
	if failed != 1 || err != nil {
		t.Errorf("%d failed, %v", failed, err)
	}
	for _, want := range []string{"| 1 | alone | 0 | ok |", "exit status 1 TestA/b", "1 of 2 runs failed"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, &out)
		}
	}
	if logs, _ := filepath.Glob(filepath.Join(folder, "*")); len(logs) != 1 {
		t.Errorf("logs %v, want that of the failure", logs)
	}
	if _, err := os.Stat(filepath.Join(folder, "steady-2.log")); err != nil {
		t.Error(err)
	}
}
