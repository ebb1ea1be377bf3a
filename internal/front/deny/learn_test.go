package deny

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/law"
)

// chargeOf returns a charge of a unit to the cell of a key.
func chargeOf(key string) law.Op {
	op := charge(1000)
	op.Cell.Key = key
	return op
}

// TestCacheOutcomes checks what each outcome stores: a refusal, the time of a grant, or a change of the cell.
func TestCacheOutcomes(t *testing.T) {
	op, errFailed := charge(1000), errors.New("failed")
	refusal := law.Decide(fullState, &op, baseTime, 0, nil).Outcome
	oneUsed := law.State{
		Kind: law.Bucket, Level: 1000, At: baseTime, Unit: 1000, Step: 1000, EmptyAt: baseTime + 1_000_000,
	}
	grant := law.Outcome{Granted: 1, State: oneUsed, Used: 1000, Clock: baseTime}
	prefetchGrant, replay, lastGrant := grant, grant, grant
	prefetchGrant.Via, replay.Replayed = law.ViaPrefetch, true
	lastGrant.Used, lastGrant.State = 3000, fullState
	for name, c := range map[string]struct {
		verb    law.Verb
		out     law.Outcome
		err     error
		refusal bool // is cached
		grant   bool // its time is stored
		drops   uint32
	}{
		"a refusal":                {law.Take, refusal, nil, true, false, 0},
		"an error":                 {law.Take, refusal, errFailed, false, false, 0},
		"a grant":                  {law.Take, grant, nil, false, true, 0},
		"a grant that failed":      {law.Take, grant, errFailed, false, false, 0},
		"the last":                 {law.Take, lastGrant, nil, true, true, 0},
		"a grant out of others":    {law.Take, prefetchGrant, nil, false, false, 0},
		"one that was made before": {law.Take, replay, nil, false, false, 0},
		"a check":                  {law.Check, refusal, nil, false, false, 0},
		"a reset":                  {law.Reset, law.Outcome{}, nil, false, false, 1},
		"a reset that failed":      {law.Reset, law.Outcome{}, errFailed, false, false, 1},
		"a return":                 {law.Return, grant, nil, false, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			withStore(t, func(t *testing.T, s *Store) {
				op := op
				op.Verb = c.verb
				s.cacheOutcomes([]law.Op{op}, []law.Outcome{c.out}, []uint32{0}, c.err)
				h := s.hash(op.Cell)
				grantedAt := s.lastGrants[h].Load()
				if r := s.refusalOf(op); (r != nil) != c.refusal || s.dropCounts[h].Load() != c.drops ||
					c.grant && grantedAt != baseTime || !c.grant && grantedAt != 0 {
					t.Errorf("got refusal %+v, last grant at %d, %d drops", r, grantedAt, s.dropCounts[h].Load())
				}
			})
		})
	}
}

// TestAllRefusalsOfALargeBatchAreCached checks that the refusals of 40 requests of one charge are all cached.
func TestAllRefusalsOfALargeBatchAreCached(t *testing.T) {
	withStore(t, func(t *testing.T, s *Store) {
		var ops []law.Op
		var outs []law.Outcome
		for i := range 40 {
			op := chargeOf(fmt.Sprint(i))
			op.Group = uint32(i + 1)
			ops, outs = append(ops, op), append(outs, law.Decide(fullState, &op, baseTime, 0, nil).Outcome)
		}
		s.cacheOutcomes(ops, outs, make([]uint32, len(ops)), nil)
		for i := range ops {
			if s.refusalOf(ops[i]) == nil {
				t.Errorf("charge %d: got no refusal", i)
			}
		}
	})
}

// grantedAfter returns a change that stores a grant, d microseconds after the refusal by the full cell.
func grantedAfter(d int64) func(*Store, *law.Op) {
	return func(s *Store, op *law.Op) { s.lastGrants[s.hash(op.Cell)].Store(baseTime + d) }
}

// TestWhichRefusalIsCached checks when a new refusal of a cell replaces the cached one.
func TestWhichRefusalIsCached(t *testing.T) {
	for name, c := range map[string]struct {
		oldCost, newCost int64         // in units
		after            time.Duration // since the old refusal, which lasts for a second
		change           func(s *Store, op *law.Op)
		replaces         bool
	}{
		"the same":              {1, 1, 0, nil, true},
		"one of a smaller cost": {2, 1, 0, nil, true},
		"one of a larger cost":  {1, 2, 0, nil, false},
		"larger, after the old": {1, 2, time.Second, nil, true},
		"larger, just before":   {1, 2, time.Second - time.Microsecond, nil, false},
		"larger, changed limit": {1, 2, 0, func(_ *Store, op *law.Op) { op.Params.Prefetch++ }, true},
		"one on its way during a reset": {1, 1, 0, func(s *Store, op *law.Op) {
			s.dropCounts[s.hash(op.Cell)].Add(1)
		}, false},
		"one from before a grant":           {1, 1, 0, grantedAfter(1), false},
		"one of the same time as a grant":   {1, 1, 0, grantedAfter(0), true},
		"one from ten seconds before":       {1, 1, 0, grantedAfter(10_000_000), false},
		"one from before the clock was set": {1, 1, 0, grantedAfter(10_000_001), true},
	} {
		t.Run(name, func(t *testing.T) {
			withStore(t, func(t *testing.T, s *Store) {
				old := s.addRefusal(charge(1000*c.oldCost), time.Second)
				time.Sleep(c.after)
				op := charge(1000 * c.newCost)
				if c.change != nil {
					c.change(s, &op)
				}
				out := law.Decide(fullState, &op, baseTime, 0, nil).Outcome
				s.cacheRefusal(&op, &out, 0, s.now())
				r := s.refusalOf(op)
				if (r != old) != c.replaces {
					t.Fatalf("got %+v, want the old one replaced: %v", r, c.replaces)
				}
				if c.replaces && (r.params != op.Params || r.maxLevel != 3000-op.Cost || r.out != out ||
					r.receivedAt != s.now() || r.until != s.now()+1_000_000) {
					t.Errorf("got %+v, want the new refusal", r)
				}
			})
		})
	}
}

// TestHowLongARefusalIsCached checks that it lasts until RetryAt, at most a second, less the delay of its decision.
func TestHowLongARefusalIsCached(t *testing.T) {
	for _, c := range []struct{ retry, at, want int64 }{
		{300_000, 0, 300_000}, {1_000_001, 0, 1_000_000}, {300_000, 100_000, 200_000}, {300_000, -50, 300_000},
	} {
		withStore(t, func(t *testing.T, s *Store) {
			op := charge(1000)
			out := law.Outcome{Clock: baseTime, RetryAt: baseTime + c.retry, State: law.State{At: baseTime + c.at}}
			s.cacheRefusal(&op, &out, 0, 70)
			if r := s.refusalOf(op); r.until-70 != c.want {
				t.Errorf("%+v: got %d µs", c, r.until-70)
			}
		})
	}
}

// TestAGrantAfterARefusal checks whether a later grant ends a cached refusal, extends it, or leaves it unchanged.
func TestAGrantAfterARefusal(t *testing.T) {
	const (
		unchanged = iota
		ended
		extended
	)
	for name, c := range map[string]struct {
		room   int64 // credits that may be in use for the refused charge to pass
		before int64 // credits in use before the grant, of one unit
		after  int64 // microseconds of the store's clock since the refusal
		change func(r *refusal, op *law.Op)
		want   int
	}{
		"the refused charge would have fit": {1000, 1000, 5, nil, ended},
		"it lacked a credit":                {1000, 1001, 5, nil, extended},
		"where nothing may be in use":       {0, 0, 5, nil, ended},
		"where something is in use":         {0, 1, 5, nil, extended},
		"from before the refusal":           {1000, 1000, -1, nil, unchanged},
		"at its time":                       {1000, 1000, 0, nil, unchanged},
		"at its time, with more in use":     {1000, 2000, 0, nil, extended},
		"one that never passes":             {-1, 2000, 5, nil, unchanged},
		"a cost that is above by far":       {-5000, 0, 5, nil, unchanged},
		"of a log": {1000, 2000, 5, func(r *refusal, op *law.Op) {
			r.params.Kind, op.Params.Kind = law.Log, law.Log
		}, unchanged},
		"of a limit that blocks": {1000, 2000, 5, func(r *refusal, op *law.Op) {
			r.params.Block, op.Params.Block = 1, 1
		}, unchanged},
		"with headroom, of a limit that blocks": {1000, 2000, 5, func(r *refusal, _ *law.Op) {
			r.params.Block = 1
		}, unchanged},
		"of a limit that blocked, with headroom": {1000, 2000, 5, func(_ *refusal, op *law.Op) {
			op.Params.Block = 1
		}, extended},
		"of a changed limit": {1000, 2000, 5, func(_ *refusal, op *law.Op) { op.Params.Prefetch++ }, ended},
		"of one changed at its time": {1000, 2000, 0, func(_ *refusal, op *law.Op) {
			op.Params.Prefetch++
		}, unchanged},
		"two charges":             {1000, 1000, 5, func(_ *refusal, op *law.Op) { op.Cost, op.Count = 500, 2 }, ended},
		"two, with a credit more": {1000, 1001, 5, func(_ *refusal, op *law.Op) { op.Cost, op.Count = 500, 2 }, extended},
	} {
		t.Run(name, func(t *testing.T) {
			withStore(t, func(t *testing.T, s *Store) {
				op := charge(1000)
				r := s.addRefusal(charge(limit.Capacity-c.room), 300*time.Millisecond)
				if c.change != nil {
					c.change(r, &op)
				}
				level, at := c.before+1000, baseTime+c.after
				out := law.Outcome{
					Granted: op.Count, Used: level, Clock: at,
					State: law.State{Kind: law.Bucket, Level: level, At: at, Unit: 1000, Step: 1000, EmptyAt: law.Max},
				}
				s.recordGrant(&op, &out, 0, s.now())
				if at := s.lastGrants[s.hash(op.Cell)].Load(); at != out.Clock {
					t.Errorf("got last grant at %d, want %d", at, out.Clock)
				}
				got := s.refusalOf(op)
				switch c.want {
				case unchanged:
					if got != r {
						t.Errorf("got %+v, want %+v", got, r)
					}
				case ended:
					if got != nil {
						t.Errorf("got %+v, want no refusal", got)
					}
				default:
					retryAt := out.Clock + 1000*(level-c.room)
					want := law.Outcome{State: out.State, Used: level, Clock: out.Clock, RetryAt: retryAt}
					if got == nil || got == r || got.maxLevel != c.room || got.params != r.params || got.out != want ||
						got.until != s.now()+min(1_000_000, retryAt-out.Clock) {
						t.Errorf("got %+v\nwant %+v", got, want)
					}
				}
			})
		})
	}
}

// TestTimeOfTheLastGrant checks that the latest grant counts, or an earlier one after the store's clock was set back.
func TestTimeOfTheLastGrant(t *testing.T) {
	for _, c := range []struct{ last, clock, want int64 }{
		{0, baseTime, baseTime},
		{baseTime, baseTime + 1, baseTime + 1},
		{baseTime, baseTime, baseTime},
		{baseTime, baseTime - 1, baseTime},
		{baseTime, baseTime - 10_000_000, baseTime},
		{baseTime, baseTime - 10_000_001, baseTime - 10_000_001},
	} {
		withStore(t, func(t *testing.T, s *Store) {
			op := charge(1000)
			lastGrant := &s.lastGrants[s.hash(op.Cell)]
			lastGrant.Store(c.last)
			s.recordGrant(&op, &law.Outcome{Granted: 1, Clock: c.clock}, 0, s.now())
			if got := lastGrant.Load(); got != c.want {
				t.Errorf("a grant at %d after one at %d: got last grant %d, want %d", c.clock, c.last, got, c.want)
			}
		})
	}
}
