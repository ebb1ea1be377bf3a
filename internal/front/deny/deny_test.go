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

// counted is a memory store that counts what it is asked, and may be slow.
type counted struct {
	store.Store
	asked atomic.Int64
	pause func()
}

func (c *counted) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	c.asked.Add(1)
	err := c.Store.Apply(ctx, ops, outs)
	if c.pause != nil {
		c.pause()
	}
	return err
}

var perSecond = law.Params{Kind: law.Bucket, Unit: 1_000_000, Capacity: 3_000_000, Step: 1, Drain: 1} // 1/s burst 3

func take(key string, p law.Params, units int64) law.Op {
	return law.Op{
		Verb: law.Take, Group: 1, Cell: law.Cell{Limit: "l", Key: key}, Params: p,
		Cost: units * p.Unit, Count: 1,
	}
}

// inBubble runs a test in a bubble of time, over a store with its clock.
func inBubble(t *testing.T, test func(t *testing.T, s *deny.Store, inner *counted)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		inner := &counted{Store: memory.New(nil)}
		s := deny.New(inner)
		test(t, s, inner)
		s.Close()
	})
}

func ask(t *testing.T, s store.Store, ops ...law.Op) []law.Outcome {
	t.Helper()
	outs := make([]law.Outcome, len(ops))
	if err := s.Apply(context.Background(), ops, outs); err != nil {
		t.Fatal(err)
	}
	return outs
}

func TestARefusalIsRepeatedUntilItsTime(t *testing.T) {
	inBubble(t, func(t *testing.T, s *deny.Store, inner *counted) {
		op := take("k", perSecond, 1)
		time.Sleep(time.Millisecond)
		for range 2 {
			ask(t, s, op)
		}
		first := ask(t, s, op)[0] // the last: that the next is refused is known now
		first.RetryAt = first.Clock + perSecond.Unit
		if out := ask(t, s, op)[0]; out.Via != law.ViaLocal || out.RetryAt != first.RetryAt || out.Used != first.Used {
			t.Fatalf("after the last: %+v", out)
		}
		for i := range 9 {
			time.Sleep(100 * time.Millisecond)
			out := ask(t, s, op)[0]
			if out.Granted != 0 || out.Via != law.ViaLocal || out.RetryAt != first.RetryAt ||
				out.Clock != first.Clock+int64(i+1)*100_000 {
				t.Fatalf("after %d ms: %+v", 100*(i+1), out)
			}
			b, decided := s.TakeOne(context.Background(), op.Cell, &op.Params, op.Cost)
			if !decided || b.Granted || b.Via != law.ViaLocal || b.RetryAt != out.RetryAt || b.Clock != out.Clock ||
				b.Used != out.Used || b.EmptyAt != out.State.EmptyAt {
				t.Fatalf("TakeOne: %+v, Apply: %+v", b, out)
			}
		}
		if got := inner.asked.Load(); got != 3 || s.Repeated() != 19 {
			t.Errorf("the store was asked %d times, and %d refusals were repeated", got, s.Repeated())
		}
		time.Sleep(100 * time.Millisecond)
		if out := ask(t, s, op)[0]; out.Granted != 1 || out.Via != law.ViaStore {
			t.Errorf("at its time: %+v", out)
		}
	})
}

func TestManyRefusedCallersShareOneCallAtATime(t *testing.T) {
	inBubble(t, func(t *testing.T, s *deny.Store, inner *counted) {
		inner.pause = func() { time.Sleep(time.Millisecond) }
		tenth := perSecond
		tenth.Drain, tenth.Capacity = 10, tenth.Unit // 10/s burst 1
		end := time.Now().Add(5*time.Second - time.Millisecond)
		var admitted atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				outs := make([]law.Outcome, 1)
				for time.Now().Before(end) {
					outs[0] = law.Outcome{}
					if err := s.Apply(context.Background(), []law.Op{take("k", tenth, 1)}, outs); err != nil {
						t.Error(err)
					}
					if outs[0].Granted == 0 && outs[0].RetryAt == 0 {
						t.Errorf("no answer: %+v", outs[0])
					}
					admitted.Add(outs[0].Granted)
					time.Sleep(time.Millisecond)
				}
			})
		}
		wg.Wait()
		// The first eight come together, before anything is known.
		if got := inner.asked.Load(); got > admitted.Load()+7 || admitted.Load() < 48 {
			t.Errorf("the store was asked %d times to admit %d", got, admitted.Load())
		}
	})
}

func TestALongRefusalIsAskedForEverySecond(t *testing.T) {
	inBubble(t, func(t *testing.T, s *deny.Store, inner *counted) {
		hourly := law.Params{
			Kind: law.Bucket, Anchor: law.Epoch, Unit: 1000, Capacity: 1000, Step: 3_600_000_000,
			Drain: law.Max,
		}
		for range 100 {
			ask(t, s, take("k", hourly, 1))
			time.Sleep(100 * time.Millisecond)
		}
		if got := inner.asked.Load(); got != 10 {
			t.Errorf("the store was asked %d times in 10 s, want 10", got)
		}
	})
}

func TestOtherCosts(t *testing.T) {
	inBubble(t, func(t *testing.T, s *deny.Store, inner *counted) {
		ask(t, s, take("k", perSecond, 2))
		ask(t, s, take("k", perSecond, 2)) // refused for 1 s
		larger := ask(t, s, take("k", perSecond, 3))[0]
		if larger.Via != law.ViaLocal || larger.RetryAt-larger.Clock != 2_000_000 {
			t.Errorf("a larger cost: %+v, want refused locally for 2 s", larger)
		}
		if never := ask(t, s, take("k", perSecond, 4))[0]; never.Via != law.ViaLocal || never.RetryAt != law.Never {
			t.Errorf("a cost above the capacity: %+v", never)
		}
		if smaller := ask(t, s, take("k", perSecond, 1))[0]; smaller.Granted != 1 || inner.asked.Load() != 2 {
			t.Errorf("a smaller cost: %+v", smaller)
		}
		slower := perSecond
		slower.Step = 2
		if out := ask(t, s, take("k", slower, 2))[0]; out.Via != law.ViaStore {
			t.Errorf("under a changed limit: %+v", out)
		}
	})
}

func TestAChangedCellDropsItsRefusal(t *testing.T) {
	for name, verb := range map[string]law.Verb{
		"reset": law.Reset, "a block lifted": law.Block,
		"a return": law.Return,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *deny.Store, inner *counted) {
				op := take("k", perSecond, 3)
				charged := ask(t, s, op)[0]
				ask(t, s, op)
				change := law.Back(&op, &charged, op.Cost)
				change.Verb = verb
				ask(t, s, change)
				if out := ask(t, s, op)[0]; out.Via != law.ViaStore || out.Granted != 1 && verb != law.Block {
					t.Errorf("%+v", out)
				}
			})
		})
	}
}

func TestAResetInABatchComesBeforeTheTakeAfterIt(t *testing.T) {
	inBubble(t, func(t *testing.T, s *deny.Store, inner *counted) {
		op := take("k", perSecond, 3)
		ask(t, s, op)
		ask(t, s, op)
		reset, again := op, op
		reset.Verb, again.Group = law.Reset, 2
		if outs := ask(t, s, reset, again); outs[1].Granted != 1 {
			t.Errorf("%+v", outs)
		}
	})
}

func TestARefusalThatWasOnItsWayDuringAResetIsForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, s *deny.Store, inner *counted) {
		op := take("k", perSecond, 3)
		ask(t, s, op)
		answer := make(chan struct{})
		inner.pause = func() { <-answer }
		// refused, but the answer takes its time
		go func() { _ = s.Apply(context.Background(), []law.Op{op}, make([]law.Outcome, 1)) }()
		synctest.Wait()
		inner.pause = nil
		reset := op
		reset.Verb = law.Reset
		ask(t, s, reset)
		close(answer)
		synctest.Wait()
		if out := ask(t, s, op)[0]; out.Granted != 1 {
			t.Errorf("after a reset: %+v", out)
		}
	})
}

func TestARequestIsRefusedForOneOfItsCharges(t *testing.T) {
	inBubble(t, func(t *testing.T, s *deny.Store, inner *counted) {
		ask(t, s, take("full", perSecond, 3))
		group := []law.Op{take("free", perSecond, 1), take("full", perSecond, 1)}
		ask(t, s, group...)
		again := ask(t, s, group...)
		if again[0].Via != law.ViaLocal || again[0].Granted != 1 || again[1].Granted != 0 || inner.asked.Load() != 2 {
			t.Errorf("%+v", again)
		}
		// In a batch only the others are asked.
		other := take("other", perSecond, 1)
		other.Group = 2
		last := take("free", perSecond, 1)
		last.Group = 1
		outs := ask(t, s, group[0], group[1], other, last)
		if outs[1].Via != law.ViaLocal || outs[2].Granted != 1 || outs[3].Granted != 1 || outs[3].Via != law.ViaStore {
			t.Errorf("%+v", outs)
		}
		check := take("free", perSecond, 1)
		check.Verb = law.Check
		if out := ask(t, s, check)[0]; out.Used != 2*perSecond.Unit {
			t.Errorf("refused requests have charged: %+v", out)
		}
	})
}

func TestChargesThatLeaveATraceReachTheStore(t *testing.T) {
	history := law.Params{Kind: law.Log, Unit: 1000, Capacity: 1000, Step: 3_600_000_000, History: 7_200_000_000}
	blocks := perSecond
	blocks.Block = 60_000_000
	withID := take("k", perSecond, 3)
	withID.ID = "id"
	for name, ops := range map[string][]law.Op{
		"an attempt with a history": {take("k", history, 1)},
		"an ID":                     {withID},
		"a request of which one limit blocks": {
			take("k", perSecond, 3),
			{Verb: law.Take, Group: 1, Cell: law.Cell{Limit: "blocks", Key: "k"}, Params: blocks, Cost: 1, Count: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *deny.Store, inner *counted) {
				for range 5 {
					ask(t, s, ops...)
				}
				if got := inner.asked.Load(); got != 5 {
					t.Errorf("the store was asked %d times of 5", got)
				}
			})
		})
	}
}

func TestClosed(t *testing.T) {
	s := deny.New(memory.New(nil))
	op := take("k", perSecond, 4)
	ask(t, s, op)
	s.Close()
	if _, decided := s.TakeOne(context.Background(), op.Cell, &op.Params, op.Cost); decided {
		t.Error("it decides after Close")
	}
	if err := s.Apply(context.Background(), []law.Op{op}, make([]law.Outcome, 1)); !errors.Is(err, store.ErrClosed) {
		t.Errorf("got %v", err)
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
