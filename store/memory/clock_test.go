package memory_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// TestNoClockTimeAdmitsMoreThanTheCapacity charges one key while the clock shows, or reaches, a time that does not fit
// into a slot. The store must find the cell again: else it would forget the charges.
func TestNoClockTimeAdmitsMoreThanTheCapacity(t *testing.T) {
	t.Parallel()
	p := law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 3000, Step: 1_000_000_000, Drain: 1000}
	cell := law.Cell{Limit: "l", Key: "key"}
	for _, begin := range []int64{time.Time{}.UnixMicro(), -1, 1<<53 - 3000, 1 << 53, t0 * 1000, 1<<62 + 1} {
		clock := begin
		s := memory.New(&memory.Config{Clock: func() int64 { return clock }, Names: true})
		admitted := 0
		for i := range 20 {
			out, ok := store.Brief{}, false
			if i%2 == 1 {
				out, ok = s.TakeOne(t.Context(), cell, &p, p.Unit)
			}
			if !ok {
				out.Granted = apply(t, s, takeOp(cell.Limit, cell.Key, p)).Granted == 1
			}
			if out.Granted {
				admitted++
			}
			clock += 1000
		}
		if admitted > 3 {
			t.Errorf("a clock from %d on: got %d of 20 charges admitted, want 3 at most", begin, admitted)
		}
		if cells, _, err := s.Cells(t.Context(), store.Query{}); err == nil && len(cells) > 1 {
			t.Errorf("a clock from %d on: got %d cells of the key, want 1 at most", begin, len(cells))
		}
		s.Close()
	}
}
