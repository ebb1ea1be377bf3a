package deny_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/front/deny"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// countingStore is a store that counts calls of Apply.
type countingStore struct {
	store.Store
	calls atomic.Int64
	delay func() // is called before each answer; nil: none
}

func (c *countingStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	c.calls.Add(1)
	err := c.Store.Apply(ctx, ops, outs)
	if c.delay != nil {
		c.delay()
	}
	return err
}

var perSecond = law.Params{Kind: law.Bucket, Unit: 1_000_000, Capacity: 3_000_000, Step: 1, Drain: 1} // 1/s burst 3

// take returns a take of some units.
func take(key string, p law.Params, units int64) law.Op {
	return law.Op{
		Verb: law.Take, Group: 1, Cell: law.Cell{Limit: "l", Key: key}, Params: p,
		Cost: units * p.Unit, Count: 1,
	}
}

// withStore runs a test in a bubble of time, with a deny.Store around a countingStore.
func withStore(t *testing.T, test func(t *testing.T, s *deny.Store, inner *countingStore)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		inner := &countingStore{Store: memory.New(nil)}
		s := deny.New(inner)
		test(t, s, inner)
		s.Close()
	})
}

// mustApply applies a batch, and fails the test on an error.
func mustApply(t *testing.T, s store.Store, ops ...law.Op) []law.Outcome {
	t.Helper()
	outs := make([]law.Outcome, len(ops))
	if err := s.Apply(context.Background(), ops, outs); err != nil {
		t.Fatal(err)
	}
	return outs
}

func TestARefusalIsRepeatedUntilItsTime(t *testing.T) {
	withStore(t, func(t *testing.T, s *deny.Store, inner *countingStore) {
		op := take("k", perSecond, 1)
		time.Sleep(time.Millisecond)
		for range 2 {
			mustApply(t, s, op)
		}
		lastGrant := mustApply(t, s, op)[0] // the next charge will be refused
		retryAt := lastGrant.Clock + perSecond.Unit
		out := mustApply(t, s, op)[0]
		if out.Via != law.ViaLocal || out.RetryAt != retryAt || out.Used != lastGrant.Used {
			t.Fatalf("after the last: got %+v, want a local refusal", out)
		}
		for i := range 9 {
			time.Sleep(100 * time.Millisecond)
			out := mustApply(t, s, op)[0]
			if out.Granted != 0 || out.Via != law.ViaLocal || out.RetryAt != retryAt ||
				out.Clock != lastGrant.Clock+int64(i+1)*100_000 {
				t.Fatalf("after %d ms: got %+v, want a local refusal", 100*(i+1), out)
			}
			b, decided := s.TakeOne(context.Background(), op.Cell, &op.Params, op.Cost)
			if !decided || b.Granted || b.Via != law.ViaLocal || b.RetryAt != out.RetryAt || b.Clock != out.Clock ||
				b.Used != out.Used || b.EmptyAt != out.State.EmptyAt {
				t.Fatalf("got %+v by TakeOne, %+v by Apply; want the same", b, out)
			}
		}
		if got := inner.calls.Load(); got != 3 || s.Repeated() != 19 {
			t.Errorf("got %d calls, %d repeated refusals; want 3, 19", got, s.Repeated())
		}
		time.Sleep(100 * time.Millisecond)
		if out := mustApply(t, s, op)[0]; out.Granted != 1 || out.Via != law.ViaStore {
			t.Errorf("at its time: got %+v, want it granted by the store", out)
		}
	})
}

func TestManyRefusedCallersShareOneCallAtATime(t *testing.T) {
	withStore(t, func(t *testing.T, s *deny.Store, inner *countingStore) {
		inner.delay = func() { time.Sleep(time.Millisecond) }
		tenPerSecond := perSecond
		tenPerSecond.Drain, tenPerSecond.Capacity = 10, tenPerSecond.Unit // 10/s burst 1
		end := time.Now().Add(5*time.Second - time.Millisecond)
		var admitted atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				outs := make([]law.Outcome, 1)
				for time.Now().Before(end) {
					outs[0] = law.Outcome{}
					if err := s.Apply(context.Background(), []law.Op{take("k", tenPerSecond, 1)}, outs); err != nil {
						t.Error(err)
					}
					if outs[0].Granted == 0 && outs[0].RetryAt == 0 {
						t.Errorf("got %+v, want it granted or refused", outs[0])
					}
					admitted.Add(outs[0].Granted)
					time.Sleep(time.Millisecond)
				}
			})
		}
		wg.Wait()
		// The first eight calls come together, before there is a refusal.
		if got := inner.calls.Load(); got > admitted.Load()+7 || admitted.Load() < 48 {
			t.Errorf("got %d calls, %d admitted; want at most 7 calls more than admitted", got, admitted.Load())
		}
	})
}

func TestALongRefusalIsRefreshedEverySecond(t *testing.T) {
	withStore(t, func(t *testing.T, s *deny.Store, inner *countingStore) {
		hourly := law.Params{
			Kind: law.Bucket, Anchor: law.Epoch, Unit: 1000, Capacity: 1000, Step: 3_600_000_000, Drain: law.Max,
		}
		for range 100 {
			mustApply(t, s, take("k", hourly, 1))
			time.Sleep(100 * time.Millisecond)
		}
		if got := inner.calls.Load(); got != 10 {
			t.Errorf("got %d calls in 10 s, want 10", got)
		}
	})
}

func TestARefusalHoldsForLargerCosts(t *testing.T) {
	withStore(t, func(t *testing.T, s *deny.Store, inner *countingStore) {
		mustApply(t, s, take("k", perSecond, 2))
		mustApply(t, s, take("k", perSecond, 2)) // refused for 1 s
		larger := mustApply(t, s, take("k", perSecond, 3))[0]
		if larger.Via != law.ViaLocal || larger.RetryAt-larger.Clock != 2_000_000 {
			t.Errorf("a larger cost: got %+v, want refused locally for 2 s", larger)
		}
		if never := mustApply(t, s, take("k", perSecond, 4))[0]; never.Via != law.ViaLocal || never.RetryAt != law.Never {
			t.Errorf("a cost above the capacity: got %+v, want refused locally for ever", never)
		}
		if smaller := mustApply(t, s, take("k", perSecond, 1))[0]; smaller.Granted != 1 || inner.calls.Load() != 2 {
			t.Errorf("a smaller cost: got %+v, want it granted", smaller)
		}
		slower := perSecond
		slower.Step = 2
		if out := mustApply(t, s, take("k", slower, 2))[0]; out.Via != law.ViaStore {
			t.Errorf("under a changed limit: got %+v, want a decision of the store", out)
		}
	})
}

func TestAChangedCellDropsItsRefusal(t *testing.T) {
	for name, verb := range map[string]law.Verb{"reset": law.Reset, "lifted block": law.Block, "return": law.Return} {
		t.Run(name, func(t *testing.T) {
			withStore(t, func(t *testing.T, s *deny.Store, inner *countingStore) {
				op := take("k", perSecond, 3)
				takeOutcome := mustApply(t, s, op)[0]
				mustApply(t, s, op)
				change := law.Back(&op, &takeOutcome, op.Cost)
				change.Verb = verb
				mustApply(t, s, change)
				if out := mustApply(t, s, op)[0]; out.Via != law.ViaStore || out.Granted != 1 && verb != law.Block {
					t.Errorf("got %+v, want a decision of the store", out)
				}
			})
		})
	}
}

func TestAResetInABatchDropsTheRefusal(t *testing.T) {
	withStore(t, func(t *testing.T, s *deny.Store, inner *countingStore) {
		op := take("k", perSecond, 3)
		mustApply(t, s, op)
		mustApply(t, s, op)
		reset, nextTake := op, op
		reset.Verb, nextTake.Group = law.Reset, 2
		if outs := mustApply(t, s, reset, nextTake); outs[1].Granted != 1 {
			t.Errorf("got %+v, want the take granted", outs)
		}
	})
}

func TestAResetDropsARefusalOnItsWay(t *testing.T) {
	withStore(t, func(t *testing.T, s *deny.Store, inner *countingStore) {
		op := take("k", perSecond, 3)
		mustApply(t, s, op)
		answer := make(chan struct{})
		inner.delay = func() { <-answer }
		go func() { _ = s.Apply(context.Background(), []law.Op{op}, make([]law.Outcome, 1)) }()
		synctest.Wait()
		inner.delay = nil
		reset := op
		reset.Verb = law.Reset
		mustApply(t, s, reset)
		close(answer)
		synctest.Wait()
		if out := mustApply(t, s, op)[0]; out.Granted != 1 {
			t.Errorf("after a reset: got %+v, want it granted", out)
		}
	})
}

func TestARequestIsRefusedForOneOfItsCharges(t *testing.T) {
	withStore(t, func(t *testing.T, s *deny.Store, inner *countingStore) {
		mustApply(t, s, take("full", perSecond, 3))
		group := []law.Op{take("free", perSecond, 1), take("full", perSecond, 1)}
		mustApply(t, s, group...)
		outs := mustApply(t, s, group...)
		if outs[0].Via != law.ViaLocal || outs[0].Granted != 1 || outs[1].Granted != 0 || inner.calls.Load() != 2 {
			t.Errorf("got %+v, want a local refusal", outs)
		}
		// In a batch only the other requests go to the store.
		other := take("other", perSecond, 1)
		other.Group = 2
		nextFree := take("free", perSecond, 1)
		nextFree.Group = 1
		outs = mustApply(t, s, group[0], group[1], other, nextFree)
		if outs[1].Via != law.ViaLocal || outs[2].Granted != 1 || outs[3].Granted != 1 || outs[3].Via != law.ViaStore {
			t.Errorf("got %+v, want a local refusal, and two takes granted", outs)
		}
		check := take("free", perSecond, 1)
		check.Verb = law.Check
		if out := mustApply(t, s, check)[0]; out.Used != 2*perSecond.Unit {
			t.Errorf("got %+v, want 2 units used: refused requests charge nothing", out)
		}
	})
}

func TestChargesWithARecordReachTheStore(t *testing.T) {
	history := law.Params{Kind: law.Log, Unit: 1000, Capacity: 1000, Step: 3_600_000_000, History: 7_200_000_000}
	blocking := perSecond
	blocking.Block = 60_000_000
	withID := take("k", perSecond, 3)
	withID.ID = "id"
	for name, ops := range map[string][]law.Op{
		"an attempt with a history": {take("k", history, 1)},
		"an ID":                     {withID},
		"a request of which one limit blocks": {
			take("k", perSecond, 3),
			{Verb: law.Take, Group: 1, Cell: law.Cell{Limit: "blocks", Key: "k"}, Params: blocking, Cost: 1, Count: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			withStore(t, func(t *testing.T, s *deny.Store, inner *countingStore) {
				for range 5 {
					mustApply(t, s, ops...)
				}
				if got := inner.calls.Load(); got != 5 {
					t.Errorf("got %d calls of the store, want 5", got)
				}
			})
		})
	}
}

func TestAfterCloseNothingIsDecided(t *testing.T) {
	s := deny.New(memory.New(nil))
	op := take("k", perSecond, 4)
	mustApply(t, s, op)
	s.Close()
	if _, decided := s.TakeOne(context.Background(), op.Cell, &op.Params, op.Cost); decided {
		t.Error("TakeOne decided after Close")
	}
	if err := s.Apply(context.Background(), []law.Op{op}, make([]law.Outcome, 1)); !errors.Is(err, store.ErrClosed) {
		t.Errorf("got %v, want %v", err, store.ErrClosed)
	}
}

func BenchmarkRepeat(b *testing.B) {
	s := deny.New(memory.New(nil))
	op := take("user:1", perSecond, 4)
	_ = s.Apply(context.Background(), []law.Op{op}, make([]law.Outcome, 1))
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		ctx := context.Background()
		for pb.Next() {
			s.TakeOne(ctx, op.Cell, &op.Params, op.Cost)
		}
	})
}
