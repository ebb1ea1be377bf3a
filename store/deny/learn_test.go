package deny

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// other returns a charge to another cell.
func other(key string) law.Op {
	op := charge(1000)
	op.Cell.Key = key
	return op
}

// TestWhoAsksForAll: the first charge after the end of a refusal that it would have met.
func TestWhoAsksForAll(t *testing.T) {
	for name, c := range map[string]struct {
		after  time.Duration // since the refusal, which stands for 300 ms
		change func(*law.Op)
		over   bool
	}{
		"while it stands":        {300*time.Millisecond - time.Microsecond, nil, false},
		"when it ends":           {300 * time.Millisecond, nil, true},
		"two seconds after":      {2 * time.Second, nil, true},
		"a microsecond later":    {2*time.Second + time.Microsecond, nil, false},
		"a larger cost":          {time.Second, func(op *law.Op) { op.Cost = 1001 }, true},
		"a smaller cost":         {time.Second, func(op *law.Op) { op.Cost = 999 }, false},
		"of a changed limit":     {time.Second, func(op *law.Op) { op.Params.Step++ }, false},
		"with an ID":             {time.Second, func(op *law.Op) { op.ID = "id" }, false},
		"as many as fit":         {time.Second, func(op *law.Op) { op.Partial = true }, false},
		"of another cell":        {time.Second, func(op *law.Op) { op.Cell.Key = "other" }, false},
		"a small one with an ID": {time.Second, func(op *law.Op) { op.ID, op.Cost = "id", 999 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *Store) {
				op := charge(1000)
				r := s.put(op, 300*time.Millisecond)
				time.Sleep(c.after)
				if c.change != nil {
					c.change(&op)
				}
				if got := s.over(&op); (got == r) != c.over || (got == nil) == c.over {
					t.Errorf("%p, want %p: %v", got, r, c.over)
				}
			})
		})
	}
}

// TestRepeatGroup writes the outcomes of a request over those of another. Of a request that the store is to be asked
// about it writes none.
func TestRepeatGroup(t *testing.T) {
	blocks := func(op law.Op) law.Op { op.Params.Block = 1; return op }
	withID := other("new")
	withID.ID = "id"
	invalid := other("new")
	invalid.Cost = 0
	local := func(granted, used, retryAt, clock int64) law.Outcome {
		return law.Outcome{Granted: granted, Used: used, RetryAt: retryAt, Clock: clock, Via: law.ViaLocal}
	}
	refused := local(0, 3000, then+1_000_000, then+400)
	for name, c := range map[string]struct {
		ops  []law.Op
		want []law.Outcome // nil: to be asked about
	}{
		"one":                       {[]law.Op{charge(1000)}, []law.Outcome{refused}},
		"one of a limit that would": {[]law.Op{blocks(other("b"))}, []law.Outcome{refused}},
		"the second":                {[]law.Op{other("new"), charge(1000)}, []law.Outcome{local(1, 0, 0, then+400), refused}},
		"the first":                 {[]law.Op{charge(1000), other("new")}, []law.Outcome{refused, local(1, 0, 0, then+400)}},
		"both, one of them later": {
			[]law.Op{other("late"), charge(1000), other("new")},
			[]law.Outcome{local(0, 3000, then+1_000_000, then+100), refused, local(1, 0, 0, then+400)},
		},
		"one that nothing is known of": {[]law.Op{other("new")}, nil},
		"two of them":                  {[]law.Op{other("new"), other("new2")}, nil},
		"one of two blocks":            {[]law.Op{charge(1000), blocks(other("b"))}, nil},
		"one of two has an ID":         {[]law.Op{charge(1000), withID}, nil},
		"one of two is wrong":          {[]law.Op{charge(1000), invalid}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *Store) {
				s.put(charge(1000), time.Second)
				s.put(blocks(other("b")), time.Second)
				time.Sleep(300 * time.Microsecond)
				s.put(other("late"), time.Second)
				time.Sleep(100 * time.Microsecond)
				before := law.Outcome{Granted: 7, Via: law.ViaLocal} // of another question
				outs := slices.Repeat([]law.Outcome{before}, len(c.ops))
				if got := s.repeatGroup(c.ops, outs); got != (c.want != nil) {
					t.Errorf("repeated: %v", got)
				}
				for i, out := range outs {
					out.State = law.State{}
					if c.want == nil && out != before && out != (law.Outcome{}) || c.want != nil && out != c.want[i] {
						t.Errorf("charge %d: %+v, want %+v", i, out, c.want)
					}
				}
			})
		})
	}
}

// TestWhatIsLearnt from each answer: a refusal, when something was granted last, or that something was changed.
func TestWhatIsLearnt(t *testing.T) {
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
				granted := s.grants[h].Load()
				if r := s.has(op); (r != nil) != c.known || s.drops[h].Load() != c.drops ||
					c.granted && granted != then || !c.granted && granted != 0 {
					t.Errorf("known: %+v; granted at %d; dropped %d times", r, granted, s.drops[h].Load())
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
	return func(s *Store, op *law.Op) { s.grants[s.hash(op.Cell)].Store(then + d) }
}

// TestWhichRefusalIsRemembered of two: of a known one and the one that comes.
func TestWhichRefusalIsRemembered(t *testing.T) {
	for name, c := range map[string]struct {
		old, cost int64         // in units
		after     time.Duration // the old one stands for a second
		change    func(s *Store, op *law.Op)
		replaced  bool
	}{
		"the same":                          {1, 1, 0, nil, true},
		"one of a smaller cost":             {2, 1, 0, nil, true},
		"one of a larger cost":              {1, 2, 0, nil, false},
		"that, after the other":             {1, 2, time.Second, nil, true},
		"that, just before":                 {1, 2, time.Second - time.Microsecond, nil, false},
		"that, of a changed limit":          {1, 2, 0, func(_ *Store, op *law.Op) { op.Params.Prefetch++ }, true},
		"one on its way during a reset":     {1, 1, 0, func(s *Store, op *law.Op) { s.drops[s.hash(op.Cell)].Add(1) }, false},
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
				if c.replaced && (r.params != op.Params || r.room != 3000-op.Cost || r.out != out ||
					r.heard != s.now() || r.until != s.now()+1_000_000) {
					t.Errorf("%+v", r)
				}
			})
		})
	}
}

// TestForHowLongOneIsRemembered at most a second, and as much shorter as its decision was late.
func TestForHowLongOneIsRemembered(t *testing.T) {
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

// TestWhatAGrantDoesToARefusal of a charge that leaves some credits: at most so many may be in use for it to pass.
func TestWhatAGrantDoesToARefusal(t *testing.T) {
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
					Granted: op.Count, Used: level, Clock: at, Shared: true,
					State: law.State{Kind: law.Bucket, Level: level, At: at, Unit: 1000, Step: 1000, EmptyAt: law.Max},
				}
				s.granted(&op, &out, 0, s.now())
				if at := s.grants[s.hash(op.Cell)].Load(); at != out.Clock {
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
					want := law.Outcome{State: out.State, Used: level, Clock: out.Clock, RetryAt: retryAt, Shared: true}
					if got == nil || got == r || got.room != c.room || got.params != r.params || got.out != want ||
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
			last := &s.grants[s.hash(op.Cell)]
			last.Store(c.last)
			s.granted(&op, &law.Outcome{Granted: 1, Clock: c.clock}, 0, s.now())
			if got := last.Load(); got != c.want {
				t.Errorf("one at %d after one at %d: the last at %d, want %d", c.clock, c.last, got, c.want)
			}
		})
	}
}

// asked is a memory store that counts questions.
type asked struct {
	*memory.Store
	n int
}

func (a *asked) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	a.n++
	return a.Store.Apply(ctx, ops, outs)
}

// TestTheRestOfABatchIsLearnt after its cell was reset once.
func TestTheRestOfABatchIsLearnt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &asked{Store: memory.New(nil)}
		s := New(inner, nil)
		defer s.Close()
		ask := func(ops ...law.Op) []law.Outcome {
			outs := make([]law.Outcome, len(ops))
			if err := s.Apply(t.Context(), ops, outs); err != nil {
				t.Fatal(err)
			}
			return outs
		}
		known, fresh := other("known"), other("fresh")
		known.Cost, fresh.Cost, fresh.Group = 4000, 4000, 2
		reset := fresh
		reset.Verb = law.Reset
		ask(reset)
		ask(known)
		if outs := ask(known, fresh); outs[0].Via != law.ViaLocal || outs[1].Via != law.ViaStore {
			t.Errorf("%+v", outs)
		}
		before := inner.n
		if out := ask(fresh)[0]; out.Granted != 0 || out.Via != law.ViaLocal || inner.n != before {
			t.Errorf("%+v; the store was asked %d times", out, inner.n-before)
		}
		time.Sleep(time.Second)
	})
}

// TestWhatIsAskedAndWhatIsRepeated: a check is always asked, a refusal of a limit that blocks is repeated.
func TestWhatIsAskedAndWhatIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &asked{Store: memory.New(nil)}
		s := New(store.Store(inner), nil)
		defer s.Close()
		check, blocks := charge(4000), other("b")
		check.Verb, blocks.Params.Block, blocks.Cost = law.Check, 60_000_000, 2000
		outs := make([]law.Outcome, 1)
		for _, c := range []struct {
			op   law.Op
			want int
		}{{charge(4000), 1}, {check, 3}, {blocks, 2}} {
			before := inner.n
			for range 3 {
				if err := s.Apply(t.Context(), []law.Op{c.op}, outs); err != nil {
					t.Fatal(err)
				}
			}
			if got := inner.n - before; got != c.want {
				t.Errorf("%+v: the store was asked %d times of 3, want %d", c.op, got, c.want)
			}
		}
		time.Sleep(time.Second)
	})
}
