package deny

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/law"
)

// other returns a charge to another cell.
func other(key string) law.Op {
	op := charge(1000)
	op.Cell.Key = key
	return op
}

// TestLearn: each answer is a refusal, the time of the last grant, or a change.
func TestLearn(t *testing.T) {
	op, failed := charge(1000), errors.New("failed")
	refusal := law.Decide(full, &op, then, 0, nil).Outcome
	some := law.State{Kind: law.Bucket, Level: 1000, At: then, Unit: 1000, Step: 1000, EmptyAt: then + 1_000_000}
	grant := law.Outcome{Granted: 1, State: some, Used: 1000, Clock: then}
	via, replayed, most := grant, grant, grant
	via.Via, replayed.Replayed, most.Used, most.State = law.ViaPrefetch, true, 3000, full
	for name, c := range map[string]struct {
		verb    law.Verb
		out     law.Outcome
		err     error
		known   bool
		granted bool
		drops   uint32
	}{
		"a refusal":                {law.Take, refusal, nil, true, false, 0},
		"an error":                 {law.Take, refusal, failed, false, false, 0},
		"a grant":                  {law.Take, grant, nil, false, true, 0},
		"a grant that failed":      {law.Take, grant, failed, false, false, 0},
		"the last":                 {law.Take, most, nil, true, true, 0},
		"a grant out of others":    {law.Take, via, nil, false, false, 0},
		"one that was made before": {law.Take, replayed, nil, false, false, 0},
		"a check":                  {law.Check, refusal, nil, false, false, 0},
		"a reset":                  {law.Reset, law.Outcome{}, nil, false, false, 1},
		"a reset that failed":      {law.Reset, law.Outcome{}, failed, false, false, 1},
		"a return":                 {law.Return, grant, nil, false, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *Store) {
				op := op
				op.Verb = c.verb
				s.learn([]law.Op{op}, []law.Outcome{c.out}, []uint32{0}, c.err)
				h := s.hash(op.Cell)
				granted := s.lastGrants[h].Load()
				if r := s.has(op); (r != nil) != c.known || s.dropCounts[h].Load() != c.drops ||
					c.granted && granted != then || !c.granted && granted != 0 {
					t.Errorf("known: %+v; granted at %d; dropped %d times", r, granted, s.dropCounts[h].Load())
				}
			})
		})
	}
}

// TestAllRefusalsOfALargeBatchAreLearnt where each request has one charge.
func TestAllRefusalsOfALargeBatchAreLearnt(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Store) {
		var ops []law.Op
		var outs []law.Outcome
		for i := range 40 {
			op := other(fmt.Sprint(i))
			op.Group = uint32(i + 1)
			ops, outs = append(ops, op), append(outs, law.Decide(full, &op, then, 0, nil).Outcome)
		}
		s.learn(ops, outs, make([]uint32, len(ops)), nil)
		for i := range ops {
			if s.has(ops[i]) == nil {
				t.Errorf("charge %d is forgotten", i)
			}
		}
	})
}

// grantedAfter notes that something was granted so many microseconds after the full cell has refused.
func grantedAfter(d int64) func(*Store, *law.Op) {
	return func(s *Store, op *law.Op) { s.lastGrants[s.hash(op.Cell)].Store(then + d) }
}

// TestWhichRefusalIsRemembered of two: of a known one and the one that comes.
func TestWhichRefusalIsRemembered(t *testing.T) {
	for name, c := range map[string]struct {
		old, cost int64         // in units
		after     time.Duration // the old one stands for a second
		change    func(s *Store, op *law.Op)
		replaced  bool
	}{
		"the same":                 {1, 1, 0, nil, true},
		"one of a smaller cost":    {2, 1, 0, nil, true},
		"one of a larger cost":     {1, 2, 0, nil, false},
		"that, after the other":    {1, 2, time.Second, nil, true},
		"that, just before":        {1, 2, time.Second - time.Microsecond, nil, false},
		"that, of a changed limit": {1, 2, 0, func(_ *Store, op *law.Op) { op.Params.Prefetch++ }, true},
		"one on its way during a reset": {1, 1, 0, func(s *Store, op *law.Op) {
			s.dropCounts[s.hash(op.Cell)].Add(1)
		}, false},
		"one from before a grant":           {1, 1, 0, grantedAfter(1), false},
		"one of the same time as a grant":   {1, 1, 0, grantedAfter(0), true},
		"one from ten seconds before":       {1, 1, 0, grantedAfter(10_000_000), false},
		"one from before the clock was set": {1, 1, 0, grantedAfter(10_000_001), true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *Store) {
				old := s.put(charge(1000*c.old), time.Second)
				time.Sleep(c.after)
				op := charge(1000 * c.cost)
				if c.change != nil {
					c.change(s, &op)
				}
				out := law.Decide(full, &op, then, 0, nil).Outcome
				s.remember(&op, &out, 0, s.now())
				r := s.has(op)
				if (r != old) != c.replaced {
					t.Fatalf("%+v, want it replaced: %v", r, c.replaced)
				}
				if c.replaced && (r.params != op.Params || r.maxLevel != 3000-op.Cost || r.out != out ||
					r.receivedAt != s.now() || r.until != s.now()+1_000_000) {
					t.Errorf("%+v", r)
				}
			})
		})
	}
}

// TestHowLongARefusalIsRemembered at most a second, and as much shorter as its decision was late.
func TestHowLongARefusalIsRemembered(t *testing.T) {
	for _, c := range []struct{ retry, at, want int64 }{
		{300_000, 0, 300_000}, {1_000_001, 0, 1_000_000}, {300_000, 100_000, 200_000}, {300_000, -50, 300_000},
	} {
		inBubble(t, func(t *testing.T, s *Store) {
			op := charge(1000)
			out := law.Outcome{Clock: then, RetryAt: then + c.retry, State: law.State{At: then + c.at}}
			s.remember(&op, &out, 0, 70)
			if r := s.has(op); r.until-70 != c.want {
				t.Errorf("%+v: for %d µs", c, r.until-70)
			}
		})
	}
}

// TestAGrantAfterARefusal: a refusal that leaves some credits passes again once enough have drained.
func TestAGrantAfterARefusal(t *testing.T) {
	const ( // what becomes of it
		stands = iota
		ends
		longer
	)
	for name, c := range map[string]struct {
		room   int64 // of the refused charge
		before int64 // credits in use before the grant, of one unit
		after  int64 // microseconds of the store's clock since the refusal
		change func(r *refusal, op *law.Op)
		want   int
	}{
		"it would have met it":              {1000, 1000, 5, nil, ends},
		"another credit, and it would pass": {1000, 1001, 5, nil, longer},
		"where nothing may be in use":       {0, 0, 5, nil, ends},
		"where something is in use":         {0, 1, 5, nil, longer},
		"from before the refusal":           {1000, 1000, -1, nil, stands},
		"at its time":                       {1000, 1000, 0, nil, stands},
		"at its time, with more in use":     {1000, 2000, 0, nil, longer},
		"one that never passes":             {-1, 2000, 5, nil, stands},
		"a cost that is above by far":       {-5000, 0, 5, nil, stands},
		"of a log": {1000, 2000, 5, func(r *refusal, op *law.Op) {
			r.params.Kind, op.Params.Kind = law.Log, law.Log
		}, stands},
		"of a limit that blocks": {1000, 2000, 5, func(r *refusal, op *law.Op) {
			r.params.Block, op.Params.Block = 1, 1
		}, stands},
		"with headroom, of a limit that blocks": {1000, 2000, 5, func(r *refusal, _ *law.Op) {
			r.params.Block = 1
		}, stands},
		"of a limit that blocked, with headroom": {1000, 2000, 5, func(_ *refusal, op *law.Op) {
			op.Params.Block = 1
		}, longer},
		"of a changed limit": {1000, 2000, 5, func(_ *refusal, op *law.Op) { op.Params.Prefetch++ }, ends},
		"of one changed at its time": {1000, 2000, 0, func(_ *refusal, op *law.Op) {
			op.Params.Prefetch++
		}, stands},
		"two charges":             {1000, 1000, 5, func(_ *refusal, op *law.Op) { op.Cost, op.Count = 500, 2 }, ends},
		"two, with a credit more": {1000, 1001, 5, func(_ *refusal, op *law.Op) { op.Cost, op.Count = 500, 2 }, longer},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *Store) {
				op := charge(1000)
				r := s.put(charge(limit.Capacity-c.room), 300*time.Millisecond)
				if c.change != nil {
					c.change(r, &op)
				}
				level, at := c.before+1000, then+c.after
				out := law.Outcome{
					Granted: op.Count, Used: level, Clock: at,
					State: law.State{Kind: law.Bucket, Level: level, At: at, Unit: 1000, Step: 1000, EmptyAt: law.Max},
				}
				s.noteGrant(&op, &out, 0, s.now())
				if at := s.lastGrants[s.hash(op.Cell)].Load(); at != out.Clock {
					t.Errorf("granted at %d, not %d", at, out.Clock)
				}
				got := s.has(op)
				switch c.want {
				case stands:
					if got != r {
						t.Errorf("%+v, not %+v", got, r)
					}
				case ends:
					if got != nil {
						t.Errorf("%+v stands", got)
					}
				default:
					retryAt := out.Clock + 1000*(level-c.room)
					want := law.Outcome{State: out.State, Used: level, Clock: out.Clock, RetryAt: retryAt}
					if got == nil || got == r || got.maxLevel != c.room || got.params != r.params || got.out != want ||
						got.until != s.now()+min(1_000_000, retryAt-out.Clock) {
						t.Errorf("%+v\nwant %+v", got, want)
					}
				}
			})
		})
	}
}

// TestWhenTheLastWasGranted is the latest time, or an earlier one after the store's clock was set back.
func TestWhenTheLastWasGranted(t *testing.T) {
	for _, c := range []struct{ last, clock, want int64 }{
		{0, then, then},
		{then, then + 1, then + 1},
		{then, then, then},
		{then, then - 1, then},
		{then, then - 10_000_000, then},
		{then, then - 10_000_001, then - 10_000_001},
	} {
		inBubble(t, func(t *testing.T, s *Store) {
			op := charge(1000)
			last := &s.lastGrants[s.hash(op.Cell)]
			last.Store(c.last)
			s.noteGrant(&op, &law.Outcome{Granted: 1, Clock: c.clock}, 0, s.now())
			if got := last.Load(); got != c.want {
				t.Errorf("one at %d after one at %d: the last at %d, want %d", c.clock, c.last, got, c.want)
			}
		})
	}
}
