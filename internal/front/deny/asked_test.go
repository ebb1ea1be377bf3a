package deny

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// TestOneCallerRefreshesARefusal: the first charge after the end of a refusal goes to the store for all.
func TestOneCallerRefreshesARefusal(t *testing.T) {
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
				if got := s.justEnded(&op); (got == r) != c.over || (got == nil) == c.over {
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
		s := New(inner)
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

// TestWhichChargesCallTheStoreAgain: a check always goes to the store; a refusal of a limit that blocks is repeated.
func TestWhichChargesCallTheStoreAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &asked{Store: memory.New(nil)}
		s := New(store.Store(inner))
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
