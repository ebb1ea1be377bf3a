package guard_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/front/guard"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store"
)

// meter is a token bucket that is never more than full if what passes keeps a bound.
type meter struct {
	rate, burst float64 // a second, at once
	level       float64
	last        time.Time
	worst       float64 // of level-burst
}

func (m *meter) pass(now time.Time) {
	m.level = max(0, m.level-m.rate*now.Sub(m.last).Seconds()) + 1
	m.last = now
	m.worst = max(m.worst, m.level-m.burst)
}

// settle lets time pass in which processes find their shares.
func settle() { time.Sleep(20 * time.Second) }

func allow(t *testing.T, p *process, limit headgate.Limit) (allowed, away bool) {
	t.Helper()
	d, err := p.limiter.Allow(t.Context(), limit, "k")
	if err != nil && !errors.Is(err, store.ErrUnavailable) {
		t.Error(err)
	}
	return err == nil && d.Allowed, d.Via == headgate.ViaFallback
}

// TestSharesOfFourProcesses cuts all four off, or three, or one.
func TestSharesOfFourProcesses(t *testing.T) {
	for _, notation := range []string{
		"token-bucket 4/s burst 40", "leaky-bucket 4/s capacity 40", "gcra 4/s burst 40", "interval 4/1s burst 40",
		"fixed-window 40/10s", "fixed-window 40/minute", "fixed-window 40/10s from-first",
		"sliding-window 40/10s", "sliding-log 40/10s",
	} {
		for cut := 1; cut <= 4; cut++ {
			synctest.Test(t, func(t *testing.T) {
				limit := headgate.MustParse(notation + " away share")
				all := newDistant()
				var list []*process
				for range 4 {
					p := newProcess(all, nil)
					defer p.guard.Close()
					allow(t, p, limit)
					list = append(list, p)
				}
				time.Sleep(80 * time.Second) // for as long as the longest of these limits counts, and some more
				for _, p := range list {
					if got := p.guard.Stats().Share; got != 0.25 {
						t.Errorf("%s: share %v, want a quarter", notation, got)
					}
				}
				for _, p := range list[:cut] {
					p.link.cut(errCut)
				}
				for i, p := range list[:cut] {
					var n int
					for range 30 {
						if ok, away := allow(t, p, limit); ok && away {
							n++
						} else if ok {
							t.Errorf("%s: answered by a store that is away", notation)
						}
					}
					if n != 10 {
						t.Errorf("%s, %d cut off: process %d admitted %d at once, want a quarter of 40", notation, cut, i, n)
					}
				}
				all.Close()
			})
		}
	}
}

// TestSharesKeepTheBound cuts processes off and lets them reach the store again, ends some with and without
// Close, and starts others, while all of them ask all the time.
func TestSharesKeepTheBound(t *testing.T) {
	for seed := range tier.Pick[uint64](4, 12, 100) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 0))
			limit := headgate.MustParse("token-bucket 10/s burst 20 away share")
			all := newDistant()
			defer all.Close()
			cfg := &guard.Config{ShareLife: 30 * time.Second}
			byStore := &meter{rate: 10, burst: 20 + 1}
			byShare := &meter{rate: 10, burst: 20 + 1}
			var list, gone []*process
			shared := 0
			for step := range 3000 {
				switch n := rng.IntN(300); {
				case len(list) < 2 || n == 0 && len(list) < 7:
					list = append(list, newProcess(all, cfg))
				case n == 1:
					list[0].guard.Close()
					list = list[1:]
				case n == 2: // it crashes: nobody asks it any more, and its leases stay
					list[0].link.cut(errCut)
					gone, list = append(gone, list[0]), list[1:]
				case n < 12:
					list[rng.IntN(len(list))].link.cut(errCut)
				case n < 20:
					list[rng.IntN(len(list))].link.cut(nil)
				case n == 20 && step%3 == 0:
					for _, p := range list {
						p.link.cut(errCut)
					}
				case n == 21:
					for _, p := range list {
						p.link.cut(nil)
					}
				}
				for _, p := range list {
					for range 2 {
						switch ok, away := allow(t, p, limit); {
						case ok && away:
							shared++
							byShare.pass(time.Now())
						case ok:
							byStore.pass(time.Now())
						}
					}
				}
				time.Sleep(50 * time.Millisecond)
			}
			for _, p := range append(list, gone...) {
				p.guard.Close()
			}
			if byStore.worst > 1e-6 || byShare.worst > 1e-6 {
				t.Errorf("seed %d: the store admitted %.2f too many, shares %.2f", seed, byStore.worst, byShare.worst)
			}
			if shared < 100 {
				t.Errorf("seed %d: nothing was tested: %d were admitted by shares", seed, shared)
			}
		})
	}
}

// TestAProcessThatIsNewHasNoShare of what others hold, and of what they held a moment ago.
func TestAProcessThatIsNewHasNoShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := headgate.MustParse("token-bucket 1/s burst 10 away share")
		all := newDistant()
		defer all.Close()
		first := newProcess(all, nil)
		defer first.guard.Close()
		allow(t, first, limit)
		settle()
		if got := first.guard.Stats().Share; got != 1 {
			t.Errorf("share %v of the only process, want 1", got)
		}
		second := newProcess(all, nil)
		defer second.guard.Close()
		allow(t, second, limit)
		time.Sleep(5 * time.Second) // it has half by now, for less than the 10 s in which the bucket drains
		if got := second.guard.Stats().Share; got != 0.5 {
			t.Errorf("share %v, want a half", got)
		}
		second.link.cut(errCut)
		if ok, _ := allow(t, second, limit); ok {
			t.Error("admitted by a share that another process may have used up")
		}
		time.Sleep(10 * time.Second)
		if ok, away := allow(t, second, limit); !ok || !away {
			t.Error("not admitted by a share that was held for long enough")
		}
	})
}

// TestAShareEnds when the store has not answered for its life.
func TestAShareEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := headgate.MustParse("token-bucket 100/s away share")
		all := newDistant()
		defer all.Close()
		p := newProcess(all, &guard.Config{ShareLife: time.Minute})
		defer p.guard.Close()
		allow(t, p, limit)
		settle()
		p.link.cut(errCut)
		time.Sleep(58 * time.Second)
		if ok, away := allow(t, p, limit); !ok || !away {
			t.Error("not admitted before the end of its life")
		}
		time.Sleep(3 * time.Second)
		if ok, _ := allow(t, p, limit); ok {
			t.Error("admitted after the end of its life")
		}
		p.link.cut(nil)
		time.Sleep(2 * time.Second)
		if _, away := allow(t, p, limit); away {
			t.Error("2 s after its return the store did not decide")
		}
	})
}

// TestCloseGivesTheShareBack to the processes that stay.
func TestCloseGivesTheShareBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := headgate.MustParse("token-bucket 1/s away share")
		all := newDistant()
		defer all.Close()
		a, b := newProcess(all, nil), newProcess(all, nil)
		defer a.guard.Close()
		allow(t, a, limit)
		allow(t, b, limit)
		settle()
		if got := a.guard.Stats().Share; got != 0.5 {
			t.Errorf("share %v, want a half", got)
		}
		b.guard.Close()
		time.Sleep(3 * time.Second)
		if got := a.guard.Stats().Share; got != 1 {
			t.Errorf("share %v, want 1", got)
		}
	})
}

// TestFiguresOfAShare are those of the part that this process has.
func TestFiguresOfAShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := headgate.MustParse("token-bucket 1/s burst 10 away share")
		all := newDistant()
		defer all.Close()
		a, b := newProcess(all, nil), newProcess(all, nil)
		defer a.guard.Close()
		defer b.guard.Close()
		allow(t, a, limit)
		allow(t, b, limit)
		settle()
		a.link.cut(errCut)
		for i := range 6 {
			d, err := a.limiter.Allow(t.Context(), limit, "fresh")
			if err != nil || d.Capacity != 10 || d.Remaining != max(0, int64(4-i)) || d.Allowed != (i < 5) {
				t.Errorf("call %d: %+v, %v", i, d, err)
			}
			if !d.Allowed && d.RetryAfter != 2*time.Second {
				t.Errorf("at half the rate a token comes in 2 s, not in %s", d.RetryAfter)
			}
		}
		d, err := a.limiter.Take(t.Context(), headgate.Charge{Limit: limit, Key: "k", Cost: headgate.Units(6)})
		if !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("a cost above the share: %+v, %v, want the store's error: the store could admit it", d, err)
		}
	})
}

// TestCloseTakesASecondAtMost when the store is silent, and nothing begins after it.
func TestCloseTakesASecondAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := headgate.MustParse("token-bucket 1/s away share")
		all := newDistant()
		defer all.Close()
		p := newProcess(all, nil)
		allow(t, p, limit)
		settle()
		p.link.silent.Store(true)
		begin := time.Now()
		p.guard.Close()
		if took := time.Since(begin); took != time.Second {
			t.Errorf("Close took %s, want 1s", took)
		}
		never := newProcess(all, nil)
		never.guard.Close()
		allow(t, never, limit) // a goroutine that it started would not end
	})
}

// TestTheShareLastsTenMinutes unless the Config says otherwise.
func TestTheShareLastsTenMinutes(t *testing.T) {
	for _, c := range []struct{ life, want time.Duration }{
		{0, 10 * time.Minute}, {-1, 10 * time.Minute}, {time.Minute, time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			limit := headgate.MustParse("token-bucket 100/s away share")
			all := newDistant()
			defer all.Close()
			p := newProcess(all, &guard.Config{ShareLife: c.life})
			defer p.guard.Close()
			allow(t, p, limit)
			settle()
			p.link.cut(errCut)
			time.Sleep(c.want - 2*time.Second) // the store answered within the last second
			if got := p.guard.Stats().Share; got != 1 {
				t.Errorf("life %s: share %v after %s, want 1", c.life, got, c.want-2*time.Second)
			}
			time.Sleep(2 * time.Second)
			if got := p.guard.Stats().Share; got != 0 {
				t.Errorf("life %s: share %v after %s, want 0", c.life, got, c.want)
			}
		})
	}
}
