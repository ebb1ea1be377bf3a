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

// boundMeter is a token bucket. Its level is never above the burst if the admissions keep the bound.
type boundMeter struct {
	rate, burst float64 // rate is in units a second
	level       float64
	lastAt      time.Time
	maxExcess   float64 // the greatest level-burst
}

// admit counts an admission.
func (m *boundMeter) admit(now time.Time) {
	m.level = max(0, m.level-m.rate*now.Sub(m.lastAt).Seconds()) + 1
	m.lastAt = now
	m.maxExcess = max(m.maxExcess, m.level-m.burst)
}

// waitForShares waits until processes have found out their shares.
func waitForShares() { time.Sleep(20 * time.Second) }

// takeOne takes a unit, and reports whether it was allowed, and whether by the fallback.
func takeOne(t *testing.T, p *process, limit headgate.Limit) (allowed, away bool) {
	t.Helper()
	d, err := p.limiter.Allow(t.Context(), limit, "k")
	if err != nil && !errors.Is(err, store.ErrUnavailable) {
		t.Error(err)
	}
	return err == nil && d.Allowed, d.Via == headgate.ViaFallback
}

// TestSharesOfFourProcesses cuts off one to four of four processes: each admits a quarter of the limit.
func TestSharesOfFourProcesses(t *testing.T) {
	for _, notation := range []string{
		"token-bucket 4/s burst 40", "leaky-bucket 4/s capacity 40", "gcra 4/s burst 40", "interval 4/1s burst 40",
		"fixed-window 40/10s", "fixed-window 40/minute", "fixed-window 40/10s from-first",
		"sliding-window 40/10s", "sliding-log 40/10s",
	} {
		for cutOff := 1; cutOff <= 4; cutOff++ {
			synctest.Test(t, func(t *testing.T) {
				limit := headgate.MustParse(notation + " away share")
				shared := newRemoteStore()
				var processes []*process
				for range 4 {
					p := newProcess(shared, nil)
					defer p.guard.Close()
					takeOne(t, p, limit)
					processes = append(processes, p)
				}
				time.Sleep(80 * time.Second) // longer than the longest of these limits counts
				for _, p := range processes {
					if got := p.guard.Stats().Share; got != 0.25 {
						t.Errorf("%s: got share %v, want a quarter", notation, got)
					}
				}
				for _, p := range processes[:cutOff] {
					p.conn.fail(errCut)
				}
				for i, p := range processes[:cutOff] {
					var n int
					for range 30 {
						if ok, away := takeOne(t, p, limit); ok && away {
							n++
						} else if ok {
							t.Errorf("%s: got a decision of a store that is away", notation)
						}
					}
					if n != 10 {
						t.Errorf("%s, %d cut off: process %d: got %d admitted, want a quarter of 40", notation, cutOff, i, n)
					}
				}
				shared.Close()
			})
		}
	}
}

// TestSharesKeepTheBound cuts processes off and connects them again, ends some with and without Close, and starts
// others, while all of them take. Neither the store nor the shares may admit more than the bound.
func TestSharesKeepTheBound(t *testing.T) {
	for seed := range tier.Pick[uint64](4, 12, 100) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 0))
			limit := headgate.MustParse("token-bucket 10/s burst 20 away share")
			shared := newRemoteStore()
			defer shared.Close()
			cfg := &guard.Config{ShareLife: 30 * time.Second}
			byStore := &boundMeter{rate: 10, burst: 20}
			byShare := &boundMeter{rate: 10, burst: 20}
			var running, crashed []*process
			shareCount := 0
			for step := range 3000 {
				switch n := rng.IntN(300); {
				case len(running) < 2 || n == 0 && len(running) < 7:
					running = append(running, newProcess(shared, cfg))
				case n == 1:
					running[0].guard.Close()
					running = running[1:]
				case n == 2: // it crashes: its leases stay
					running[0].conn.fail(errCut)
					crashed, running = append(crashed, running[0]), running[1:]
				case n < 12:
					running[rng.IntN(len(running))].conn.fail(errCut)
				case n < 20:
					running[rng.IntN(len(running))].conn.fail(nil)
				case n == 20 && step%3 == 0:
					for _, p := range running {
						p.conn.fail(errCut)
					}
				case n == 21:
					for _, p := range running {
						p.conn.fail(nil)
					}
				}
				for _, p := range running {
					for range 2 {
						switch ok, away := takeOne(t, p, limit); {
						case ok && away:
							shareCount++
							byShare.admit(time.Now())
						case ok:
							byStore.admit(time.Now())
						}
					}
				}
				time.Sleep(50 * time.Millisecond)
			}
			for _, p := range append(running, crashed...) {
				p.guard.Close()
			}
			if byStore.maxExcess > 1e-6 || byShare.maxExcess > 1e-6 {
				t.Errorf("seed %d: got %.2f admitted above the bound by the store, %.2f by shares", seed, byStore.maxExcess, byShare.maxExcess)
			}
			if shareCount < 100 {
				t.Errorf("seed %d: got %d admitted by shares, want 100 at least", seed, shareCount)
			}
		})
	}
}

// TestANewProcessWaitsForItsShare checks that a new process uses its share only after a full bucket would have drained.
func TestANewProcessWaitsForItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := headgate.MustParse("token-bucket 1/s burst 10 away share")
		shared := newRemoteStore()
		defer shared.Close()
		first := newProcess(shared, nil)
		defer first.guard.Close()
		takeOne(t, first, limit)
		waitForShares()
		if got := first.guard.Stats().Share; got != 1 {
			t.Errorf("the only process: got share %v, want 1", got)
		}
		second := newProcess(shared, nil)
		defer second.guard.Close()
		takeOne(t, second, limit)
		time.Sleep(5 * time.Second) // it has half, but for less than the 10 s in which the bucket drains
		if got := second.guard.Stats().Share; got != 0.5 {
			t.Errorf("got share %v, want a half", got)
		}
		second.conn.fail(errCut)
		if ok, _ := takeOne(t, second, limit); ok {
			t.Error("admitted by a share that another process may have used up")
		}
		time.Sleep(10 * time.Second)
		if ok, away := takeOne(t, second, limit); !ok || !away {
			t.Error("not admitted by a share that was held for long enough")
		}
	})
}

// TestAShareEndsAfterShareLife checks that a process has no share after ShareLife without the store.
func TestAShareEndsAfterShareLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := headgate.MustParse("token-bucket 100/s away share")
		shared := newRemoteStore()
		defer shared.Close()
		p := newProcess(shared, &guard.Config{ShareLife: time.Minute})
		defer p.guard.Close()
		takeOne(t, p, limit)
		waitForShares()
		p.conn.fail(errCut)
		time.Sleep(58 * time.Second)
		if ok, away := takeOne(t, p, limit); !ok || !away {
			t.Error("not admitted before the end of its life")
		}
		time.Sleep(3 * time.Second)
		if ok, _ := takeOne(t, p, limit); ok {
			t.Error("admitted after the end of its life")
		}
		p.conn.fail(nil)
		time.Sleep(2 * time.Second)
		if _, away := takeOne(t, p, limit); away {
			t.Error("2 s after its return: got a fallback decision, want it by the store")
		}
	})
}

// TestCloseGivesTheShareBack checks that the other process gets the share of the closed one.
func TestCloseGivesTheShareBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := headgate.MustParse("token-bucket 1/s away share")
		shared := newRemoteStore()
		defer shared.Close()
		a, b := newProcess(shared, nil), newProcess(shared, nil)
		defer a.guard.Close()
		takeOne(t, a, limit)
		takeOne(t, b, limit)
		waitForShares()
		if got := a.guard.Stats().Share; got != 0.5 {
			t.Errorf("got share %v, want a half", got)
		}
		b.guard.Close()
		time.Sleep(3 * time.Second)
		if got := a.guard.Stats().Share; got != 1 {
			t.Errorf("got share %v, want 1", got)
		}
	})
}

// TestFiguresOfAShare checks the decisions by half of a limit: the limit's capacity, but half of what remains.
func TestFiguresOfAShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := headgate.MustParse("token-bucket 1/s burst 10 away share")
		shared := newRemoteStore()
		defer shared.Close()
		a, b := newProcess(shared, nil), newProcess(shared, nil)
		defer a.guard.Close()
		defer b.guard.Close()
		takeOne(t, a, limit)
		takeOne(t, b, limit)
		waitForShares()
		a.conn.fail(errCut)
		for i := range 6 {
			d, err := a.limiter.Allow(t.Context(), limit, "fresh")
			if err != nil || d.Capacity != 10 || d.Remaining != max(0, int64(4-i)) || d.Allowed != (i < 5) {
				t.Errorf("call %d: got %+v, %v", i, d, err)
			}
			if !d.Allowed && d.RetryAfter != 2*time.Second {
				t.Errorf("got a retry after %s, want 2 s, by half of the rate", d.RetryAfter)
			}
		}
		d, err := a.limiter.Take(t.Context(), headgate.Charge{Limit: limit, Key: "k", Cost: headgate.Units(6)})
		if !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("a cost above the share: got %+v, %v; want the error of the store, which could admit it", d, err)
		}
	})
}

// TestCloseOfTheGuardTakesASecondAtMost closes a process whose store is silent. After Close no goroutine may start.
func TestCloseOfTheGuardTakesASecondAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := headgate.MustParse("token-bucket 1/s away share")
		shared := newRemoteStore()
		defer shared.Close()
		p := newProcess(shared, nil)
		takeOne(t, p, limit)
		waitForShares()
		p.conn.silent.Store(true)
		begin := time.Now()
		p.guard.Close()
		if took := time.Since(begin); took != time.Second {
			t.Errorf("Close took %s, want 1s", took)
		}
		closed := newProcess(shared, nil)
		closed.guard.Close()
		takeOne(t, closed, limit) // a goroutine that it started would not end
	})
}

// TestShareLife checks ShareLife and its default.
func TestShareLife(t *testing.T) {
	for _, c := range []struct{ life, want time.Duration }{
		{0, 10 * time.Minute}, {-1, 10 * time.Minute}, {time.Minute, time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			limit := headgate.MustParse("token-bucket 100/s away share")
			shared := newRemoteStore()
			defer shared.Close()
			p := newProcess(shared, &guard.Config{ShareLife: c.life})
			defer p.guard.Close()
			takeOne(t, p, limit)
			waitForShares()
			p.conn.fail(errCut)
			time.Sleep(c.want - 2*time.Second) // the store answered within the last second
			if got := p.guard.Stats().Share; got != 1 {
				t.Errorf("life %s: got share %v after %s, want 1", c.life, got, c.want-2*time.Second)
			}
			time.Sleep(2 * time.Second)
			if got := p.guard.Stats().Share; got != 0 {
				t.Errorf("life %s: got share %v after %s, want 0", c.life, got, c.want)
			}
		})
	}
}
