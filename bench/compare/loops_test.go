package compare

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestAnAuditCountsWhatSingleKeysGotAboveTheirBound asks a limiter that lets one key pass always,
// and another never: together they stay below the bound, and the first key is over it all the same.
func TestAnAuditCountsWhatSingleKeysGotAboveTheirBound(t *testing.T) {
	t.Parallel()
	asked := 0
	audit := Audit(1, 2, 0, 100, func(context.Context, int, *rand.Rand) ([]int, error) {
		if asked++; asked <= 150 {
			return []int{0}, nil
		}
		time.Sleep(time.Millisecond)
		return nil, nil
	})
	e, err := audit(t.Context(), time.Millisecond)
	if err != nil || e.Admitted != 150 || e.Allowed != 200 || e.Over != 50 {
		t.Errorf("got %+v, %v; want 150 of 200 admitted, 50 over", e, err)
	}
}

func TestWhatIsAdmittedAboveTheBoundMissesTheGoal(t *testing.T) {
	t.Parallel()
	r := Result{
		Comparison: Comparison{Goals: []Goal{Times(1)}},
		Figures:    []Figure{{Side: Ours, Median: 10, HasExact: true}, {Side: Rival, Median: 5}},
	}
	if got := r.Verdict(); got != "yes" {
		t.Errorf("nothing was over: %q", got)
	}
	r.Figures[0].Exact.Over = 1
	if got := r.Verdict(); got != "no: it admitted too many" {
		t.Errorf("one was over: %q", got)
	}
}
