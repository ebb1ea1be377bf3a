package headgate_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/sqlite"
)

func namedLimit(t *testing.T, notation string) headgate.Limit {
	t.Helper()
	l, err := headgate.ParseNamed("api", notation)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// takeUntilRefused takes units one by one until one is refused.
func takeUntilRefused(t *testing.T, l *headgate.Limiter, limit headgate.Limit) (n int) {
	t.Helper()
	for ; n < 1000; n++ {
		d, err := l.Allow(context.Background(), limit, "k")
		if err != nil {
			t.Fatal(err)
		}
		if !d.Allowed {
			break
		}
	}
	return n
}

// TestSettleAfterTheRateWasChanged changes the rate of a limit, and so its unit, between a charge and its settlement:
// credits of the two units must not be subtracted from each other.
func TestSettleAfterTheRateWasChanged(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) store.Store{
		"memory": func(*testing.T) store.Store { return memory.New(nil) },
		"sqlite": func(t *testing.T) store.Store {
			s, err := sqlite.Open(context.Background(), "sqlite:"+filepath.Join(t.TempDir(), "s.db"), nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			return s
		},
	} {
		t.Run(name+" to its own cost", func(t *testing.T) {
			ctx := context.Background()
			l := headgate.New(open(t), nil)
			// 1 of 10 taken at 1/h; then the config says 10/h, 9 others pass.
			old, now := namedLimit(t, "token-bucket 1/1h burst 10"), namedLimit(t, "token-bucket 10/1h burst 10")
			if old.Params().Unit == now.Params().Unit {
				t.Fatal("choose other limits")
			}
			job := l.Once("job", 0)
			if d, err := job.Take(ctx, headgate.Charge{Limit: old, Key: "k"}); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
			n := takeUntilRefused(t, l, now)
			by, err := job.Settle(ctx, headgate.Charge{Limit: now, Key: "k", Cost: headgate.Units(1)})
			if err != nil {
				t.Fatal(err)
			}
			if n += takeUntilRefused(t, l, now); n > 9 || by[0] != headgate.Units(0) {
				t.Errorf("1 was charged and settled at 1: corrected by %v, and %d others passed beside it, the "+
					"burst is 10", by, n)
			}
		})
		t.Run(name+" the other way", func(t *testing.T) {
			ctx := context.Background()
			l := headgate.New(open(t), nil)
			old, now := namedLimit(t, "token-bucket 10/1h burst 10"), namedLimit(t, "token-bucket 1/1h burst 10")
			job := l.Once("job", 0)
			if d, err := job.Take(ctx, headgate.Charge{Limit: old, Key: "k", Cost: headgate.Units(5)}); err != nil ||
				!d.Allowed {
				t.Fatal(d, err)
			}
			takeUntilRefused(t, l, now)
			if by, err := job.Settle(ctx, headgate.Charge{Limit: now, Key: "k", Cost: headgate.Units(5)}); err != nil ||
				by[0] != headgate.Units(0) {
				t.Errorf("5 were charged and settled at 5: corrected by %v, %v", by, err)
			}
		})
		t.Run(name+" asked again", func(t *testing.T) {
			ctx := context.Background()
			l := headgate.New(open(t), nil)
			for _, limit := range []headgate.Limit{
				namedLimit(t, "token-bucket 1/1h burst 10"),
				namedLimit(t, "token-bucket 10/1h burst 10"),
			} {
				if d, err := l.Once("job", 0).Take(ctx, headgate.Charge{Limit: limit, Key: "k"}); err != nil ||
					!d.Allowed {
					t.Errorf("the same charge of the same limit, whose rate was changed: %+v, %v", d, err)
				}
			}
		})
	}
}

// TestSettleOfADrainedCharge changes the rate of a limit but not its unit: a charge that has drained at the old rate
// must not count as undrained at the new one, which would give back charges of others.
func TestSettleOfADrainedCharge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		l := headgate.New(memory.New(nil), nil)
		old, now := namedLimit(t, "fixed-window 10/1m"), namedLimit(t, "fixed-window 10/1h")
		job := l.Once("job", time.Hour)
		if d, err := job.Take(ctx, headgate.Charge{Limit: old, Key: "k", Cost: headgate.Units(10)}); err != nil ||
			!d.Allowed {
			t.Fatal(d, err)
		}
		time.Sleep(2 * time.Minute)          // its window is over
		first := takeUntilRefused(t, l, old) // of the next
		n := takeUntilRefused(t, l, now)     // the limit is changed: nothing is left
		by, err := job.Cancel(ctx, headgate.Charge{Limit: now, Key: "k"})
		if err != nil {
			t.Fatal(err)
		}
		if n += takeUntilRefused(t, l, now); n > 0 {
			t.Errorf("%d passed before the change, and %d after it within the same window of 10: %v given back of a "+
				"window that was over", first, n, by)
		}
	})
}

// TestTakeAgainAfterCancel takes again under cancelled ids: they must be charged again, and not pass as replays.
func TestTakeAgainAfterCancel(t *testing.T) {
	ctx := context.Background()
	l := headgate.New(memory.New(nil), nil)
	limit := headgate.MustParse("fixed-window 10/1h")
	ten := headgate.Charge{Limit: limit, Key: "k", Cost: headgate.Units(10)}
	passed := 0
	for _, id := range []string{"a", "b", "c", "d"} {
		if d, err := l.Once(id, 0).Take(ctx, ten); err != nil || !d.Allowed {
			t.Fatal(id, d, err)
		}
		if _, err := l.Once(id, 0).Cancel(ctx, ten); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"a", "b", "c", "d"} {
		if d, err := l.Once(id, 0).Take(ctx, ten); err == nil && d.Allowed {
			passed += 10
		}
	}
	if passed > 20 { // 20: across a boundary
		t.Errorf("%d pass now, at once, of %s; used is %s", passed, limit, inUse(t, l, limit.String(), "k"))
	}
}

// TestReserveAgainAfterAnInterruptedSleep reserves again under an id whose reservation was cancelled because the
// context ended during Sleep.
func TestReserveAgainAfterAnInterruptedSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		l := headgate.New(memory.New(nil), nil)
		ask := charges("k", "1 of token-bucket 1/s burst 1")
		if err := l.Wait(ctx, ask...); err != nil {
			t.Fatal(err)
		}
		starts := map[time.Time]int{}
		for i := range 10 {
			id := string(rune('a' + i))
			r, err := l.Once(id, 0).Reserve(ctx, time.Minute, ask...)
			if err != nil || !r.Decision.Allowed {
				t.Fatal(r, err)
			}
			short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
			if err := r.Sleep(short); err == nil {
				t.Fatal("slept")
			}
			cancel()
			again, err := l.Once(id, 0).Reserve(ctx, time.Minute, ask...)
			if err != nil || !again.Decision.Allowed {
				continue
			}
			starts[again.StartAt]++
		}
		for at, n := range starts {
			if n > 1 {
				t.Errorf("%d start at %v, the burst is 1", n, at)
			}
		}
	})
}

// TestTakeUnderAReservedID checks that Take does not admit at once what was reserved for a later start.
func TestTakeUnderAReservedID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		l := headgate.New(memory.New(nil), nil)
		ask := charges("k", "1 of token-bucket 1/s burst 1")
		n := 0
		for i := range 10 {
			once := l.Once(string(rune('a'+i)), 0)
			if r, err := once.Reserve(ctx, time.Minute, ask...); err != nil || !r.Decision.Allowed {
				t.Fatal(r, err)
			}
			if d, err := once.Take(ctx, ask...); err == nil && d.Allowed {
				n++
			}
		}
		if n > 1 {
			t.Errorf("%d may start at once, the burst is 1", n)
		}
	})
}

// TestPartlyReplayedStart reserves again under an id after one of two cells was reset. If only that one were decided,
// it would count from its own start, and the request would start at the later of both.
func TestPartlyReplayedStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		l := headgate.New(memory.New(nil), nil)
		both := charges("k", "1 of token-bucket 1/s burst 1", "1 of token-bucket 1/1m burst 1")
		if err := l.Wait(ctx, both[1]); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Once("x", 0).Reserve(ctx, time.Hour, both...); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Reset(ctx, both[0].Limit, "k"); err != nil {
			t.Fatal(err)
		}
		x, err := l.Once("x", 0).Reserve(ctx, time.Hour, both...)
		if err != nil || !x.Decision.Allowed {
			t.Fatal(x, err)
		}
		time.Sleep(x.Delay())
		if d, err := l.Take(ctx, both[0]); err != nil || d.Allowed {
			t.Errorf("another passes %s at the start of a request that was charged to it: %+v, %v",
				both[0].Limit, d, err)
		}
	})
}

// TestEmptyID checks that an empty id with the default life is ErrInvalid.
func TestEmptyID(t *testing.T) {
	ctx := context.Background()
	l := headgate.New(memory.New(nil), nil)
	ask := charges("k", "1 of fixed-window 10/1h")
	if _, err := l.Once("", 0).Take(ctx, ask...); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("Once(\"\", 0).Take: %v; with a life of a minute it is ErrInvalid", err)
	}
	if _, err := l.Once("", 0).Reserve(ctx, 0, ask...); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("Once(\"\", 0).Reserve: %v", err)
	}
}

// TestLifeEndsBeforeTheStart cancels a reservation whose start lies beyond the life of its id.
func TestLifeEndsBeforeTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		l := headgate.New(memory.New(nil), nil)
		ask := charges("k", "1 of token-bucket 1/1d burst 1")
		if err := l.Wait(ctx, ask...); err != nil {
			t.Fatal(err)
		}
		r, err := l.Once("x", 0).Reserve(ctx, 48*time.Hour, ask...)
		if err != nil || !r.Decision.Allowed {
			t.Fatal(r, err)
		}
		time.Sleep(2 * time.Hour) // its start is in 22 h
		if again, err := l.Once("x", 0).Reserve(ctx, 72*time.Hour, ask...); err != nil || !again.Decision.Replayed {
			t.Errorf("asked again before its start, it is charged once more: %+v, %v", again.Decision, err)
		}
		if by, err := r.Cancel(ctx); err != nil {
			t.Errorf("cancelled 22 h before its start: %v, %v", by, err)
		}
	})
}

// failingSettleStore fails the last group of a settlement, as a store that is spread over servers does when one of them
// is away.
type failingSettleStore struct {
	store.Store
	cut atomic.Bool
}

func (s *failingSettleStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	n := len(ops)
	if s.cut.Load() && n > 1 {
		outs[n-1] = law.Outcome{Err: store.ErrUnavailable}
		return s.Store.Apply(ctx, ops[:n-1], outs[:n-1])
	}
	return s.Store.Apply(ctx, ops, outs)
}

func TestCancelledInPartIsCancelledTwice(t *testing.T) {
	ctx := context.Background()
	m := memory.New(&memory.Config{Clock: newClock("2026-03-01T12:00:00Z").read})
	s := &failingSettleStore{Store: m}
	l := headgate.New(s, nil)
	ask := charges("k", "4 of fixed-window 10/1d", "1 of fixed-window 100/1d")
	if d, err := l.Take(ctx, charges("k", "6 of fixed-window 10/1d")...); err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	r, err := l.Reserve(ctx, 0, ask...)
	if err != nil || !r.Decision.Allowed {
		t.Fatal(r, err)
	}
	s.cut.Store(true)
	if _, err := r.Cancel(ctx); err == nil {
		t.Fatal("no error")
	}
	s.cut.Store(false)
	_, err = r.Cancel(ctx)
	if got := inUse(t, headgate.New(m, nil), "fixed-window 10/1d", "k"); got != "6" {
		t.Errorf("6 were taken by others, 4 cancelled: used is %s (second Cancel: %v)", got, err)
	}
}

// TestAReplayKeepsAPastStart reserves again under an id after the start has passed.
func TestAReplayKeepsAPastStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		l := headgate.New(memory.New(nil), nil)
		ask := charges("k", "1 of token-bucket 1/s burst 1")
		first, err := l.Once("x", 0).Reserve(ctx, time.Minute, ask...)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		again, err := l.Once("x", 0).Reserve(ctx, time.Minute, ask...)
		if err != nil || !again.StartAt.Equal(first.StartAt) {
			t.Errorf("started at %v, asked again at %v: %v", first.StartAt, again.StartAt, err)
		}
	})
}

// TestCancelWhenTheStoreIsFull cancels a reservation that has drained and that a full store has forgotten. Cancelling
// it writes nothing, and so needs no room.
func TestCancelWhenTheStoreIsFull(t *testing.T) {
	ctx := context.Background()
	now := int64(1_700_000_000_000_000)
	m := memory.New(&memory.Config{MaxTotal: 2, Clock: func() int64 { return now }})
	l := headgate.New(m, nil)
	r, err := l.Reserve(ctx, 0, charges("k", "1 of token-bucket 1/1s burst 1", "1 of fixed-window 9/1d")...)
	if err != nil || !r.Decision.Allowed {
		t.Fatal(r, err)
	}
	now += 2_000_000
	if d, err := l.Take(ctx, charges("other", "1 of fixed-window 9/1d")...); err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	if by, err := r.Cancel(ctx); err != nil {
		t.Errorf("%v, %v", by, err)
		_, err := r.Cancel(ctx)
		t.Errorf("again: %v; used %s", err, inUse(t, l, "fixed-window 9/1d", "k"))
	}
}

// TestSettledWithTheSameCharges settles with the charges that were taken: the zero Cost, which is 1 in a charge, must
// not mean 0 in a settlement.
func TestSettledWithTheSameCharges(t *testing.T) {
	ctx := context.Background()
	l, _ := newExampleLimiter()
	c := headgate.Charge{Limit: headgate.MustParse("fixed-window 5/1h"), Key: "k"}
	job := l.Once("job", 0)
	if d, err := job.Take(ctx, c); err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	if by, err := job.Settle(ctx, c); err != nil || by[0] != headgate.Units(0) {
		t.Errorf("taken and settled with the same Charge: corrected by %v, %v; used %s", by, err,
			inUse(t, l, "fixed-window 5/1h", "k"))
	}
}

// TestCancelAfterOneKeyWasReset cancels a reservation with an id whose first key was reset: the other charge is still
// cancelled.
func TestCancelAfterOneKeyWasReset(t *testing.T) {
	ctx := context.Background()
	l, _ := newExampleLimiter()
	both := charges("k", "1 of fixed-window 5/1h", "1 of fixed-window 9/1h")
	r, err := l.Once("x", 0).Reserve(ctx, 0, both...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Reset(ctx, both[0].Limit, "k"); err != nil {
		t.Fatal(err)
	}
	if by, err := r.Cancel(ctx); !errors.Is(err, headgate.ErrUnknownID) ||
		inUse(t, l, "fixed-window 9/1h", "k") != "0" {
		t.Errorf("%v, %v; still charged: %s", by, err, inUse(t, l, "fixed-window 9/1h", "k"))
	}
}
