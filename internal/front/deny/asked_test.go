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

// TestJustEndedFindsAnEndedRefusal checks for which charges justEnded returns the refusal of their cell: those that it
// refused, from its end until two seconds after it came.
func TestJustEndedFindsAnEndedRefusal(t *testing.T) {
	for name, c := range map[string]struct {
		after  time.Duration // since the refusal, which lasts for 300 ms
		change func(*law.Op)
		ended  bool
	}{
		"while it lasts":         {300*time.Millisecond - time.Microsecond, nil, false},
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
			withStore(t, func(t *testing.T, s *Store) {
				op := charge(1000)
				r := s.addRefusal(op, 300*time.Millisecond)
				time.Sleep(c.after)
				if c.change != nil {
					c.change(&op)
				}
				if got := s.justEnded(&op); (got == r) != c.ended || (got == nil) == c.ended {
					t.Errorf("got %p; want %p: %v", got, r, c.ended)
				}
			})
		})
	}
}

// TestWhichRequestsAreRefusedLocally checks repeatGroup, and that a request for the store gets no new outcomes from it.
func TestWhichRequestsAreRefusedLocally(t *testing.T) {
	withBlock := func(op law.Op) law.Op { op.Params.Block = 1; return op }
	withID := chargeOf("new")
	withID.ID = "id"
	invalid := chargeOf("new")
	invalid.Cost = 0
	local := func(granted, used, retryAt, clock int64) law.Outcome {
		return law.Outcome{Granted: granted, Used: used, RetryAt: retryAt, Clock: clock, Via: law.ViaLocal}
	}
	refused, wouldPass := local(0, 3000, baseTime+1_000_000, baseTime+400), local(1, 0, 0, baseTime+400)
	for name, c := range map[string]struct {
		ops  []law.Op
		want []law.Outcome // nil: the request goes to the store
	}{
		"one":                     {[]law.Op{charge(1000)}, []law.Outcome{refused}},
		"one of a blocking limit": {[]law.Op{withBlock(chargeOf("b"))}, []law.Outcome{refused}},
		"the second":              {[]law.Op{chargeOf("new"), charge(1000)}, []law.Outcome{wouldPass, refused}},
		"the first":               {[]law.Op{charge(1000), chargeOf("new")}, []law.Outcome{refused, wouldPass}},
		"two, one of them later": {
			[]law.Op{chargeOf("late"), charge(1000), chargeOf("new")},
			[]law.Outcome{local(0, 3000, baseTime+1_000_000, baseTime+100), refused, wouldPass},
		},
		"one without a refusal": {[]law.Op{chargeOf("new")}, nil},
		"two of them":           {[]law.Op{chargeOf("new"), chargeOf("new2")}, nil},
		"one of two blocks":     {[]law.Op{charge(1000), withBlock(chargeOf("b"))}, nil},
		"one of two has an ID":  {[]law.Op{charge(1000), withID}, nil},
		"one of two is invalid": {[]law.Op{charge(1000), invalid}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			withStore(t, func(t *testing.T, s *Store) {
				s.addRefusal(charge(1000), time.Second)
				s.addRefusal(withBlock(chargeOf("b")), time.Second)
				time.Sleep(300 * time.Microsecond)
				s.addRefusal(chargeOf("late"), time.Second)
				time.Sleep(100 * time.Microsecond)
				oldOutcome := law.Outcome{Granted: 7, Via: law.ViaLocal} // of an earlier batch
				outs := slices.Repeat([]law.Outcome{oldOutcome}, len(c.ops))
				if got := s.repeatGroup(c.ops, outs); got != (c.want != nil) {
					t.Errorf("got repeated %v, want %v", got, c.want != nil)
				}
				for i, out := range outs {
					out.State = law.State{}
					if c.want == nil && out != oldOutcome && out != (law.Outcome{}) ||
						c.want != nil && out != c.want[i] {
						t.Errorf("charge %d: got %+v, want %+v", i, out, c.want)
					}
				}
			})
		})
	}
}

// countingStore is a memory store that counts calls of Apply.
type countingStore struct {
	*memory.Store
	calls int
}

func (s *countingStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	s.calls++
	return s.Store.Apply(ctx, ops, outs)
}

// TestRefusalsOfTheRestOfABatchAreCached checks the refusal of an op beside one that was refused locally.
func TestRefusalsOfTheRestOfABatchAreCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &countingStore{Store: memory.New(nil)}
		s := New(inner)
		defer s.Close()
		apply := func(ops ...law.Op) []law.Outcome {
			outs := make([]law.Outcome, len(ops))
			if err := s.Apply(t.Context(), ops, outs); err != nil {
				t.Fatal(err)
			}
			return outs
		}
		cached, uncached := chargeOf("known"), chargeOf("fresh")
		cached.Cost, uncached.Cost, uncached.Group = 4000, 4000, 2
		reset := uncached
		reset.Verb = law.Reset
		apply(reset) // now the drop counts of the two cells differ
		apply(cached)
		if outs := apply(cached, uncached); outs[0].Via != law.ViaLocal || outs[1].Via != law.ViaStore {
			t.Errorf("got %+v, want a local refusal, and one of the store", outs)
		}
		oldCalls := inner.calls
		if out := apply(uncached)[0]; out.Granted != 0 || out.Via != law.ViaLocal || inner.calls != oldCalls {
			t.Errorf("got %+v, %d calls; want a local refusal", out, inner.calls-oldCalls)
		}
		time.Sleep(time.Second)
	})
}

// TestWhichOpsCallTheStoreAgain sends each op three times, and checks how many of them go to the store.
func TestWhichOpsCallTheStoreAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &countingStore{Store: memory.New(nil)}
		s := New(store.Store(inner))
		defer s.Close()
		check, blocking := charge(4000), chargeOf("b")
		check.Verb, blocking.Params.Block, blocking.Cost = law.Check, 60_000_000, 2000
		outs := make([]law.Outcome, 1)
		for _, c := range []struct {
			op   law.Op
			want int
		}{{charge(4000), 1}, {check, 3}, {blocking, 2}} {
			oldCalls := inner.calls
			for range 3 {
				if err := s.Apply(t.Context(), []law.Op{c.op}, outs); err != nil {
					t.Fatal(err)
				}
			}
			if got := inner.calls - oldCalls; got != c.want {
				t.Errorf("%+v: got %d calls of 3, want %d", c.op, got, c.want)
			}
		}
		time.Sleep(time.Second)
	})
}
