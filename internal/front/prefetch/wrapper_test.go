package prefetch

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// recordingStore is a memory store that records the batches of Apply. An error of a hook is the error of Apply.
type recordingStore struct {
	*memory.Store
	beforeApply func(ctx context.Context, ops []law.Op, outs []law.Outcome) error // nil: none
	afterApply  func(ctx context.Context) error                                   // nil: none

	mu         sync.Mutex
	batches    [][]law.Op
	closeCalls int
}

func (r *recordingStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	r.mu.Lock()
	r.batches = append(r.batches, append([]law.Op(nil), ops...))
	r.mu.Unlock()
	if r.beforeApply != nil {
		if err := r.beforeApply(ctx, ops, outs); err != nil {
			return err
		}
	}
	if err := r.Store.Apply(ctx, ops, outs); err != nil || r.afterApply == nil {
		return err
	}
	return r.afterApply(ctx)
}

func (r *recordingStore) Close() error {
	r.closeCalls++
	return r.Store.Close()
}

// lastBatch returns the ops of the last batch, and the number of batches.
func (r *recordingStore) lastBatch() ([]law.Op, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.batches[len(r.batches)-1], len(r.batches)
}

// withTokens runs a test in a bubble of time, on a Store that holds some hundred credits of the key k.
func withTokens(t *testing.T, test func(t *testing.T, s *Store, inner *recordingStore)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		clock := func() int64 { return time.Now().UnixMicro() }
		inner := &recordingStore{Store: memory.New(&memory.Config{Clock: clock})}
		s := New(inner)
		defer s.Close()
		for range 40 {
			mustApply(t, s, charge(perSecond, 10))
		}
		if out := mustApply(t, s, charge(perSecond, 10))[0]; out.Via != law.ViaPrefetch {
			t.Fatalf("got %+v, want a local charge", out)
		}
		test(t, s, inner)
	})
}

// mustApply applies a batch, and fails the test on an error.
func mustApply(t *testing.T, s *Store, ops ...law.Op) []law.Outcome {
	t.Helper()
	outs := make([]law.Outcome, len(ops))
	if err := s.Apply(t.Context(), ops, outs); err != nil {
		t.Fatal(err)
	}
	return outs
}

// TestMayPrefetch checks each condition of mayPrefetch alone.
func TestMayPrefetch(t *testing.T) {
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
			t.Errorf("a charge %s: got %v, want %v", name, !c.want, c.want)
		}
	}
}

// TestApplyDecidesPartOfABatchLocally checks that Apply decides groups of one charge of key k locally, and sends the
// other ops to the store. A batch with a reset goes to the store as a whole.
func TestApplyDecidesPartOfABatchLocally(t *testing.T) {
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
		ops   []law.Op
		local []int // the indexes of the ops that are decided locally
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
			withTokens(t, func(t *testing.T, s *Store, inner *recordingStore) {
				_, oldBatches := inner.lastBatch()
				handedOut := s.HandedOut()
				outs := mustApply(t, s, c.ops...)
				var storeOps []law.Op
				for i := range c.ops {
					if slices.Contains(c.local, i) {
						if outs[i].Via != law.ViaPrefetch || outs[i].Granted != 1 || outs[i].Clock == 0 {
							t.Errorf("op %d: got %+v, want a local charge", i, outs[i])
						}
						continue
					}
					storeOps = append(storeOps, c.ops[i])
					if outs[i].Via != law.ViaStore || outs[i].Granted != 1 || outs[i].Clock == 0 {
						t.Errorf("op %d: got %+v, want a decision of the store", i, outs[i])
					}
				}
				if got := s.HandedOut() - handedOut; got != int64(len(c.local)) {
					t.Errorf("got %d charges handed out, want %d", got, len(c.local))
				}
				batch, batches := inner.lastBatch()
				if len(storeOps) == 0 && batches != oldBatches ||
					len(storeOps) > 0 && (batches != oldBatches+1 || len(batch) != len(storeOps)) {
					t.Fatalf("the store got %+v, want %+v", batch, storeOps)
				}
				for i := range storeOps {
					if batch[i].Cell != storeOps[i].Cell || batch[i].Verb != storeOps[i].Verb {
						t.Errorf("the store got %+v, want %+v", batch[i], storeOps[i])
					}
				}
			})
		})
	}
}

// TestLocalChargesStayGrantedIfTheStoreFails checks a batch of which the store gets the rest.
func TestLocalChargesStayGrantedIfTheStoreFails(t *testing.T) {
	withTokens(t, func(t *testing.T, s *Store, inner *recordingStore) {
		inner.beforeApply = func(_ context.Context, _ []law.Op, outs []law.Outcome) error {
			outs[0].Granted = 1 // Apply must clear it, as it returns an error
			return store.ErrUnavailable
		}
		other := charge(perSecond, 10)
		other.Group, other.Cell.Key = 2, "new"
		outs := mustApply(t, s, charge(perSecond, 10), other)
		if outs[0].Granted != 1 || outs[0].Err != nil || outs[1].Granted != 0 ||
			!errors.Is(outs[1].Err, store.ErrUnavailable) {
			t.Errorf("got %+v, want one granted and one failed", outs)
		}
		other.Count = 2 // such an op is never decided locally
		err := s.Apply(t.Context(), []law.Op{other}, outs[:1])
		if !errors.Is(err, store.ErrUnavailable) || outs[0] != (law.Outcome{}) {
			t.Errorf("got %v, %+v; want %v, an empty outcome", err, outs[0], store.ErrUnavailable)
		}
	})
}

// TestAFailedResetDropsTheTokens checks that a failed reset or block drops the tokens: the store may have done it.
func TestAFailedResetDropsTheTokens(t *testing.T) {
	for _, verb := range []law.Verb{law.Reset, law.Block} {
		withTokens(t, func(t *testing.T, s *Store, inner *recordingStore) {
			inner.beforeApply = func(context.Context, []law.Op, []law.Outcome) error { return store.ErrUnavailable }
			op := charge(perSecond, 10)
			op.Verb, op.TTL = verb, 1_000_000
			err := s.Apply(t.Context(), []law.Op{op}, make([]law.Outcome, 1))
			if !errors.Is(err, store.ErrUnavailable) {
				t.Fatal(err)
			}
			inner.beforeApply = nil
			if out := mustApply(t, s, charge(perSecond, 10))[0]; out.Via != law.ViaStore {
				t.Errorf("after verb %d: got %+v, want a charge of the store", verb, out)
			}
		})
	}
}

// TestCheckAndReturnDropNoTokens checks that a check and a return drop no tokens.
func TestCheckAndReturnDropNoTokens(t *testing.T) {
	withTokens(t, func(t *testing.T, s *Store, _ *recordingStore) {
		op := charge(perSecond, 10)
		op.Verb = law.Check
		out := mustApply(t, s, op)[0]
		op.Verb = law.Take
		mustApply(t, s, law.Back(&op, &out, 10))
		if out := mustApply(t, s, op)[0]; out.Via != law.ViaPrefetch {
			t.Errorf("got %+v, want a local charge", out)
		}
	})
}

// TestAFetchOfOneIsThePlainCharge checks that a fetch of one charge is the caller's op, which a store may decide as a
// plain charge, and that a fetch of several may be granted in part.
func TestAFetchOfOneIsThePlainCharge(t *testing.T) {
	withTokens(t, func(t *testing.T, s *Store, inner *recordingStore) {
		op := charge(perSecond, 10)
		op.Cell.Key = "new"
		mustApply(t, s, op)
		if batch, _ := inner.lastBatch(); len(batch) != 1 || batch[0] != op {
			t.Errorf("the store got %+v, want %+v", batch, op)
		}
		large := op
		large.Cost = 10_000 - 10 - 10 // the capacity less the charge above and one more
		mustApply(t, s, large)
		time.Sleep(700 * time.Millisecond)
		if out := mustApply(t, s, op)[0]; out.Granted != 1 || out.Via != law.ViaStore {
			t.Errorf("the last charge that fits: got %+v, want a charge of the store", out)
		}
		if batch, _ := inner.lastBatch(); batch[0].Count != 2 || !batch[0].Partial {
			t.Errorf("the store got %+v, want a partial take of 2", batch)
		}
	})
}

// TestTakeOneHandsOutTokens checks that TakeOne hands out tokens as Apply does, and leaves all else undecided.
func TestTakeOneHandsOutTokens(t *testing.T) {
	withTokens(t, func(t *testing.T, s *Store, _ *recordingStore) {
		time.Sleep(3 * time.Millisecond)
		op, handedOut := charge(perSecond, 10), s.HandedOut()
		b, ok := s.TakeOne(t.Context(), op.Cell, &op.Params, op.Cost)
		out := mustApply(t, s, op)[0]
		want := store.Brief{
			Granted: true, Via: law.ViaPrefetch, Used: out.Used - 10, Clock: time.Now().UnixMicro(),
			At: out.Clock, EmptyAt: out.State.EmptyAt,
		}
		if !ok || b != want || s.HandedOut() != handedOut+2 {
			t.Errorf("got %+v\nwant %+v", b, want)
		}
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		otherParams := op.Params
		otherParams.Capacity++
		for name, c := range map[string]struct {
			ctx  context.Context
			key  string
			p    *law.Params
			cost int64
		}{
			"of a key of which nothing is held": {t.Context(), "new", &op.Params, 10},
			"of another limit":                  {t.Context(), "k", &otherParams, 10},
			"of nothing":                        {t.Context(), "k", &op.Params, 0},
			"of more than is held":              {t.Context(), "k", &op.Params, 1001},
			"for a caller who is gone":          {cancelled, "k", &op.Params, 10},
		} {
			if b, ok := s.TakeOne(c.ctx, law.Cell{Limit: "l", Key: c.key}, c.p, c.cost); ok || b != (store.Brief{}) {
				t.Errorf("a charge %s: got %+v, want it undecided", name, b)
			}
		}
		s.Close()
		if b, ok := s.TakeOne(t.Context(), op.Cell, &op.Params, op.Cost); ok {
			t.Errorf("after Close: got %+v, want it undecided", b)
		}
	})
}

// TestTakeOneWithoutAPrefetchIsTheStores checks that the inner store's TakeOne decides for a limit without a prefetch.
func TestTakeOneWithoutAPrefetchIsTheStores(t *testing.T) {
	inner := memory.New(nil)
	s := New(inner)
	defer s.Close()
	cell := law.Cell{Limit: "l", Key: "k"}
	noPrefetch, prefetch := perSecond, perSecond
	noPrefetch.Prefetch, prefetch.Prefetch = 0, 1
	b, ok := s.TakeOne(t.Context(), cell, &noPrefetch, 10)
	if !ok || !b.Granted || b.Used != 10 || b.Via != law.ViaStore {
		t.Errorf("got %+v, %v; want it granted by the store", b, ok)
	}
	if b, ok := New(grantingStore{inner}).TakeOne(t.Context(), cell, &prefetch, 10); ok {
		t.Errorf("a limit with a prefetch of one credit: got %+v, want it undecided", b)
	}
	withoutTakeOne := New(struct{ store.Store }{inner})
	if b, ok := withoutTakeOne.TakeOne(t.Context(), cell, &noPrefetch, 10); ok || b != (store.Brief{}) {
		t.Errorf("an inner store without TakeOne: got %+v, want it undecided", b)
	}
	if s.Unwrap() != store.Store(inner) {
		t.Error("Unwrap returns another store")
	}
}

// grantingStore is a store whose TakeOne grants everything.
type grantingStore struct{ store.Store }

func (grantingStore) TakeOne(context.Context, law.Cell, *law.Params, int64) (store.Brief, bool) {
	return store.Brief{Granted: true}, true
}

// TestApplyWithACancelledContextFails checks that it fails though tokens are held.
func TestApplyWithACancelledContextFails(t *testing.T) {
	withTokens(t, func(t *testing.T, s *Store, inner *recordingStore) {
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		_, oldBatches := inner.lastBatch()
		ops := []law.Op{charge(perSecond, 10)}
		if err := s.Apply(cancelled, ops, make([]law.Outcome, 1)); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
		if _, batches := inner.lastBatch(); batches != oldBatches {
			t.Errorf("got %d calls of the store, want none", batches-oldBatches)
		}
	})
}
