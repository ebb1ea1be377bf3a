package main

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestAnAuditCountsWhatSingleKeysGotAboveTheirBound asks a limiter that lets one key pass always,
// and another never: together they stay below the bound, and the first key is over it all the same.
func TestAnAuditCountsWhatSingleKeysGotAboveTheirBound(t *testing.T) {
	t.Parallel()
	asked := 0
	count := audit(1, 2, 0, 100, func(context.Context, *rand.Rand) (int, error) {
		if asked++; asked <= 150 {
			return 0, nil
		}
		time.Sleep(time.Millisecond)
		return -1, nil
	})
	e, err := count(t.Context(), time.Millisecond)
	if err != nil || e.admitted != 150 || e.allowed != 200 || e.over != 50 {
		t.Errorf("got %+v, %v; want 150 of 200 admitted, 50 over", e, err)
	}
}
