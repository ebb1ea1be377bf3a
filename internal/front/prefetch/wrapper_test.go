package prefetch

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// recorder is a memory store that keeps what it was asked.
type recorder struct {
	*memory.Store
	before func(ctx context.Context, ops []law.Op, outs []law.Outcome) error // it fails with its error
	after  func(ctx context.Context) error                                   // and so when it has decided

	mu     sync.Mutex
	asked  [][]law.Op
	closed int
}

func (r *recorder) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	r.mu.Lock()
	r.asked = append(r.asked, append([]law.Op(nil), ops...))
	r.mu.Unlock()
	if r.before != nil {
		if err := r.before(ctx, ops, outs); err != nil {
			return err
		}
	}
	if err := r.Store.Apply(ctx, ops, outs); err != nil || r.after == nil {
		return err
	}
	return r.after(ctx)
}

func (r *recorder) Close() error {
	r.closed++
	return r.Store.Close()
}

// last returns the ops of the last question, and how many questions there were.
func (r *recorder) last() ([]law.Op, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked[len(r.asked)-1], len(r.asked)
}

// inBubble runs a test in a bubble of time, over a store with its clock. Some hundred credits of the key k are held.
func inBubble(t *testing.T, test func(t *testing.T, s *Store, inner *recorder)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		clock := func() int64 { return time.Now().UnixMicro() }
		inner := &recorder{Store: memory.New(&memory.Config{Clock: clock})}
		s := New(inner)
		defer s.Close()
		for range 40 {
			ask(t, s, charge(perSecond, 10))
		}
		if out := ask(t, s, charge(perSecond, 10))[0]; out.Via != law.ViaPrefetch {
			t.Fatalf("%+v", out)
		}
		test(t, s, inner)
	})
}

func ask(t *testing.T, s *Store, ops ...law.Op) []law.Outcome {
	t.Helper()
	outs := make([]law.Outcome, len(ops))
	if err := s.Apply(t.Context(), ops, outs); err != nil {
		t.Fatal(err)
	}
	return outs
}

// TestWhichChargesArePrefetched tells one by one what a charge must be.
func TestWhichChargesArePrefetched(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*law.Op)
		want   bool
	}{
		"a plain one":                      {func(*law.Op) {}, true},
		"of a credit":                      {func(op *law.Op) { op.Cost = 1 }, true},
		"of all that may be taken ahead":   {func(op *law.Op) { op.Cost = 1000 }, true},
		"of a credit more":                 {func(op *law.Op) { op.Cost = 1001 }, false},
		"of nothing":                       {func(op *law.Op) { op.Cost = 0 }, false},
		"of nothing, and nothing is taken": {func(op *law.Op) { op.Cost, op.Params.Prefetch = 0, 0 }, false},
		"of a limit without a prefetch":    {func(op *law.Op) { op.Params.Prefetch = 0 }, false},
		"of a prefetch of a credit":        {func(op *law.Op) { op.Cost, op.Params.Prefetch = 1, 1 }, true},
		"for a microsecond":                {func(op *law.Op) { op.Params.PrefetchLife = 1 }, true},
		"for no time":                      {func(op *law.Op) { op.Params.PrefetchLife = 0 }, false},
		"of a limit that blocks":           {func(op *law.Op) { op.Params.Block = 1 }, false},
		"of a window":                      {func(op *law.Op) { op.Params.Kind = law.Window }, false},
		"at a test time":                   {func(op *law.Op) { op.Now = 1 }, false},
		"a check":                          {func(op *law.Op) { op.Verb = law.Check }, false},
		"two together":                     {func(op *law.Op) { op.Count = 2 }, false},
		"with an ID":                       {func(op *law.Op) { op.ID = "id" }, false},
	} {
		op := charge(perSecond, 10)
		if c.change(&op); mayPrefetch(&op) != c.want {
			t.Errorf("%s: %v", name, !c.want)
		}
	}
}

// TestABatchIsPaidInPart hands out what stands alone and is held, and calls the store for all else.
func TestABatchIsPaidInPart(t *testing.T) {
	op := func(group uint32, key string, change func(*law.Op)) law.Op {
		op := charge(perSecond, 10)
		if op.Group, op.Cell.Key = group, key; change != nil {
			change(&op)
		}
		return op
	}
	check := func(op *law.Op) { op.Verb = law.Check }
	reset := func(op *law.Op) { op.Verb = law.Reset }
	withID := func(op *law.Op) { op.ID, op.TTL = "id", 1_000_000 }
	changed := func(op *law.Op) { op.Params.Capacity *= 2 }
	for name, c := range map[string]struct {
		ops    []law.Op
		handed []int
	}{
		"all":                {[]law.Op{op(1, "k", nil), op(2, "k", nil)}, []int{0, 1}},
		"the first":          {[]law.Op{op(1, "k", nil), op(2, "new", nil)}, []int{0}},
		"the last":           {[]law.Op{op(1, "new", nil), op(2, "k", nil)}, []int{1}},
		"beside a check":     {[]law.Op{op(1, "k", check), op(2, "k", nil), op(3, "k", check)}, []int{1}},
		"none of a request":  {[]law.Op{op(1, "k", nil), op(1, "new", nil)}, nil},
		"one after requests": {[]law.Op{op(1, "k", nil), op(1, "a", nil), op(2, "k", nil), op(3, "b", nil)}, []int{2}},
		"one before another": {[]law.Op{op(1, "k", nil), op(2, "k", nil), op(2, "b", nil)}, []int{0}},
		"not with an ID":     {[]law.Op{op(1, "k", withID), op(2, "k", nil)}, []int{1}},
		"none after a reset": {[]law.Op{op(1, "k", reset), op(2, "k", nil)}, nil},
		"of no other limit":  {[]law.Op{op(1, "k", nil), op(2, "k", changed)}, []int{0}},
		"none":               {[]law.Op{op(1, "a", nil), op(2, "b", nil)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *Store, inner *recorder) {
				_, questions := inner.last()
				handed := s.Handed()
				outs := ask(t, s, c.ops...)
				var rest []law.Op
				left := c.handed
				for i := range c.ops {
					if len(left) > 0 && left[0] == i {
						left = left[1:]
						if outs[i].Via != law.ViaPrefetch || outs[i].Granted != 1 || outs[i].Clock == 0 {
							t.Errorf("charge %d: %+v", i, outs[i])
						}
						continue
					}
					rest = append(rest, c.ops[i])
					if outs[i].Via != law.ViaStore || outs[i].Granted != 1 || outs[i].Clock == 0 {
						t.Errorf("charge %d: %+v", i, outs[i])
					}
				}
				if got := s.Handed() - handed; got != int64(len(c.handed)) {
					t.Errorf("%d were counted of %d", got, len(c.handed))
				}
				asked, n := inner.last()
				if len(rest) == 0 && n != questions || len(rest) > 0 && (n != questions+1 || len(asked) != len(rest)) {
					t.Fatalf("the store was asked %+v, want %+v", asked, rest)
				}
				for i := range rest {
					if asked[i].Cell != rest[i].Cell || asked[i].Verb != rest[i].Verb {
						t.Errorf("the store was asked %+v, want %+v", asked[i], rest[i])
					}
				}
			})
		})
	}
}

// TestABatchWhoseRestFails leaves those their grant who were paid, and fails as a whole if nobody was.
func TestABatchWhoseRestFails(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Store, inner *recorder) {
		inner.before = func(_ context.Context, _ []law.Op, outs []law.Outcome) error {
			outs[0].Granted = 1 // means nothing
			return store.ErrUnavailable
		}
		paid, other := charge(perSecond, 10), charge(perSecond, 10)
		other.Group, other.Cell.Key = 2, "new"
		outs := ask(t, s, paid, other)
		if outs[0].Granted != 1 || outs[0].Err != nil || outs[1].Granted != 0 ||
			!errors.Is(outs[1].Err, store.ErrUnavailable) {
			t.Errorf("%+v", outs)
		}
		other.Count = 2 // which is never taken ahead
		err := s.Apply(t.Context(), []law.Op{other}, outs[:1])
		if !errors.Is(err, store.ErrUnavailable) || outs[0] != (law.Outcome{}) {
			t.Errorf("%v, and %+v", err, outs[0])
		}
	})
}

// TestAResetThatFailsEndsWhatIsHeld because it may have been done.
func TestAResetThatFailsEndsWhatIsHeld(t *testing.T) {
	for _, verb := range []law.Verb{law.Reset, law.Block} {
		inBubble(t, func(t *testing.T, s *Store, inner *recorder) {
			inner.before = func(context.Context, []law.Op, []law.Outcome) error { return store.ErrUnavailable }
			op := charge(perSecond, 10)
			op.Verb, op.TTL = verb, 1_000_000
			err := s.Apply(t.Context(), []law.Op{op}, make([]law.Outcome, 1))
			if !errors.Is(err, store.ErrUnavailable) {
				t.Fatal(err)
			}
			inner.before = nil
			if out := ask(t, s, charge(perSecond, 10))[0]; out.Via != law.ViaStore {
				t.Errorf("after verb %d: %+v", verb, out)
			}
		})
	}
}

// TestACheckEndsNothing nor does a return.
func TestACheckEndsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Store, _ *recorder) {
		op := charge(perSecond, 10)
		op.Verb = law.Check
		out := ask(t, s, op)[0]
		op.Verb = law.Take
		ask(t, s, law.Back(&op, &out, 10))
		if out := ask(t, s, op)[0]; out.Via != law.ViaPrefetch {
			t.Errorf("%+v", out)
		}
	})
}

// TestAQuestionForOneIsAsItCame so that a store may take it for a plain charge; one for several takes what there is.
func TestAQuestionForOneIsAsItCame(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Store, inner *recorder) {
		op := charge(perSecond, 10)
		op.Cell.Key = "new"
		ask(t, s, op)
		if asked, _ := inner.last(); len(asked) != 1 || asked[0] != op {
			t.Errorf("asked for %+v", asked)
		}
		big := op
		big.Cost = 10_000 - 10 - 10 // one more fits
		ask(t, s, big)
		time.Sleep(700 * time.Millisecond)
		if out := ask(t, s, op)[0]; out.Granted != 1 || out.Via != law.ViaStore {
			t.Errorf("the last that fits: %+v", out)
		}
		if asked, _ := inner.last(); asked[0].Count != 2 || !asked[0].Partial {
			t.Errorf("asked for %+v", asked)
		}
	})
}

// TestTakeOneFromWhatIsHeld says the same as Apply, in brief.
func TestTakeOneFromWhatIsHeld(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Store, _ *recorder) {
		time.Sleep(3 * time.Millisecond)
		op, handed := charge(perSecond, 10), s.Handed()
		b, ok := s.TakeOne(t.Context(), op.Cell, &op.Params, op.Cost)
		out := ask(t, s, op)[0]
		want := store.Brief{
			Granted: true, Via: law.ViaPrefetch, Used: out.Used - 10, Clock: time.Now().UnixMicro(),
			At: out.Clock, EmptyAt: out.State.EmptyAt,
		}
		if !ok || b != want || s.Handed() != handed+2 {
			t.Errorf("got %+v\nwant %+v", b, want)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		other := op.Params
		other.Capacity++
		for name, c := range map[string]struct {
			ctx  context.Context
			key  string
			p    *law.Params
			cost int64
		}{
			"of a key of which nothing is held": {t.Context(), "new", &op.Params, 10},
			"of another limit":                  {t.Context(), "k", &other, 10},
			"of nothing":                        {t.Context(), "k", &op.Params, 0},
			"of more than is held":              {t.Context(), "k", &op.Params, 1001},
			"for a caller who is gone":          {gone, "k", &op.Params, 10},
		} {
			if b, ok := s.TakeOne(c.ctx, law.Cell{Limit: "l", Key: c.key}, c.p, c.cost); ok || b != (store.Brief{}) {
				t.Errorf("a charge %s: %+v", name, b)
			}
		}
		s.Close()
		if b, ok := s.TakeOne(t.Context(), op.Cell, &op.Params, op.Cost); ok {
			t.Errorf("after Close: %+v", b)
		}
	})
}

// TestTakeOneWithoutAPrefetch is decided by the store behind, if it can.
func TestTakeOneWithoutAPrefetch(t *testing.T) {
	inner := memory.New(nil)
	s := New(inner)
	defer s.Close()
	cell := law.Cell{Limit: "l", Key: "k"}
	none, least := perSecond, perSecond
	none.Prefetch, least.Prefetch = 0, 1
	if b, ok := s.TakeOne(t.Context(), cell, &none, 10); !ok || !b.Granted || b.Used != 10 || b.Via != law.ViaStore {
		t.Errorf("%+v, %v", b, ok)
	}
	if b, ok := New(generous{inner}).TakeOne(t.Context(), cell, &least, 10); ok {
		t.Errorf("of a limit with a prefetch of one credit: %+v", b)
	}
	one := New(struct{ store.Store }{inner}) // which hides its TakeOne
	if b, ok := one.TakeOne(t.Context(), cell, &none, 10); ok || b != (store.Brief{}) {
		t.Errorf("in front of a store that cannot: %+v", b)
	}
	if s.Unwrap() != store.Store(inner) {
		t.Error("Unwrap returns another store")
	}
}

// generous is a store whose TakeOne grants everything.
type generous struct{ store.Store }

func (generous) TakeOne(context.Context, law.Cell, *law.Params, int64) (store.Brief, bool) {
	return store.Brief{Granted: true}, true
}

func TestACallerWhoIsGone(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Store, inner *recorder) {
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		_, n := inner.last()
		ops := []law.Op{charge(perSecond, 10)}
		if err := s.Apply(gone, ops, make([]law.Outcome, 1)); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if _, again := inner.last(); again != n {
			t.Errorf("the store was asked %d times more", again-n)
		}
	})
}
