package mysql_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store/mysql"
)

// TestTheClockIsSetBackDuringASweep runs a sweep that began an hour ahead of the clock: what counts by the present
// clock must stay.
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

// TestEntriesStayUntilNobodyReadsThem sweeps a moment after a log is empty. A decision that read the clock before, and
// has locked the cell, may be about to read the entries: without them it would be refused.
func TestEntriesStayUntilNobodyReadsThem(t *testing.T) {
	entriesStayFor(t, open(t), 3*time.Second)
}

// TestEntriesStayForAMinuteInACluster sweeps a cluster, where a node may show the log as empty for a while after
// another one has charged it. The level would include entries that such a node removed for as long as the key is in
// use.
func TestEntriesStayForAMinuteInACluster(t *testing.T) {
	s := open(t)
	entriesStayFor(t, s, time.Minute, s.BeACluster)
}

// entriesStayFor checks when entries are removed, after a charge and the functions then.
func entriesStayFor(t *testing.T, s *mysql.Store, slack time.Duration, then ...func()) {
	t.Helper()
	hour := time.Hour.Microseconds()
	op := law.Op{
		Verb: law.Take, Group: 1, Cell: law.Cell{Limit: "sliding-log 1/1h", Key: "k"},
		Params: law.Params{Kind: law.Log, Unit: 1000, Capacity: 1000, Step: hour},
		Cost:   1000, Count: 1, Now: time.Now().UnixMicro() - 2*hour,
	}
	outs := make([]law.Outcome, 1)
	if err := s.Apply(t.Context(), []law.Op{op}, outs); err != nil || outs[0].Granted != 1 {
		t.Fatalf("%+v, %v", outs[0], err)
	}
	for _, do := range then {
		do()
	}
	empty := op.Now + hour // an hour ago
	for _, tt := range []struct {
		after int64
		want  int
	}{{-1, 0}, {0, 0}, {slack.Microseconds() - 1, 0}, {slack.Microseconds(), 1}} {
		if removed, err := s.SweepEntries(t.Context(), empty+tt.after); removed != tt.want || err != nil {
			t.Errorf("%d us after the log is empty: %d removed, %v, want %d", tt.after, removed, err, tt.want)
		}
	}
}
