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

// TestAShareOfWhatDrainsAtOnce has a part of the capacity, at the limit's own pace.
func TestAShareOfWhatDrainsAtOnce(t *testing.T) {
	const second = 1_000_000
	tokens := law.Params{Kind: law.Bucket, Unit: 10, Capacity: 400, Step: second, Drain: 10}
	for _, c := range []struct {
		name  string
		p     law.Params
		admit int64 // by half of the limit
		retry int64 // microseconds until a unit more can pass

		ceiling int64 // of the op; half of it, too
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
			all := newDistant()
			defer all.Close()
			a, b := newProcess(all, nil), newProcess(all, nil)
			defer a.guard.Close()
			defer b.guard.Close()
			allow(t, a, shared)
			allow(t, b, shared)
			time.Sleep(10 * time.Minute) // for as long as what passed before counts
			a.link.cut(errCut)
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
				if err != nil && c.admit == 0 && errors.Is(err, store.ErrUnavailable) {
					return
				}
				if err != nil || admitted > c.admit {
					t.Fatalf("%s: %d admitted; %v", c.name, admitted, err)
				}
				if outs[0].Granted == 0 {
					if admitted != c.admit || outs[0].RetryAt != start+c.retry {
						t.Errorf("%s: %d admitted, the next after %d us; want %d and %d", c.name, admitted,
							outs[0].RetryAt-start, c.admit, c.retry)
					}
					return
				}
				admitted++
			}
		})
	}
}

// TestAShareCountsWhenAFullCellIsEmpty of what was admitted before this process had it.
func TestAShareCountsWhenAFullCellIsEmpty(t *testing.T) {
	const second = 1_000_000
	bounds := func(steps ...int64) (b [4]int64) { // around the present
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
			all := newDistant()
			defer all.Close()
			p := newProcess(all, nil)
			defer p.guard.Close()
			allow(t, p, shared) // it has its share at once
			begin := time.Now()
			synctest.Wait()
			p.link.cut(errCut)
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
				t.Errorf("%s: before %s: %v", c.name, c.want, err)
			}
			time.Sleep(time.Until(begin.Add(c.want)))
			if err := take(); err != nil {
				t.Errorf("%s: after %s: %v", c.name, c.want, err)
			}
		})
	}
}

// TestAChangedShareCountsAtOnce: a process that gives a part of its share to a new one keeps less at once; the new one
// waits.
func TestAChangedShareCountsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newDistant()
		defer all.Close()
		a, b := newProcess(all, nil), newProcess(all, nil)
		defer a.guard.Close()
		defer b.guard.Close()
		slow := headgate.MustParse("token-bucket 1/s burst 60 away share")
		allow(t, a, slow)
		time.Sleep(10 * time.Minute)
		allow(t, b, slow)
		time.Sleep(5*time.Second + time.Second/2) // between two beats
		for _, p := range []*process{a, b} {
			if got := p.guard.Stats().Share; got != 0.5 {
				t.Errorf("share %v, want 0.5", got)
			}
			before := p.link.asked.Load()
			time.Sleep(10 * time.Second)
			if got := p.link.asked.Load() - before; got != 20 {
				t.Errorf("asked %d times in 10 seconds, want 20: the share is not in one lease", got)
			}
			p.link.cut(errCut)
			if ok, away := allow(t, p, slow); ok != (p == a) || ok && !away {
				t.Errorf("by its share admitted %v, of the old process %v", ok, p == a)
			}
		}
	})
}

// TestSharesAreNeverMoreThanTheWhole while processes come, go, and are cut off for longer than their leases last.
func TestSharesAreNeverMoreThanTheWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newDistant()
		defer all.Close()
		var list []*process
		most := 0.0
		watch := func(d time.Duration) {
			for range d / (10 * time.Millisecond) {
				time.Sleep(10 * time.Millisecond)
				synctest.Wait() // else a part may be given on while they are summed
				sum := 0.0
				for _, p := range list {
					sum += p.guard.Stats().Share
				}
				most = max(most, sum)
			}
		}
		for range 3 {
			p := newProcess(all, &guard.Config{ShareLife: 20 * time.Second})
			defer p.guard.Close()
			allow(t, p, shared)
			list = append(list, p)
			watch(5 * time.Second)
		}
		list[0].link.cut(errCut)
		watch(30 * time.Second)
		if got := list[0].guard.Stats().Share; got != 0 {
			t.Errorf("share %v after its life", got)
		}
		list[0].link.cut(nil)
		watch(10 * time.Second)
		list[1].guard.Close()
		watch(10 * time.Second)
		for _, i := range []int{0, 2} {
			if got := list[i].guard.Stats().Share; got != 0.5 {
				t.Errorf("process %d: share %v at last, want 0.5", i, got)
			}
		}
		if most > 1 {
			t.Errorf("the shares came to %v of the whole", most)
		}
	})
}

// TestPartsOfAShareArePutTogether before a process has more than six leases.
func TestPartsOfAShareArePutTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newDistant()
		defer all.Close()
		stays := newProcess(all, nil)
		defer stays.guard.Close()
		allow(t, stays, shared)
		var others []*process
		for range 11 {
			p := newProcess(all, nil)
			allow(t, p, shared)
			others = append(others, p)
		}
		settle()
		var most int64
		for i, p := range others {
			p.guard.Close()
			settle()
			if got, want := stays.guard.Stats().Share, 1/float64(11-i); got != float64(int64(want*720720))/720720 {
				t.Errorf("share %v with %d others, want %v", got, 10-i, want)
			}
			before := stays.link.asked.Load()
			time.Sleep(10 * time.Second)
			most = max(most, (stays.link.asked.Load()-before)/10)
		}
		// When beats fall, and so how many leases there are at most, is random.
		if most > 7 || most < 4 {
			t.Errorf("asked up to %d times a second, want 4 to 7: for some leases of the share, and one to be alive", most)
		}
	})
}

// TestAShareThatCannotBeGivenBackIsNotUsed has a store that takes nothing back.
func TestAShareThatCannotBeGivenBackIsNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newDistant()
		defer all.Close()
		a, b := newProcess(all, &guard.Config{ShareLife: time.Minute}), newProcess(all, nil)
		defer a.guard.Close()
		defer b.guard.Close()
		allow(t, a, shared)
		settle()
		a.link.lacks.Store(uint32(law.Return))
		allow(t, b, shared)
		settle()
		if got := a.guard.Stats().Share + b.guard.Stats().Share; got != 0 {
			t.Errorf("shares of %v, want none: all of it is lost until the lease ends", got)
		}
		time.Sleep(time.Minute)
		if ofA, ofB := a.guard.Stats().Share, b.guard.Stats().Share; ofA != 0.5 || ofB != 0.5 {
			t.Errorf("shares %v and %v when the lease has ended, want 0.5 and 0.5", ofA, ofB)
		}
	})
}
