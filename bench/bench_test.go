package main

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestAnAuditCountsWhatSingleKeysGotAboveTheirBound: two workers let one key pass always, and another never. Together
// they stay below the bound, and the first key is over it all the same.
func TestAnAuditCountsWhatSingleKeysGotAboveTheirBound(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	reports := []report{
		{Admitted: [auditKeys]int64{100, 0}, Begin: begin.Add(time.Second), End: begin.Add(2 * time.Second)},
		{Admitted: [auditKeys]int64{50, 0}, Begin: begin, End: begin.Add(time.Second)},
	}
	e := tally(reports, headgate.MustParse("token-bucket 10/s burst 80").Bound())
	if e.admitted != 150 || e.allowed != 200 || e.over != 50 {
		t.Errorf("got %+v; want 150 of 200 admitted, 50 over", e)
	}
}
