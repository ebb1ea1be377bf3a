package mysql_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/law"
)

// TestTheClockIsSetBackDuringASweep has a sweep that began an hour ahead. What counts by the clock of now stays.
func TestTheClockIsSetBackDuringASweep(t *testing.T) {
	s := open(t)
	limit := headgate.MustParse("token-bucket 5/1h burst 5")
	d, err := limiter(s).Allow(t.Context(), limit, "k")
	if err != nil {
		t.Fatal(err)
	}
	ahead := d.At.Add(2 * time.Hour).UnixMicro()
	removed, err := s.RemoveCells(t.Context(), ahead, []law.Cell{{Limit: limit.Name(), Key: "k"}})
	if removed != 0 || err != nil {
		t.Errorf("%d removed, %v", removed, err)
	}
	if status, err := limiter(s).Inspect(t.Context(), limit, "k"); err != nil || status.Used.String() == "0" {
		t.Errorf("after the sweep: %+v, %v", status, err)
	}
}
