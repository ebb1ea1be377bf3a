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

// seedsPerFault is how many simulations look for one fault, with the seeds from 1 on. It is no time, so that
// a busy machine finds as much as another. On two quiet cores these simulations take two minutes.
const seedsPerFault = 1000

// TestPlantedFaultsAreFound plants each fault and lets the simulator look for it. It fails for a fault that the
// simulator misses and notFound does not list.
func TestPlantedFaultsAreFound(t *testing.T) {
	tier.Nightly(t)
	// A violation that is found without a fault would count for every fault.
	if firstViolation := simulate(t, "", 100); firstViolation != "" {
		t.Fatalf("without a fault: got %s, want no violation", firstViolation)
	}
	var total int
	var missed []string
	for _, f := range faults(t) {
		t.Run(f.name, func(t *testing.T) {
			total++
			firstViolation := simulate(t, f.writeOverlay(t), seedsPerFault)
			if firstViolation != "" {
				t.Logf("found by %s", firstViolation)
				return
			}
			t.Logf("not found by %d seeds", seedsPerFault)
			if missed = append(missed, f.name); !slices.Contains(notFound, f.name) {
				t.Errorf("the simulator used to find that: %s", f.effect)
			}
		})
	}
	t.Logf("%d of %d faults are found; missed: %q", total-len(missed), total, missed)
}

// violationLine matches a line of the simulator: a seed, the rule that it breaks, and how.
var violationLine = regexp.MustCompile(`(?m)^seed \d+: .*$`)

// simulate builds the simulator with an overlay, and returns the first violation that it finds, or "".
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
	firstViolation := violationLine.FindString(string(out))
	if firstViolation == "" && err != nil && ctx.Err() == nil {
		t.Errorf("the simulator failed and named no seed: %v\n%.2000s", err, out)
	}
	return firstViolation
}
