package deny

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/coarse"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store/memory"
)

// limit has a capacity of three units of 1000 credits; one unit drains each second.
var limit = law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 3000, Step: 1000, Drain: 1}

// baseTime is the store's time at which its cells are full.
const baseTime = 1_000_000_000

// fullState is a cell with three units in use.
var fullState = law.State{
	Kind: law.Bucket, Level: 3000, At: baseTime, Unit: 1000, Step: 1000, EmptyAt: baseTime + 3_000_000,
}

// charge returns a take of some credits.
func charge(cost int64) law.Op {
	return law.Op{
		Verb: law.Take, Group: 1, Cell: law.Cell{Limit: "l", Key: "k"}, Params: limit, Cost: cost, Count: 1,
	}
}

// withStore runs a test in a bubble of time, a second after a Store was made.
func withStore(t *testing.T, test func(t *testing.T, s *Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := New(memory.New(nil))
		defer s.Close()
		if s.now() != 1 {
			t.Errorf("got first time %d, want 1, as 0 is no time", s.now())
		}
		time.Sleep(time.Second)
		test(t, s)
		time.Sleep(time.Second) // the goroutines of coarse clocks end
	})
}

// addRefusal caches a refusal of a charge by the full cell, received now, for a duration.
func (s *Store) addRefusal(op law.Op, d time.Duration) *refusal {
	out := law.Decide(fullState, &op, baseTime, 0, nil).Outcome
	r := &refusal{
		params: op.Params, maxLevel: maxLevel(&op), out: out, receivedAt: s.now(),
		until: s.now() + d.Microseconds(), refreshed: make(chan struct{}),
	}
	s.cache.Set(op.Cell, r)
	return r
}

// refusalOf returns the refusal of a charge's cell, or nil.
func (s *Store) refusalOf(op law.Op) *refusal {
	r, _ := s.cache.GetIfPresent(op.Cell)
	return r
}

// TestRepeatableAndRefused checks each condition of isRepeatable and isRefusal alone.
func TestRepeatableAndRefused(t *testing.T) {
	refusal := law.Outcome{Clock: baseTime, RetryAt: baseTime + 1}
	for name, c := range map[string]struct {
		change     func(*law.Op, *law.Outcome)
		repeatable bool
		refused    bool
	}{
		"a plain charge":       {func(*law.Op, *law.Outcome) {}, true, true},
		"two together":         {func(op *law.Op, _ *law.Outcome) { op.Count = 2 }, true, true},
		"one with headroom":    {func(op *law.Op, _ *law.Outcome) { op.Ceiling = 2000 }, true, true},
		"as many as fit":       {func(op *law.Op, _ *law.Outcome) { op.Partial = true }, false, false},
		"a check":              {func(op *law.Op, _ *law.Outcome) { op.Verb = law.Check }, false, false},
		"with an ID":           {func(op *law.Op, _ *law.Outcome) { op.ID = "id" }, false, false},
		"a deferred one":       {func(op *law.Op, _ *law.Outcome) { op.Deferred = true }, false, false},
		"at a test time":       {func(op *law.Op, _ *law.Outcome) { op.Now = baseTime }, false, false},
		"from a time":          {func(op *law.Op, _ *law.Outcome) { op.From = 1 }, false, false},
		"with a history":       {func(op *law.Op, _ *law.Outcome) { op.Params.History = 1 }, false, false},
		"of leases":            {func(op *law.Op, _ *law.Outcome) { op.Params.Leased = true }, false, false},
		"an error":             {func(_ *law.Op, out *law.Outcome) { out.Err = errors.New("failed") }, true, false},
		"stale":                {func(_ *law.Op, out *law.Outcome) { out.Stale = true }, true, false},
		"granted":              {func(_ *law.Op, out *law.Outcome) { out.Granted = 1 }, true, false},
		"over at its decision": {func(_ *law.Op, out *law.Outcome) { out.RetryAt = baseTime }, true, false},
		"one that would fit":   {func(_ *law.Op, out *law.Outcome) { out.RetryAt = 0 }, true, false},
	} {
		op, out := charge(1000), refusal
		c.change(&op, &out)
		if isRepeatable(&op) != c.repeatable || isRefusal(&op, &out) != c.refused {
			t.Errorf("%s: got repeatable %v, refused %v; want %v, %v", name, isRepeatable(&op), isRefusal(&op, &out), c.repeatable,
				c.refused)
		}
	}
}

// TestTheLastGrantPredictsARefusal checks that the grant of the last unit becomes a refusal of the next charge.
func TestTheLastGrantPredictsARefusal(t *testing.T) {
	grant := law.Outcome{Granted: 1, State: fullState, Used: 3000, Clock: baseTime}
	for name, c := range map[string]struct {
		change func(*law.Op, *law.Outcome)
		want   bool
	}{
		"the last":                  {func(*law.Op, *law.Outcome) {}, true},
		"a credit too few are left": {func(_ *law.Op, out *law.Outcome) { out.Used, out.State.Level = 2001, 2001 }, true},
		"another one fits":          {func(_ *law.Op, out *law.Outcome) { out.Used, out.State.Level = 2000, 2000 }, false},
		"with an ID":                {func(op *law.Op, _ *law.Outcome) { op.ID = "id" }, false},
		"of a log":                  {func(op *law.Op, _ *law.Outcome) { op.Params.Kind = law.Log }, false},
		"of a limit that blocks":    {func(op *law.Op, _ *law.Outcome) { op.Params.Block = 1 }, false},
		"two together":              {func(op *law.Op, _ *law.Outcome) { op.Count = 2 }, false},
		"an error":                  {func(_ *law.Op, out *law.Outcome) { out.Err = errors.New("failed") }, false},
		"stale":                     {func(_ *law.Op, out *law.Outcome) { out.Stale = true }, false},
		"refused":                   {func(_ *law.Op, out *law.Outcome) { out.Granted = 0 }, false},
	} {
		op, out := charge(1000), grant
		c.change(&op, &out)
		oldOut := out
		want := out
		if c.want {
			want.Granted, want.RetryAt = 0, baseTime+(out.Used-2000)*1000
		}
		if got := takesLast(&op, &out); got != c.want || out != want {
			t.Errorf("%s: got %v, and %+v becomes %+v, want %+v", name, got, oldOut, out, want)
		}
	}
	op := charge(3001)
	if next := nextOutcome(&op, &grant); next.RetryAt != law.Never {
		t.Errorf("a credit more than the capacity: got %+v, want a refusal for ever", next)
	}
}

func TestSharesCell(t *testing.T) {
	op := func(limit, key string) law.Op { return law.Op{Cell: law.Cell{Limit: limit, Key: key}} }
	for name, c := range map[string]struct {
		a, b law.Op
		want bool
	}{
		"the same":     {op("l", "a"), op("l", "a"), true},
		"other keys":   {op("l", "a"), op("l", "b"), false},
		"other limits": {op("l", "a"), op("m", "a"), false},
	} {
		for k := range 2 {
			if got := sharesCell([]law.Op{c.a, c.b}, k); got != c.want {
				t.Errorf("%s: charge %d: got %v, want %v", name, k, got, c.want)
			}
		}
	}
}

// TestHoldsReadsTheClockNearTheEnd checks that holds reads the clock exactly near the end of a refusal, and if the
// coarse clock is before its arrival; else it uses the coarse clock.
func TestHoldsReadsTheClockNearTheEnd(t *testing.T) {
	const second = 1_000_000
	for name, c := range map[string]struct {
		receivedAt, until int64 // by the coarse clock, which lags by 500 µs
		age               int64 // of the refusal; 500 more if the clock was read exactly
		holds             bool
	}{
		"long before its end":          {-100, second, 100, true},
		"when it came":                 {0, second, 0, true},
		"a microsecond before it came": {1, second, 499, true},
		"before it came":               {400, second, 100, true},
		"the lag before its end":       {-100, coarse.Lag, 100, true},
		"less than that before":        {-100, coarse.Lag - 1, 600, true},
		"near its end":                 {-100, 501, 600, true},
		"at its end":                   {-100, 500, 600, false},
		"it ended since the clock":     {-100, 300, 600, false},
		"after its end":                {-100, -1, 600, false},
	} {
		t.Run(name, func(t *testing.T) {
			withStore(t, func(t *testing.T, s *Store) {
				for range 102 { // so many that the clock is coarse
					s.clock.Read()
				}
				time.Sleep(500 * time.Microsecond)
				now, exact := s.clock.Read()
				if exact || s.now()-now != 500 {
					t.Fatalf("got %d, exact %v, at %d; want a lag of 500", now, exact, s.now())
				}
				age, holds := s.holds(&refusal{receivedAt: now + c.receivedAt, until: now + c.until})
				if age != c.age || holds != c.holds {
					t.Errorf("got age %d, holds %v; want %d, %v", age, holds, c.age, c.holds)
				}
			})
		})
	}
}

// TestTheClockIsNotReadTwice checks that holds reads the clock once if it is exact.
func TestTheClockIsNotReadTwice(t *testing.T) {
	withStore(t, func(t *testing.T, s *Store) {
		reads := 0
		s.clock.Source = func() int64 { reads++; return s.now() }
		age, holds := s.holds(&refusal{receivedAt: s.now() - 5, until: s.now() + 1})
		if age != 5 || !holds || reads != 1 {
			t.Errorf("got age %d, holds %v, %d reads; want 5, true, 1", age, holds, reads)
		}
	})
}

// TestTakeOneReportsABlock checks Brief.Blocked for a block that ends before the refusal.
func TestTakeOneReportsABlock(t *testing.T) {
	withStore(t, func(t *testing.T, s *Store) {
		op := charge(1000)
		r := s.addRefusal(op, time.Second)
		r.out.State.BlockedUntil = baseTime + 300_000
		for _, c := range []struct {
			after   time.Duration // since the call before
			blocked bool
		}{{0, true}, {299_999 * time.Microsecond, true}, {time.Microsecond, false}, {time.Millisecond, false}} {
			time.Sleep(c.after)
			b, ok := s.TakeOne(t.Context(), op.Cell, &op.Params, op.Cost)
			if !ok || b.Granted || b.Blocked != c.blocked || b.Clock != baseTime+s.now()-r.receivedAt {
				t.Errorf("%d µs later: got %+v, want blocked %v", s.now()-r.receivedAt, b, c.blocked)
			}
		}
	})
}

// TestRefusalsOfOtherCosts checks the outcomes of other costs, which are computed from the cell of the cached refusal.
func TestRefusalsOfOtherCosts(t *testing.T) {
	emptyState := fullState
	emptyState.Level = 0
	for name, c := range map[string]struct {
		change  func(*refusal)
		cost    int64
		used    int64 // 0: the charge goes to the store
		retryAt int64
	}{
		"the same":              {nil, 1000, 3000, baseTime + 1_000_000},
		"a larger one":          {nil, 2000, 2500, baseTime + 2_000_000},
		"the capacity":          {nil, 3000, 2500, baseTime + 3_000_000},
		"a credit more":         {nil, 3001, 2500, law.Never},
		"a smaller one":         {nil, 999, 0, 0},
		"a log's larger one":    {func(r *refusal) { r.params.Kind = law.Log }, 2000, 0, 0},
		"one that would pass":   {func(r *refusal) { r.out.State = emptyState }, 2000, 0, 0},
		"one that would be old": {func(r *refusal) { r.params.Anchor = law.Calendar }, 2000, 0, 0},
		"of another limit":      {func(r *refusal) { r.params.Capacity++ }, 1000, 0, 0},
		"over":                  {func(r *refusal) { r.until = r.receivedAt }, 1000, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			withStore(t, func(t *testing.T, s *Store) {
				r := s.addRefusal(charge(1000), time.Second)
				op := charge(c.cost)
				if c.change != nil {
					capacity := r.params.Capacity
					c.change(r)
					op.Params = r.params
					op.Params.Capacity = capacity
				}
				time.Sleep(500 * time.Millisecond)
				out := law.Outcome{Granted: 7, Via: law.ViaLocal, Used: 8} // of an earlier batch
				repeated := s.repeatRefusal(&op, &out)
				var want law.Outcome
				if c.used > 0 {
					want = law.Outcome{
						State: fullState, Used: c.used, Clock: baseTime + 500_000, RetryAt: c.retryAt,
						Via: law.ViaLocal,
					}
				}
				if repeated != (c.used > 0) || repeated && out != want || !repeated && out.Via == law.ViaLocal {
					t.Errorf("got repeated %v, %+v\nwant %+v", repeated, out, want)
				}
				if got := s.Repeated(); (got == 1) != repeated {
					t.Errorf("got %d repeated refusals counted", got)
				}
			})
		})
	}
}
