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
	runIfChild()
	leaktest.Main(m)
}

// countingStore counts calls of Apply, and credits.
type countingStore struct {
	store.Store
	mu      sync.Mutex
	calls   int
	credits int64  // charged, less those returned
	delay   func() // is called before each batch; nil: none
}

func (s *countingStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if s.delay != nil {
		s.delay()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	err := s.Store.Apply(ctx, ops, outs)
	for i := range ops {
		switch ops[i].Verb {
		case law.Take:
			s.credits += ops[i].Cost * outs[i].Granted
		case law.Return:
			s.credits -= outs[i].Granted
		}
	}
	return err
}

func (*countingStore) Close() error { return nil }

// take takes a cost, and fails the test on an error.
func take(t *testing.T, l *headgate.Limiter, limit headgate.Limit, key string, cost string) headgate.Decision {
	t.Helper()
	d, err := l.Take(context.Background(), headgate.Charge{Limit: limit, Key: key, Cost: headgate.MustCost(cost)})
	if err != nil {
		t.Error(err)
	}
	return d
}

// TestAFastKeyIsServedFromItsPrefetch checks also that a slow key is served by the store alone.
func TestAFastKeyIsServedFromItsPrefetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &countingStore{Store: memory.New(nil)}
		s := prefetch.New(inner)
		l, limit := headgate.New(s, nil), headgate.MustParse("token-bucket 1000/s burst 1000 prefetch 100")
		remaining := int64(1000)
		vias := map[headgate.Via]int{}
		for range 500 {
			time.Sleep(time.Millisecond)
			d := take(t, l, limit, "fast", "1")
			vias[d.Via]++
			if !d.Allowed || d.Remaining < remaining-2 || d.Remaining > 999 {
				t.Fatalf("got %+v, want it allowed with %d to %d remaining", d, remaining-2, 999)
			}
			remaining = d.Remaining
		}
		const maxCalls = 10 // 50 charges a call
		prefetched := vias[headgate.ViaPrefetch]
		if inner.calls > maxCalls || prefetched < 500-maxCalls || s.HandedOut() != int64(prefetched) {
			t.Errorf("got %d calls of the store for 500 charges, want %d at most; %v", inner.calls, maxCalls, vias)
		}
		fastCalls := inner.calls
		for range 10 {
			time.Sleep(2 * time.Second)
			take(t, l, limit, "slow", "1")
		}
		if inner.calls != fastCalls+10 || inner.credits > (500+10+100)*limit.Params().Unit { // 100: a prefetch
			t.Errorf("got %d calls for 10 charges of a slow key, %d credits", inner.calls-fastCalls, inner.credits)
		}
		s.Close()
	})
}

// TestTokensEndWithLifeResetAndBlock checks that tokens are not handed out after their life, a reset or a block.
func TestTokensEndWithLifeResetAndBlock(t *testing.T) {
	for _, name := range []string{"end with their life", "end with a reset", "end with a block"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := prefetch.New(&countingStore{Store: memory.New(nil)})
				l, limit := headgate.New(s, nil), headgate.MustParse("token-bucket 10/s burst 1000 prefetch 100/250ms")
				for range 20 {
					take(t, l, limit, "k", "1")
				}
				if d := take(t, l, limit, "k", "1"); d.Via != headgate.ViaPrefetch {
					t.Fatalf("got %+v, want a local charge", d)
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
					t.Errorf("got %+v, want a decision of the store", d)
				}
				s.Close()
			})
		})
	}
}

func TestTokensOfAWindowEndWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := prefetch.New(&countingStore{Store: memory.New(nil)})
		l, limit := headgate.New(s, nil), headgate.MustParse("fixed-window 100/10s prefetch 50/1m")
		now := time.Now()
		time.Sleep(now.Truncate(10 * time.Second).Add(19 * time.Second).Sub(now)) // a second before a window
		for range 60 {
			take(t, l, limit, "k", "1")
		}
		time.Sleep(time.Second)
		if d := take(t, l, limit, "k", "1"); d.Via != headgate.ViaStore || d.Remaining != 99 {
			t.Errorf("in the next window: got %+v, want a decision of the store, 99 remaining", d)
		}
		s.Close()
	})
}

func TestCloseGivesBackUnusedTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &countingStore{Store: memory.New(nil)}
		s := prefetch.New(inner)
		l, limit := headgate.New(s, nil), headgate.MustParse("token-bucket 1/1h burst 1000 prefetch 100")
		for range 37 {
			take(t, l, limit, "k", "1")
		}
		if inner.credits <= 37*limit.Params().Unit {
			t.Fatalf("got %d credits charged, want those of a prefetch too", inner.credits)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if inner.credits != 37*limit.Params().Unit {
			t.Errorf("got %d credits charged after Close, want 37 times %d", inner.credits, limit.Params().Unit)
		}
	})
}

func TestWaitersShareAFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &countingStore{Store: memory.New(nil), delay: func() { time.Sleep(10 * time.Millisecond) }}
		s := prefetch.New(inner)
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
					t.Errorf("got %+v, want a retry after an hour", d)
				}
			})
		}
		wg.Wait()
		if allowed != 150 || inner.calls > 8 {
			t.Errorf("got %d of 200 allowed by %d calls, want 150 by 8 at most", allowed, inner.calls)
		}
		s.Close()
	})
}

// failingStore fails after a delay, and counts calls.
type failingStore struct {
	store.Store
	calls atomic.Int64
	delay func()
}

func (s *failingStore) Apply(context.Context, []law.Op, []law.Outcome) error {
	s.calls.Add(1)
	s.delay()
	return store.ErrUnavailable
}

func TestWaitersFailWithTheirFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &failingStore{Store: memory.New(nil), delay: func() { time.Sleep(time.Second) }}
		l, limit := headgate.New(prefetch.New(inner), nil), headgate.MustParse("token-bucket 100/s prefetch 50")
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
		if took := time.Since(begin); took != time.Second || inner.calls.Load() != 1 {
			t.Errorf("40 callers failed after %v and %d calls, want 1 s and 1", took, inner.calls.Load())
		}
	})
}

// TestALimitThatBlocksHasNoPrefetch checks that a limit with block is decided by the store, though it has a prefetch.
func TestALimitThatBlocksHasNoPrefetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, limit := headgate.New(prefetch.New(memory.New(nil)), nil),
			headgate.MustParse("token-bucket 10/s burst 10 block 1m prefetch 5")
		for i := range 40 {
			if d := take(t, l, limit, "k", "1"); !d.Allowed || d.Via != headgate.ViaStore {
				t.Fatalf("charge %d: got %+v, want it allowed by the store", i, d)
			}
			if i >= 7 { // the bucket is nearly full: wait for more than a charge takes to drain
				time.Sleep(110 * time.Millisecond)
			}
		}
	})
}

func TestABlockInABatchRefusesTheNextTake(t *testing.T) {
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
			t.Errorf("got %+v, %v; want the take after the block refused", outs[1], err)
		}
	})
}

// TestAChangedLimitGetsNoOldTokens charges two limits of one name at once: none gets tokens of the other.
func TestAChangedLimitGetsNoOldTokens(t *testing.T) {
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
					t.Error("got a token of the other limit")
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkPrefetch(b *testing.B) {
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
