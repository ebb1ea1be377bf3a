package headgate_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
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

// apiLimit returns a limit with the name api.
func apiLimit(t *testing.T, notation string) headgate.Limit {
	t.Helper()
	return parseNamed(t, "api", notation)
}

// takeUntilRefused takes units of the key k one by one until one is refused, and returns how many passed.
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

// TestTheRateChangesBetweenTakeAndSettle changes the rate of a limit, and so its unit, after a charge. A settlement at
// the cost of the charge must give back nothing, and a retry of the take must be admitted.
func TestTheRateChangesBetweenTakeAndSettle(t *testing.T) {
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
		t.Run(name+" with a higher rate", func(t *testing.T) {
			ctx := context.Background()
			l := headgate.New(open(t), nil)
			// One unit is taken at 1/h. Then the rate is 10/h, and 9 units of other callers pass.
			oldLimit, newLimit := apiLimit(t, "token-bucket 1/1h burst 10"), apiLimit(t, "token-bucket 10/1h burst 10")
			if oldLimit.Params().Unit == newLimit.Params().Unit {
				t.Fatal("choose other limits")
			}
			job := l.Once("job", 0)
			if d, err := job.Take(ctx, headgate.Charge{Limit: oldLimit, Key: "k"}); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
			n := takeUntilRefused(t, l, newLimit)
			returned, err := job.Settle(ctx, headgate.Charge{Limit: newLimit, Key: "k", Cost: headgate.Units(1)})
			if err != nil {
				t.Fatal(err)
			}
			if n += takeUntilRefused(t, l, newLimit); n > 9 || returned[0] != headgate.Units(0) {
				t.Errorf("1 was charged and settled at 1: returned %v, and %d other units passed; want 0 and 9, as the "+
					"burst is 10", returned, n)
			}
		})
		t.Run(name+" with a lower rate", func(t *testing.T) {
			ctx := context.Background()
			l := headgate.New(open(t), nil)
			oldLimit, newLimit := apiLimit(t, "token-bucket 10/1h burst 10"), apiLimit(t, "token-bucket 1/1h burst 10")
			job := l.Once("job", 0)
			if d, err := job.Take(ctx, headgate.Charge{Limit: oldLimit, Key: "k", Cost: headgate.Units(5)}); err != nil ||
				!d.Allowed {
				t.Fatal(d, err)
			}
			takeUntilRefused(t, l, newLimit)
			if returned, err := job.Settle(ctx, headgate.Charge{Limit: newLimit, Key: "k", Cost: headgate.Units(5)}); err != nil ||
				returned[0] != headgate.Units(0) {
				t.Errorf("5 were charged and settled at 5: returned %v, %v; want 0", returned, err)
			}
		})
		t.Run(name+" with a retry", func(t *testing.T) {
			ctx := context.Background()
			l := headgate.New(open(t), nil)
			for _, limit := range []headgate.Limit{
				apiLimit(t, "token-bucket 1/1h burst 10"),
				apiLimit(t, "token-bucket 10/1h burst 10"),
			} {
				if d, err := l.Once("job", 0).Take(ctx, headgate.Charge{Limit: limit, Key: "k"}); err != nil ||
					!d.Allowed {
					t.Errorf("a retry after the rate was changed: %+v, %v; want an admission", d, err)
				}
			}
		})
	}
}

// TestCancelOfADrainedCharge changes the rate of a limit but not its unit. A charge that has drained at the old rate
// must not count as in use at the new rate: its cancellation would give back charges of other callers.
func TestCancelOfADrainedCharge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		l := headgate.New(memory.New(nil), nil)
		oldLimit, newLimit := apiLimit(t, "fixed-window 10/1m"), apiLimit(t, "fixed-window 10/1h")
		job := l.Once("job", time.Hour)
		if d, err := job.Take(ctx, headgate.Charge{Limit: oldLimit, Key: "k", Cost: headgate.Units(10)}); err != nil ||
			!d.Allowed {
			t.Fatal(d, err)
		}
		time.Sleep(2 * time.Minute) // the window of the charge is over
		oldCount := takeUntilRefused(t, l, oldLimit)
		newCount := takeUntilRefused(t, l, newLimit) // none passes
		returned, err := job.Cancel(ctx, headgate.Charge{Limit: newLimit, Key: "k"})
		if err != nil {
			t.Fatal(err)
		}
		if newCount += takeUntilRefused(t, l, newLimit); newCount > 0 || oldCount != 10 ||
			!slices.Equal(returned, []headgate.Cost{headgate.Units(0)}) {
			t.Errorf("%d passed before the change, and %d after it within the same window, want 10 and 0; %v was "+
				"returned of a window that was over, want 0", oldCount, newCount, returned)
		}
	})
}

// TestTakeUnderACancelledIDIsCharged takes again under cancelled ids, which must be charged and not pass as replays.
func TestTakeUnderACancelledIDIsCharged(t *testing.T) {
	ctx := context.Background()
	l := newLimiter(newClock("2026-03-01T12:00:00Z"))
	limit := headgate.MustParse("fixed-window 10/1h")
	charge := headgate.Charge{Limit: limit, Key: "k", Cost: headgate.Units(10)}
	for _, id := range []string{"a", "b", "c", "d"} {
		if d, err := l.Once(id, 0).Take(ctx, charge); err != nil || !d.Allowed {
			t.Fatal(id, d, err)
		}
		if _, err := l.Once(id, 0).Cancel(ctx, charge); err != nil {
			t.Fatal(err)
		}
	}
	for i, id := range []string{"a", "b", "c", "d"} {
		if d, err := l.Once(id, 0).Take(ctx, charge); err != nil || d.Allowed != (i == 0) || d.Replayed {
			t.Errorf("take %d: got %+v, %v; want the first admitted, none replayed", i+1, d, err)
		}
	}
}

// TestReserveAgainAfterAnInterruptedSleep reserves again under ids whose reservations Sleep cancelled when its context
// ended. Two of them must not get the same start.
func TestReserveAgainAfterAnInterruptedSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		l := headgate.New(memory.New(nil), nil)
		request := charges("k", "1 of token-bucket 1/s burst 1")
		if err := l.Wait(ctx, request...); err != nil {
			t.Fatal(err)
		}
		countByStart := map[time.Time]int{}
		for i := range 10 {
			id := string(rune('a' + i))
			r, err := l.Once(id, 0).Reserve(ctx, time.Minute, request...)
			if err != nil || !r.Decision.Allowed {
				t.Fatal(r, err)
			}
			sleepCtx, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
			if err := r.Sleep(sleepCtx); err == nil {
				t.Fatal("Sleep returned nil, want the context's error")
			}
			cancel()
			retry, err := l.Once(id, 0).Reserve(ctx, time.Minute, request...)
			if err != nil || !retry.Decision.Allowed {
				t.Fatal(retry, err)
			}
			countByStart[retry.StartAt]++
		}
		for at, n := range countByStart {
			if n > 1 {
				t.Errorf("%d start at %v, want 1, the burst", n, at)
			}
		}
	})
}

// TestTakeUnderAReservedID checks that Take does not admit a request at once that was reserved for a later start.
func TestTakeUnderAReservedID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		l := headgate.New(memory.New(nil), nil)
		request := charges("k", "1 of token-bucket 1/s burst 1")
		for i := range 10 {
			once := l.Once(string(rune('a'+i)), 0)
			if r, err := once.Reserve(ctx, time.Minute, request...); err != nil || !r.Decision.Allowed {
				t.Fatal(r, err)
			}
			var wantErr error // of those that start later
			if i > 0 {
				wantErr = headgate.ErrReused
			}
			if d, err := once.Take(ctx, request...); !errors.Is(err, wantErr) || d.Allowed != (i == 0) {
				t.Errorf("take %d: got %+v, %v; want only the first to start at once, as the burst is 1", i+1, d, err)
			}
		}
	})
}

// TestReserveAgainAfterOneCellWasReset reserves again under an id after one of its two cells was reset. That cell must
// be charged for the start of the whole request, not for the earlier start that it has by itself.
func TestReserveAgainAfterOneCellWasReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		l := headgate.New(memory.New(nil), nil)
		request := charges("k", "1 of token-bucket 1/s burst 1", "1 of token-bucket 1/1m burst 1")
		if err := l.Wait(ctx, request[1]); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Once("x", 0).Reserve(ctx, time.Hour, request...); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Reset(ctx, request[0].Limit, "k"); err != nil {
			t.Fatal(err)
		}
		r, err := l.Once("x", 0).Reserve(ctx, time.Hour, request...)
		if err != nil || !r.Decision.Allowed {
			t.Fatal(r, err)
		}
		time.Sleep(r.Delay())
		if d, err := l.Take(ctx, request[0]); err != nil || d.Allowed {
			t.Errorf("a take at the start of the request: %+v, %v; want a refusal by %s", d, err, request[0].Limit)
		}
	})
}

// TestEmptyID checks that an empty id with the default life returns ErrInvalid.
func TestEmptyID(t *testing.T) {
	ctx := context.Background()
	l := headgate.New(memory.New(nil), nil)
	request := charges("k", "1 of fixed-window 10/1h")
	if _, err := l.Once("", 0).Take(ctx, request...); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("Once(\"\", 0).Take: %v, want ErrInvalid", err)
	}
	if _, err := l.Once("", 0).Reserve(ctx, 0, request...); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("Once(\"\", 0).Reserve: %v, want ErrInvalid", err)
	}
}

// TestReservedIDLivesUntilItsStart reserves again and cancels two hours later, when the id's life of an hour is over
// but the start still lies ahead: the store must still know the id.
func TestReservedIDLivesUntilItsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		l := headgate.New(memory.New(nil), nil)
		request := charges("k", "1 of token-bucket 1/1d burst 1")
		if err := l.Wait(ctx, request...); err != nil {
			t.Fatal(err)
		}
		r, err := l.Once("x", 0).Reserve(ctx, 48*time.Hour, request...)
		if err != nil || !r.Decision.Allowed {
			t.Fatal(r, err)
		}
		time.Sleep(2 * time.Hour) // the start is in 22 h: 1/1d, less 2 h
		if retry, err := l.Once("x", 0).Reserve(ctx, 72*time.Hour, request...); err != nil || !retry.Decision.Replayed {
			t.Errorf("reserved again before the start: %+v, %v; want a replay", retry.Decision, err)
		}
		if returned, err := r.Cancel(ctx); err != nil || returned[0] != headgate.Units(1) {
			t.Errorf("cancelled 22 h before the start: returned %v, %v; want 1", returned, err)
		}
	})
}

// failingLastOpStore is a store that fails the last op of a batch of several while cut is set, as a store over several
// servers does while one of them is away.
type failingLastOpStore struct {
	store.Store
	cut atomic.Bool
}

func (s *failingLastOpStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	n := len(ops)
	if s.cut.Load() && n > 1 {
		outs[n-1] = law.Outcome{Err: store.ErrUnavailable}
		return s.Store.Apply(ctx, ops[:n-1], outs[:n-1])
	}
	return s.Store.Apply(ctx, ops, outs)
}

// TestCancelAgainAfterAPartialFailure cancels again after one of two charges could not be cancelled. The second Cancel
// must not give back the first charge again.
func TestCancelAgainAfterAPartialFailure(t *testing.T) {
	ctx := context.Background()
	m := memory.New(&memory.Config{Clock: newClock("2026-03-01T12:00:00Z").read})
	s := &failingLastOpStore{Store: m}
	l := headgate.New(s, nil)
	request := charges("k", "4 of fixed-window 10/1d", "1 of fixed-window 100/1d")
	if d, err := l.Take(ctx, charges("k", "6 of fixed-window 10/1d")...); err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	r, err := l.Reserve(ctx, 0, request...)
	if err != nil || !r.Decision.Allowed {
		t.Fatal(r, err)
	}
	s.cut.Store(true)
	if _, err := r.Cancel(ctx); err == nil {
		t.Fatal("Cancel returned nil while a part of the store was away, want an error")
	}
	s.cut.Store(false)
	_, err = r.Cancel(ctx)
	if got := inUse(t, headgate.New(m, nil), "fixed-window 10/1d", "k"); got != "6" {
		t.Errorf("%s in use, want the 6 of others (second Cancel: %v)", got, err)
	}
}

// TestAReplayedReservationKeepsItsStart checks that Reserve under a known id returns the first start, even in the past.
func TestAReplayedReservationKeepsItsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		l := headgate.New(memory.New(nil), nil)
		request := charges("k", "1 of token-bucket 1/s burst 1")
		first, err := l.Once("x", 0).Reserve(ctx, time.Minute, request...)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		retry, err := l.Once("x", 0).Reserve(ctx, time.Minute, request...)
		if err != nil || !retry.StartAt.Equal(first.StartAt) {
			t.Errorf("reserved again: start at %v, %v; want %v", retry.StartAt, err, first.StartAt)
		}
	})
}

// TestCancelWhenTheStoreIsFull cancels a reservation of which a full store has forgotten a drained cell. Cancel writes
// nothing for it, and so needs no room and must not fail.
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
	returned, err := r.Cancel(ctx)
	if err != nil || returned[0] != headgate.Units(0) || returned[1] != headgate.Units(1) {
		t.Errorf("Cancel returned %v, %v; want 0 and 1", returned, err)
		_, err := r.Cancel(ctx)
		t.Errorf("second Cancel: %v; %s in use", err, inUse(t, l, "fixed-window 9/1d", "k"))
	}
}

// TestSettleWithAZeroCostMeansOne checks that the zero Cost means 1 in Once.Settle too, as in a charge.
func TestSettleWithAZeroCostMeansOne(t *testing.T) {
	ctx := context.Background()
	l, _ := newExampleLimiter()
	c := headgate.Charge{Limit: headgate.MustParse("fixed-window 5/1h"), Key: "k"}
	job := l.Once("job", 0)
	if d, err := job.Take(ctx, c); err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	if returned, err := job.Settle(ctx, c); err != nil || returned[0] != headgate.Units(0) {
		t.Errorf("taken and settled with the same Charge: returned %v, %v, want 0; %s in use", returned, err,
			inUse(t, l, "fixed-window 5/1h", "k"))
	}
}

// TestCancelAfterOneKeyWasReset cancels a reservation of two charges after the cell of the first was reset. Cancel must
// return ErrUnknownID, and still cancel the second charge.
func TestCancelAfterOneKeyWasReset(t *testing.T) {
	ctx := context.Background()
	l, _ := newExampleLimiter()
	request := charges("k", "1 of fixed-window 5/1h", "1 of fixed-window 9/1h")
	r, err := l.Once("x", 0).Reserve(ctx, 0, request...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Reset(ctx, request[0].Limit, "k"); err != nil {
		t.Fatal(err)
	}
	if returned, err := r.Cancel(ctx); !errors.Is(err, headgate.ErrUnknownID) ||
		inUse(t, l, "fixed-window 9/1h", "k") != "0" {
		t.Errorf("got %v, %v, want ErrUnknownID; %s in use, want 0", returned, err, inUse(t, l, "fixed-window 9/1h", "k"))
	}
}
