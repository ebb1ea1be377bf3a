package planted_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testing/tier"
)

// notFound lists the faults that the simulator does not find within seedsPerFault. A test of package law finds the
// first: TestTwoDefinitionsInTurnStarveNoKey.
var notFound = []string{"exactness-d5", "handed-out-and-given-back"}

// seedsPerFault is how many simulations look for one fault, by seeds from 1 on. It is a number and not a time, so that
// a busy machine finds as much as another. On two quiet cores these simulations take two minutes.
const seedsPerFault = 1000

// TestPlantedFaultsAreFound plants each fault and lets the simulator look for it. It fails for a fault that is missed
// and that notFound does not list.
func TestPlantedFaultsAreFound(t *testing.T) {
	tier.Nightly(t)
	// A violation that is found without a fault would count for every fault.
	if found := simulate(t, "", 100); found != "" {
		t.Fatalf("without a fault: %s", found)
	}
	var tried int
	var missed []string
	for _, f := range faults(t) {
		t.Run(f.name, func(t *testing.T) {
			tried++
			found := simulate(t, f.overlay(t), seedsPerFault)
			if found != "" {
				t.Logf("found by %s", found)
				return
			}
			t.Logf("not found by %d seeds", seedsPerFault)
			if missed = append(missed, f.name); !slices.Contains(notFound, f.name) {
				t.Errorf("the simulator used to find that: %s", f.breaks)
			}
		})
	}
	t.Logf("%d of %d faults are found; missed: %q", tried-len(missed), tried, missed)
}

// violation is a line of the simulator: a seed, the rule that it breaks, and how.
var violation = regexp.MustCompile(`(?m)^seed \d+: .*$`)

// simulate builds the simulator with an overlay and returns the first violation that it finds.
func simulate(t *testing.T, overlay string, seeds int) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "sim.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-overlay="+overlay, "-o", bin,
		"./internal/testing/sim")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // for a simulation that hangs
	defer cancel()
	sim := exec.CommandContext(ctx, bin, "-test.run=^TestSim$", "-test.timeout=0", "-from=1",
		"-seeds="+strconv.Itoa(seeds), "-stop")
	sim.Dir = filepath.Join(root, "internal", "testing", "sim")
	sim.Cancel = func() error { return sim.Process.Signal(os.Interrupt) }
	sim.WaitDelay = 5 * time.Second
	out, err := sim.CombinedOutput()
	found := violation.FindString(string(out))
	if found == "" && err != nil && ctx.Err() == nil {
		t.Errorf("the simulator failed and named no seed: %v\n%.2000s", err, out)
	}
	return found
}
