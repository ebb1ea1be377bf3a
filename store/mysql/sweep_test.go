package mysql_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store/mysql"
)

// TestSweepThatReadAClockAheadKeepsCells checks that a sweep that has read a clock two hours ahead, which was then set
// back, removes no cell that counts by the present clock.
func TestSweepThatReadAClockAheadKeepsCells(t *testing.T) {
	s := openMigrated(t)
	limit := headgate.MustParse("token-bucket 5/1h burst 5")
	d, err := newLimiter(s).Allow(t.Context(), limit, "k")
	if err != nil {
		t.Fatal(err)
	}
	ahead := d.At.Add(2 * time.Hour).UnixMicro()
	removed, err := s.RemoveCells(t.Context(), ahead, []law.Cell{{Limit: limit.Name(), Key: "k"}})
	if removed != 0 || err != nil {
		t.Errorf("got %d removed, %v; want none", removed, err)
	}
	if status, err := newLimiter(s).Inspect(t.Context(), limit, "k"); err != nil || status.Used.String() == "0" {
		t.Errorf("after the sweep: got %+v, %v; want the charge", status, err)
	}
}

// TestSweepKeepsEntriesForThreeSeconds checks that a sweep removes entries only three seconds after their log is empty.
// A decision that has read the clock and locked the cell before may still read them, and without them it would be
// refused.
func TestSweepKeepsEntriesForThreeSeconds(t *testing.T) {
	expectEntriesStay(t, openMigrated(t), 3*time.Second)
}

// TestSweepKeepsEntriesForAMinuteInACluster checks that a sweep removes entries only a minute after their log is empty
// on a node of a cluster, which may show the log as empty for a while after another node has charged it. If the node
// removed such entries, the level would include them for as long as the key is in use.
func TestSweepKeepsEntriesForAMinuteInACluster(t *testing.T) {
	s := openMigrated(t)
	expectEntriesStay(t, s, time.Minute, s.AsGroupReplication)
}

// expectEntriesStay makes a charge, calls setup, and checks that a sweep removes the entry only after slack has passed
// since the log was empty.
func expectEntriesStay(t *testing.T, s *mysql.Store, slack time.Duration, setup ...func()) {
	t.Helper()
	hour := time.Hour.Microseconds()
	op := law.Op{
		Verb: law.Take, Group: 1, Cell: law.Cell{Limit: "sliding-log 1/1h", Key: "k"},
		Params: law.Params{Kind: law.Log, Unit: 1000, Capacity: 1000, Step: hour},
		Cost:   1000, Count: 1, Now: time.Now().UnixMicro() - 2*hour,
	}
	outs := make([]law.Outcome, 1)
	if err := s.Apply(t.Context(), []law.Op{op}, outs); err != nil || outs[0].Granted != 1 {
		t.Fatalf("got %+v, %v; want 1 granted", outs[0], err)
	}
	for _, call := range setup {
		call()
	}
	emptyAt := op.Now + hour // an hour ago
	for _, tt := range []struct {
		after int64
		want  int
	}{{-1, 0}, {0, 0}, {slack.Microseconds() - 1, 0}, {slack.Microseconds(), 1}} {
		if removed, err := s.SweepEntries(t.Context(), emptyAt+tt.after); removed != tt.want || err != nil {
			t.Errorf("%d us after the log is empty: got %d removed, %v; want %d", tt.after, removed, err, tt.want)
		}
	}
}
