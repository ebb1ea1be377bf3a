package guard_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/front/guard"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// TestHalfOfALimitByAShare checks how much half of a limit admits, and when the next unit can pass.
func TestHalfOfALimitByAShare(t *testing.T) {
	const second = 1_000_000
	tokens := law.Params{Kind: law.Bucket, Unit: 10, Capacity: 400, Step: second, Drain: 10}
	for _, c := range []struct {
		name   string
		p      law.Params
		admits int64 // by half of the limit
		retry  int64 // microseconds until a unit more can pass

		ceiling int64 // of the op; half of it holds too
	}{
		{"a token bucket", tokens, 20, 2 * second, 0},
		{"a token bucket that keeps half of it", tokens, 10, 2 * second, 200},
		{"one that keeps all but two", tokens, 1, 2 * second, 20},
		{"one that keeps almost all", tokens, 0, 0, 19},
		{"a window from the first use", law.Params{
			Kind: law.Bucket, Unit: 10, Capacity: 400, Step: second, Drain: 400,
		}, 20, second, 0},
		{"a bucket by the clock", law.Params{
			Kind: law.Bucket, Anchor: law.Epoch, Unit: 10, Capacity: 400, Step: second, Drain: 20,
		}, 20, second, 0},
		{"one of which nothing drains in half", law.Params{
			Kind: law.Bucket, Anchor: law.Epoch, Unit: 10, Capacity: 400, Step: second, Drain: 1,
		}, 0, 0, 0},
		{"one of two", law.Params{Kind: law.Log, Unit: 1, Capacity: 2, Step: 10 * second}, 1, 10 * second, 0},
		{"one of three", law.Params{Kind: law.Log, Unit: 1, Capacity: 3, Step: 10 * second}, 1, 10 * second, 0},
		{"one of one", law.Params{Kind: law.Log, Unit: 1, Capacity: 1, Step: 10 * second}, 0, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			shared := newRemoteStore()
			defer shared.Close()
			a, b := newProcess(shared, nil), newProcess(shared, nil)
			defer a.guard.Close()
			defer b.guard.Close()
			takeOne(t, a, shareLimit)
			takeOne(t, b, shareLimit)
			time.Sleep(10 * time.Minute) // until earlier charges no longer count
			a.conn.fail(errCut)
			c.p.Away = law.AwayShare
			start := (time.Now().UnixMicro()/second + 100) * second
			var admitted int64
			for {
				ops := []law.Op{{
					Verb: law.Take, Cell: law.Cell{Limit: "l", Key: "k"}, Params: c.p, Cost: c.p.Unit, Count: 1, Now: start,
					Ceiling: c.ceiling,
				}}
				outs := make([]law.Outcome, 1)
				err := a.guard.Apply(t.Context(), ops, outs)
				if err != nil && c.admits == 0 && errors.Is(err, store.ErrUnavailable) {
					return
				}
				if err != nil || admitted > c.admits {
					t.Fatalf("%s: got %d admitted, %v", c.name, admitted, err)
				}
				if outs[0].Granted == 0 {
					if admitted != c.admits || outs[0].RetryAt != start+c.retry {
						t.Errorf("%s: got %d admitted, the next after %d us; want %d and %d", c.name, admitted,
							outs[0].RetryAt-start, c.admits, c.retry)
					}
					return
				}
				admitted++
			}
		})
	}
}

// TestANewShareCountsWhenAFullCellIsEmpty checks that a share is used only when earlier charges no longer count.
func TestANewShareCountsWhenAFullCellIsEmpty(t *testing.T) {
	const second = 1_000_000
	bounds := func(steps ...int64) (b [4]int64) { // of the periods around the present
		now := time.Now().UnixMicro()
		b[1] = now - now%second
		b[0], b[2] = b[1]-steps[0]*second, b[1]+steps[1]*second
		b[3] = b[2] + steps[2]*second
		return b
	}
	for _, c := range []struct {
		name  string
		p     law.Params
		steps []int64
		want  time.Duration
	}{
		{"forty steps", law.Params{Kind: law.Bucket, Capacity: 400, Step: second, Drain: 10}, nil, 40 * time.Second},
		{"and a part of one", law.Params{Kind: law.Bucket, Capacity: 401, Step: second, Drain: 10}, nil, 41 * time.Second},
		{"almost one more", law.Params{Kind: law.Bucket, Capacity: 410, Step: second, Drain: 10}, nil, 41 * time.Second},
		{"one step", law.Params{Kind: law.Bucket, Anchor: law.Epoch, Capacity: 400, Step: second, Drain: 400}, nil, time.Second},
		{"two windows", law.Params{Kind: law.Window, Capacity: 400, Step: 30 * second}, nil, time.Minute},
		{"a log", law.Params{Kind: law.Log, Capacity: 400, Step: 30 * second}, nil, 30 * time.Second},
		{"the last period", law.Params{Kind: law.Bucket, Anchor: law.Calendar, Capacity: 400, Step: second, Drain: law.Max}, []int64{90, 60, 61}, 90 * time.Second},
		{"this period", law.Params{Kind: law.Bucket, Anchor: law.Calendar, Capacity: 400, Step: second, Drain: law.Max}, []int64{30, 90, 60}, 90 * time.Second},
		{"the next period", law.Params{Kind: law.Bucket, Anchor: law.Calendar, Capacity: 400, Step: second, Drain: law.Max}, []int64{30, 60, 90}, 90 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			shared := newRemoteStore()
			defer shared.Close()
			p := newProcess(shared, nil)
			defer p.guard.Close()
			takeOne(t, p, shareLimit) // it gets its share at once
			begin := time.Now()
			synctest.Wait()
			p.conn.fail(errCut)
			take := func() error {
				op := law.Op{Verb: law.Take, Cell: law.Cell{Limit: "l", Key: "k"}, Params: c.p, Cost: 1, Count: 1}
				op.Params.Unit, op.Params.Away = 1, law.AwayShare
				if c.steps != nil {
					op.Window = bounds(c.steps...)
				}
				return p.guard.Apply(t.Context(), []law.Op{op}, make([]law.Outcome, 1))
			}
			time.Sleep(c.want - time.Nanosecond)
			if err := take(); !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("%s: before %s: got %v, want the error of the store", c.name, c.want, err)
			}
			time.Sleep(time.Until(begin.Add(c.want)))
			if err := take(); err != nil {
				t.Errorf("%s: after %s: got %v, want it decided", c.name, c.want, err)
			}
		})
	}
}

// TestASmallerShareCountsAtOnce checks that a process that gives half of its share away goes on with the other half.
func TestASmallerShareCountsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := newRemoteStore()
		defer shared.Close()
		a, b := newProcess(shared, nil), newProcess(shared, nil)
		defer a.guard.Close()
		defer b.guard.Close()
		limit := headgate.MustParse("token-bucket 1/s burst 60 away share")
		takeOne(t, a, limit)
		time.Sleep(10 * time.Minute)
		takeOne(t, b, limit)
		time.Sleep(5*time.Second + time.Second/2) // between two beats
		for _, p := range []*process{a, b} {
			if got := p.guard.Stats().Share; got != 0.5 {
				t.Errorf("got share %v, want 0.5", got)
			}
			oldCalls := p.conn.calls.Load()
			time.Sleep(10 * time.Second)
			if got := p.conn.calls.Load() - oldCalls; got != 20 {
				t.Errorf("got %d calls in 10 seconds, want 20, for a share in one lease", got)
			}
			p.conn.fail(errCut)
			if ok, away := takeOne(t, p, limit); ok != (p == a) || ok && !away {
				t.Errorf("got admitted %v by the share, want %v", ok, p == a)
			}
		}
	})
}

// TestSharesAreNeverMoreThanTheWhole sums the shares while processes come, go, and are cut off beyond their leases.
func TestSharesAreNeverMoreThanTheWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := newRemoteStore()
		defer shared.Close()
		var processes []*process
		maxSum := 0.0
		run := func(d time.Duration) {
			for range d / (10 * time.Millisecond) {
				time.Sleep(10 * time.Millisecond)
				synctest.Wait() // or a share may move to another process during the sum
				sum := 0.0
				for _, p := range processes {
					sum += p.guard.Stats().Share
				}
				maxSum = max(maxSum, sum)
			}
		}
		for range 3 {
			p := newProcess(shared, &guard.Config{ShareLife: 20 * time.Second})
			defer p.guard.Close()
			takeOne(t, p, shareLimit)
			processes = append(processes, p)
			run(5 * time.Second)
		}
		processes[0].conn.fail(errCut)
		run(30 * time.Second)
		if got := processes[0].guard.Stats().Share; got != 0 {
			t.Errorf("got share %v after its life, want 0", got)
		}
		processes[0].conn.fail(nil)
		run(10 * time.Second)
		processes[1].guard.Close()
		run(10 * time.Second)
		for _, i := range []int{0, 2} {
			if got := processes[i].guard.Stats().Share; got != 0.5 {
				t.Errorf("process %d: got share %v at last, want 0.5", i, got)
			}
		}
		if maxSum > 1 {
			t.Errorf("got a sum of shares of %v, want 1 at most", maxSum)
		}
	})
}

// TestLeasesOfAShareAreMerged checks that a process that gets the shares of eleven others has at most six leases.
func TestLeasesOfAShareAreMerged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := newRemoteStore()
		defer shared.Close()
		remaining := newProcess(shared, nil)
		defer remaining.guard.Close()
		takeOne(t, remaining, shareLimit)
		var leaving []*process
		for range 11 {
			p := newProcess(shared, nil)
			takeOne(t, p, shareLimit)
			leaving = append(leaving, p)
		}
		waitForShares()
		var maxRate int64
		for i, p := range leaving {
			p.guard.Close()
			waitForShares()
			const units = 720720 // totalUnits of package guard
			if got, want := remaining.guard.Stats().Share, 1/float64(11-i); got != float64(int64(want*units))/units {
				t.Errorf("got share %v with %d others, want %v", got, 10-i, want)
			}
			oldCalls := remaining.conn.calls.Load()
			time.Sleep(10 * time.Second)
			maxRate = max(maxRate, (remaining.conn.calls.Load()-oldCalls)/10)
		}
		// How many leases there are at most is random.
		if maxRate > 7 || maxRate < 4 {
			t.Errorf("got up to %d calls a second, want 4 to 7: for the leases of the share, and for the one of the process",
				maxRate)
		}
	})
}

// TestAShareThatCannotBeGivenBackIsNotUsed has a process whose returns fail.
func TestAShareThatCannotBeGivenBackIsNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := newRemoteStore()
		defer shared.Close()
		a, b := newProcess(shared, &guard.Config{ShareLife: time.Minute}), newProcess(shared, nil)
		defer a.guard.Close()
		defer b.guard.Close()
		takeOne(t, a, shareLimit)
		waitForShares()
		a.conn.failingVerb.Store(uint32(law.Return))
		takeOne(t, b, shareLimit)
		waitForShares()
		if got := a.guard.Stats().Share + b.guard.Stats().Share; got != 0 {
			t.Errorf("got a sum of shares of %v, want 0 until the lease ends", got)
		}
		time.Sleep(time.Minute)
		if gotA, gotB := a.guard.Stats().Share, b.guard.Stats().Share; gotA != 0.5 || gotB != 0.5 {
			t.Errorf("got shares %v and %v when the lease has ended, want 0.5 and 0.5", gotA, gotB)
		}
	})
}
