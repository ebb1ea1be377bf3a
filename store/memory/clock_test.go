package memory_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// TestANewCellIsChargedAtATimeAfterSharing stops a caller in its first look at the clock, until the
// period of sharing is over in which its key was charged. The cell that it makes then must be charged
// at a time when that charge does not count any more.
func TestANewCellIsChargedAtATimeAfterSharing(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]law.Params{
		"a plain charge": {Kind: law.Bucket, Unit: 1000, Capacity: 1000, Step: 1000, Drain: 1000},
		"a log":          {Kind: law.Log, Unit: 1000, Capacity: 1000, Step: 1000},
	} {
		t.Run(name, func(t *testing.T) { stoppedInTheClock(t, p) })
	}
}

func stoppedInTheClock(t *testing.T, p law.Params) {
	t.Helper()
	var now atomic.Int64
	var hook atomic.Pointer[func()]
	now.Store(t0)
	s := memory.New(&memory.Config{MaxKeys: 2, Clock: func() int64 {
		read := now.Load()
		if f := hook.Swap(nil); f != nil {
			(*f)()
		}
		return read
	}})
	defer s.Close()
	for _, own := range []string{"own 1", "own 2"} {
		apply(t, s, takeOp("l", own, p))
	}
	look := takeOp("l", "other", p)
	look.Verb = law.Check
	shared := law.SharedCell("l", roomOf(t, s, "l").Generation+1)
	key := "key" // of another table than those of which the look needs the locks
	for n := 0; s.SameTable(law.Cell{Limit: "l", Key: key}, look.Cell) ||
		s.SameTable(law.Cell{Limit: "l", Key: key}, shared); n++ {
		key = fmt.Sprint("key ", n)
	}
	if out := apply(t, s, takeOp("l", key, p)); !out.Shared || out.Granted != 1 {
		t.Fatalf("the limit is not full: %+v", out)
	}
	if room := roomOf(t, s, "l"); law.SharedCell("l", room.Generation) != shared {
		t.Fatalf("the shared cell is another than %v: %+v", shared, room)
	}
	end := func() {
		now.Add(10_000)
		if out := apply(t, s, look); out.Shared {
			t.Errorf("sharing has not ended: %+v", out)
		}
	}
	hook.Store(&end)
	if out := apply(t, s, takeOp("l", key, p)); out.Granted != 1 || out.Shared || out.Clock < t0+10_000 {
		t.Errorf("charged at +%d us: %+v", out.Clock-t0, out)
	}
}

// TestNoTimeOfTheClockMints charges one key while the clock shows a time that a slot has no room for, as one in
// nanoseconds would, or goes on to such a time: a cell that a store does not find again has never been charged.
func TestNoTimeOfTheClockMints(t *testing.T) {
	t.Parallel()
	p := law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 3000, Step: 1_000_000_000, Drain: 1000}
	cell := law.Cell{Limit: "l", Key: "key"}
	for _, begin := range []int64{time.Time{}.UnixMicro(), -1, 1<<53 - 3000, 1 << 53, t0 * 1000, 1<<62 + 1} {
		clock := begin
		s := memory.New(&memory.Config{Clock: func() int64 { return clock }, Names: true})
		pin := s.Pin(cell, &p)
		granted := 0
		for i := range 20 {
			out, ok := store.Brief{}, false
			switch i % 3 {
			case 1:
				out, ok = s.TakeOne(t.Context(), cell, &p, p.Unit)
			case 2:
				out, ok = pin.TakeOne(p.Unit)
			}
			if !ok {
				out.Granted = apply(t, s, takeOp(cell.Limit, cell.Key, p)).Granted == 1
			}
			if out.Granted {
				granted++
			}
			clock += 1000
		}
		if granted > 3 {
			t.Errorf("a clock from %d on: %d of 20 charges were granted by a limit of 3", begin, granted)
		}
		if cells, _, err := s.Cells(t.Context(), store.Query{}); err == nil && len(cells) > 1 {
			t.Errorf("a clock from %d on: the key has %d cells", begin, len(cells))
		}
		s.Close()
	}
}
