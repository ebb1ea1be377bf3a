package prefetch_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/front/prefetch"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

func TestMain(m *testing.M) {
	if child() {
		return
	}
	leaktest.Main(m)
}

// till is a memory store that several nodes share, and that counts.
type till struct {
	store.Store
	mu    sync.Mutex
	asked int
	taken int64  // credits charged, less those returned
	pause func() // before each batch; nil: there is none
}

func (c *till) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if c.pause != nil {
		c.pause()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	err := c.Store.Apply(ctx, ops, outs)
	for i := range ops {
		switch ops[i].Verb {
		case law.Take:
			c.taken += ops[i].Cost * outs[i].Granted
		case law.Return:
			c.taken -= outs[i].Granted
		}
	}
	return err
}

func (*till) Close() error { return nil }

// take takes from a node, and fails the test on errors.
func take(t *testing.T, l *headgate.Limiter, limit headgate.Limit, key string, cost string) headgate.Decision {
	t.Helper()
	d, err := l.Take(context.Background(), headgate.Charge{Limit: limit, Key: key, Cost: headgate.MustCost(cost)})
	if err != nil {
		t.Error(err)
	}
	return d
}

func TestAFastKeyIsServedFromItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &till{Store: memory.New(nil)}
		s := prefetch.New(c)
		l, limit := headgate.New(s, nil), headgate.MustParse("token-bucket 1000/s burst 1000 prefetch 100")
		remaining := int64(1000)
		vias := map[headgate.Via]int{}
		for range 500 {
			time.Sleep(time.Millisecond)
			d := take(t, l, limit, "fast", "1")
			vias[d.Via]++
			if !d.Allowed || d.Remaining < remaining-2 || d.Remaining > 999 {
				t.Fatalf("%+v", d)
			}
			remaining = d.Remaining
		}
		if c.asked > 500/50 || vias[headgate.ViaPrefetch] < 490 || s.Handed() != int64(vias[headgate.ViaPrefetch]) {
			t.Errorf("the store was asked %d times for 500 charges; %v", c.asked, vias)
		}
		asked := c.asked
		for range 10 {
			time.Sleep(2 * time.Second)
			take(t, l, limit, "slow", "1")
		}
		if c.asked != asked+10 || c.taken > (510+100)*limit.Params().Unit {
			t.Errorf("a slow key took more than it used: %d credits", c.taken)
		}
		s.Close()
	})
}

func TestUnusedTokens(t *testing.T) {
	for _, name := range []string{"end with their life", "end with a reset", "end with a block"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := prefetch.New(&till{Store: memory.New(nil)})
				l, limit := headgate.New(s, nil), headgate.MustParse("token-bucket 10/s burst 1000 prefetch 100/250ms")
				for range 20 {
					take(t, l, limit, "k", "1")
				}
				if d := take(t, l, limit, "k", "1"); d.Via != headgate.ViaPrefetch {
					t.Fatalf("%+v", d)
				}
				var err error
				switch name {
				case "end with their life":
					time.Sleep(250 * time.Millisecond)
				case "end with a reset":
					_, err = l.Reset(t.Context(), limit, "k")
				default:
					_, err = l.Block(t.Context(), limit, "k", time.Minute, "")
				}
				if err != nil {
					t.Error(err)
				}
				if d := take(t, l, limit, "k", "1"); d.Via != headgate.ViaStore {
					t.Errorf("%+v", d)
				}
				s.Close()
			})
		})
	}
}

func TestTokensOfAWindowEndWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := prefetch.New(&till{Store: memory.New(nil)})
		l, limit := headgate.New(s, nil), headgate.MustParse("fixed-window 100/10s prefetch 50/1m")
		now := time.Now()
		time.Sleep(now.Truncate(10 * time.Second).Add(19 * time.Second).Sub(now)) // a second before the next
		for range 60 {
			take(t, l, limit, "k", "1")
		}
		time.Sleep(time.Second)
		if d := take(t, l, limit, "k", "1"); d.Via != headgate.ViaStore || d.Remaining != 99 {
			t.Errorf("in the next window: %+v", d)
		}
		s.Close()
	})
}

func TestCloseGivesBackWhatIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &till{Store: memory.New(nil)}
		s := prefetch.New(c)
		l, limit := headgate.New(s, nil), headgate.MustParse("token-bucket 1/1h burst 1000 prefetch 100")
		for range 37 {
			take(t, l, limit, "k", "1")
		}
		if c.taken <= 37*limit.Params().Unit {
			t.Fatalf("no prefetch: %d credits", c.taken)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if c.taken != 37*limit.Params().Unit {
			t.Errorf("%d credits stay charged for 37 of %d", c.taken, limit.Params().Unit)
		}
	})
}

func TestWaitersShareAFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &till{Store: memory.New(nil), pause: func() { time.Sleep(10 * time.Millisecond) }}
		s := prefetch.New(c)
		l, limit := headgate.New(s, nil), headgate.MustParse("token-bucket 1/1h burst 150 prefetch 50")
		var mu sync.Mutex
		allowed := 0
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() {
				d := take(t, l, limit, "k", "1")
				mu.Lock()
				defer mu.Unlock()
				if d.Allowed {
					allowed++
				} else if d.RetryAfter < 59*time.Minute {
					t.Errorf("%+v", d)
				}
			})
		}
		wg.Wait()
		if allowed != 150 || c.asked > 8 {
			t.Errorf("%d of 200 were allowed, want 150; the store was asked %d times", allowed, c.asked)
		}
		s.Close()
	})
}

// down is a store that fails after a while.
type down struct {
	store.Store
	asked atomic.Int64
	pause func()
}

func (d *down) Apply(context.Context, []law.Op, []law.Outcome) error {
	d.asked.Add(1)
	d.pause()
	return store.ErrUnavailable
}

func TestWaitersFailWithTheirFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &down{Store: memory.New(nil), pause: func() { time.Sleep(time.Second) }}
		l, limit := headgate.New(prefetch.New(d), nil), headgate.MustParse("token-bucket 100/s prefetch 50")
		begin := time.Now()
		var wg sync.WaitGroup
		for range 40 {
			wg.Go(func() {
				if _, err := l.Allow(context.Background(), limit, "k"); !errors.Is(err, store.ErrUnavailable) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(begin); took != time.Second || d.asked.Load() != 1 {
			t.Errorf("40 callers failed after %v, the store was asked %d times", took, d.asked.Load())
		}
	})
}

func TestALimitThatBlocksHasNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, limit := headgate.New(prefetch.New(memory.New(nil)), nil),
			headgate.MustParse("token-bucket 10/s burst 10 block 1m prefetch 5")
		for i := range 40 {
			if d := take(t, l, limit, "k", "1"); !d.Allowed || d.Via != headgate.ViaStore {
				t.Fatalf("charge %d: %+v", i, d)
			}
			if i >= 7 {
				time.Sleep(110 * time.Millisecond)
			}
		}
	})
}

func TestABlockInABatchComesBeforeTheTakeAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := prefetch.New(memory.New(nil))
		l, limit := headgate.New(s, nil), headgate.MustParse("token-bucket 1/1h burst 1000 prefetch 100")
		for range 9 {
			take(t, l, limit, "k", "1")
		}
		ops := []law.Op{
			{
				Verb: law.Block, Group: 1, Cell: law.Cell{Limit: limit.Name(), Key: "k"}, Params: limit.Params(),
				TTL: 60_000_000,
			},
			{
				Verb: law.Take, Group: 2, Cell: law.Cell{Limit: limit.Name(), Key: "k"}, Params: limit.Params(),
				Cost: limit.Params().Unit, Count: 1,
			},
		}
		outs := make([]law.Outcome, 2)
		if err := s.Apply(context.Background(), ops, outs); err != nil || outs[1].Granted != 0 {
			t.Errorf("%+v, %v", outs[1], err)
		}
	})
}

// TestAChangedLimitHasALeaseOfItsOwn asks under two limits of one name.
func TestAChangedLimitHasALeaseOfItsOwn(t *testing.T) {
	t.Parallel()
	var limits []headgate.Limit
	for _, notation := range []string{
		"token-bucket 1000000/s burst 1000000 prefetch 1000",
		"token-bucket 7/3s burst 21 prefetch 20",
	} {
		limit, err := headgate.ParseNamed("n", notation)
		if err != nil {
			t.Fatal(err)
		}
		limits = append(limits, limit)
	}
	s := prefetch.New(memory.New(nil))
	var wg sync.WaitGroup
	for i := range 8 {
		p := limits[i%2].Params()
		wg.Go(func() {
			outs := make([]law.Outcome, 1)
			for n := range 5000 {
				op := law.Op{
					Verb: law.Take, Group: 1, Cell: law.Cell{Limit: "n", Key: fmt.Sprint(n % 4)}, Params: p,
					Cost: p.Unit, Count: 1,
				}
				if err := s.Apply(context.Background(), []law.Op{op}, outs); err != nil {
					t.Error(err)
				}
				if outs[0].Via == law.ViaPrefetch && outs[0].State.Unit != p.Unit {
					t.Error("paid out of a prefetch of other parameters")
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkLease(b *testing.B) {
	s := prefetch.New(memory.New(nil))
	l, limit := headgate.New(s, nil), headgate.MustParse("token-bucket 1000000000/s burst 1000000000 prefetch 1%")
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		ctx := context.Background()
		for pb.Next() {
			if d, err := l.Allow(ctx, limit, "k"); err != nil || !d.Allowed {
				b.Error(d, err)
			}
		}
	})
}
