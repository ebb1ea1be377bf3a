package guard_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/front/guard"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// distant is a store that does not show that it is in this process.
type distant struct{ memory *memory.Store }

func newDistant() distant { return distant{memory.New(&memory.Config{Names: true})} }

func (d distant) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	return d.memory.Apply(ctx, ops, outs)
}

func (d distant) Sweep(ctx context.Context, max int) (int, error) { return d.memory.Sweep(ctx, max) }

func (d distant) Close() error { return d.memory.Close() }

func quiet(c *guard.Config) *guard.Config {
	if c == nil {
		c = &guard.Config{}
	}
	c.Logger = slog.New(slog.DiscardHandler)
	return c
}

// link is the way of one process to a store that others use too. It can be cut, or made silent.
type link struct {
	distant
	fault  atomic.Pointer[error]
	silent atomic.Bool
	asked  atomic.Int64
	slow   func(law.Cell) bool // such a cell is not answered before the context ends
	hold   chan struct{}       // if not nil, answers come when it is closed
	lacks  atomic.Uint32       // ops of this verb fail
}

func (l *link) cut(err error) {
	if err == nil {
		l.fault.Store(nil)
		return
	}
	l.fault.Store(&err)
}

func (l *link) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	l.asked.Add(1)
	if l.silent.Load() || l.slow != nil && l.slow(ops[0].Cell) {
		<-ctx.Done()
		return fmt.Errorf("%w: %w", store.ErrUnknownOutcome, ctx.Err())
	}
	if l.hold != nil {
		<-l.hold
	}
	if err := l.fault.Load(); err != nil {
		return *err
	}
	if uint32(ops[0].Verb) == l.lacks.Load() {
		return errCut
	}
	return l.distant.Apply(ctx, ops, outs)
}

func (l *link) Entries(ctx context.Context, cell law.Cell, n int) ([]law.Entry, error) {
	if err := l.fault.Load(); err != nil {
		return nil, *err
	}
	return l.memory.Entries(ctx, cell, n)
}

func (l *link) Cells(context.Context, store.Query) ([]store.Cell, int64, error) {
	return nil, 0, store.ErrUnsupported
}

func (l *link) KeyCounts(context.Context) ([]store.KeyCount, error) { return nil, store.ErrUnsupported }

func (l *link) Close() error { return nil } // others use it

var errCut = fmt.Errorf("%w: the cable is cut", store.ErrUnavailable)

// process shares a store with others.
type process struct {
	link    *link
	guard   *guard.Store
	limiter *headgate.Limiter
}

func newProcess(shared distant, cfg *guard.Config) *process {
	p := &process{link: &link{distant: shared}}
	p.guard = guard.New(p.link, quiet(cfg))
	p.limiter = headgate.New(p.guard, nil)
	return p
}

func TestEachPolicyAnswersAsItSays(t *testing.T) {
	for _, tt := range []struct {
		limits  []string
		fault   error
		allowed bool // else the error of the store
	}{
		{[]string{"token-bucket 1/s"}, errCut, false},
		{[]string{"token-bucket 1/s away deny"}, errCut, false},
		{[]string{"token-bucket 1/s away allow"}, errCut, true},
		{[]string{"token-bucket 1/s away share"}, errCut, false}, // it has none yet
		{[]string{"token-bucket 1/s away allow", "fixed-window 1/1m away allow"}, errCut, true},
		{[]string{"token-bucket 1/s away allow", "fixed-window 1/1m"}, errCut, false},
		{[]string{"sliding-log 1/1m away allow"}, errCut, true},
		{[]string{"token-bucket 1/s away allow"}, fmt.Errorf("%w: a standby", store.ErrReadOnly), true},
		{[]string{"token-bucket 1/s away allow"}, fmt.Errorf("%w: the answer is lost", store.ErrUnknownOutcome), true},
		{[]string{"token-bucket 1/s away allow"}, fmt.Errorf("%w: no rights", store.ErrSetup), false},
		{[]string{"token-bucket 1/s away allow"}, fmt.Errorf("%w: too many keys", store.ErrFull), false},
		{[]string{"token-bucket 1/s away allow"}, store.ErrClosed, false},
	} {
		t.Run(fmt.Sprint(tt.limits, tt.fault), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newProcess(newDistant(), nil)
				defer p.guard.Close()
				p.link.cut(tt.fault)
				var charges []headgate.Charge
				for _, l := range tt.limits {
					charges = append(charges, headgate.Charge{Limit: headgate.MustParse(l), Key: "k"})
				}
				d, err := p.limiter.Take(t.Context(), charges...)
				switch {
				case tt.allowed && (err != nil || !d.Allowed || d.Via != headgate.ViaFallback):
					t.Errorf("%+v, %v", d, err)
				case !tt.allowed && (!errors.Is(err, tt.fault) || d.Allowed):
					t.Errorf("%+v, %v, want the error of the store", d, err)
				}
			})
		})
	}
}

// TestLastingRequestsAreNotAnsweredWithoutTheStore: they are settled, released or started later.
func TestLastingRequestsAreNotAnsweredWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(newDistant(), nil)
		defer p.guard.Close()
		p.link.cut(errCut)
		c := headgate.Charge{Limit: headgate.MustParse("token-bucket 1/s away allow"), Key: "k"}
		if _, err := p.limiter.Once("id", 0).Take(t.Context(), c); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("with an id: %v", err)
		}
		if _, err := p.limiter.Reserve(t.Context(), time.Second, c); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("reserve: %v", err)
		}
		if _, err := p.limiter.Reset(t.Context(), c.Limit, "k"); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("reset: %v", err)
		}
	})
	if _, err := headgate.Parse("concurrency 1 ttl 1s away allow"); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("a lease without a store: %v", err)
	}
}

// TestTheBreaker asks a store that is away only now and then, and goes back to it soon.
func TestTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(newDistant(), nil)
		defer p.guard.Close()
		limit := headgate.MustParse("token-bucket 1000/s away allow")
		take := func() headgate.Decision {
			d, err := p.limiter.Allow(t.Context(), limit, "k")
			if err != nil {
				t.Error(err)
			}
			return d
		}
		p.link.cut(errCut)
		for range 100 {
			take()
		}
		if n := p.link.asked.Load(); n != 5 {
			t.Errorf("asked %d times before the breaker opened, want 5", n)
		}
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			take()
		}
		if n := p.link.asked.Load() - 5; n < 18 || n > 20 {
			t.Errorf("asked %d times in ten seconds, want twice a second", n)
		}
		if st := p.guard.Stats(); !st.Away || st.Degraded != 200 {
			t.Errorf("%+v", st)
		}
		p.link.cut(nil)
		time.Sleep(600 * time.Millisecond)
		if d := take(); d.Via != headgate.ViaStore {
			t.Errorf("600 ms after its return the store was not asked: %+v", d)
		}
		if p.guard.Stats().Away {
			t.Error("the breaker did not close")
		}
	})
}

// TestDeadlines asks a store that is silent.
func TestDeadlines(t *testing.T) {
	for _, tt := range []struct {
		limit string
		cfg   *guard.Config
		want  time.Duration
	}{
		{"token-bucket 1/s away allow", nil, guard.DefaultDeadline},
		{"token-bucket 1/s away allow deadline 70ms", nil, 70 * time.Millisecond},
		{"token-bucket 1/s away allow deadline 3s", nil, 3 * time.Second},
		{"token-bucket 1/s away allow", &guard.Config{Deadline: time.Second}, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newProcess(newDistant(), tt.cfg)
			defer p.guard.Close()
			p.link.silent.Store(true)
			for i := range 6 {
				begin := time.Now()
				d, err := p.limiter.Allow(t.Context(), headgate.MustParse(tt.limit), "k")
				want := tt.want
				if i == 5 { // the breaker is open
					want = 0
				}
				if took := time.Since(begin); took != want || err != nil || d.Via != headgate.ViaFallback {
					t.Errorf("%s, call %d: %+v, %v after %s, want %s", tt.limit, i, d, err, took, want)
				}
			}
		})
	}
}

// TestALockedRowHoldsUpNoOther has many callers wait for one key that is not answered.
func TestALockedRowHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(newDistant(), nil)
		defer p.guard.Close()
		p.link.slow = func(c law.Cell) bool { return c.Key == "locked" }
		limit := headgate.MustParse("token-bucket 1000000/s away allow")
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				for range 10 {
					if d, err := p.limiter.Allow(t.Context(), limit, "locked"); err != nil || d.Via != headgate.ViaFallback {
						t.Errorf("locked: %+v, %v", d, err)
					}
				}
			})
		}
		for range 2500 {
			time.Sleep(time.Millisecond)
			begin := time.Now()
			d, err := p.limiter.Allow(t.Context(), limit, "free")
			if took := time.Since(begin); err != nil || d.Via != headgate.ViaStore || took > 0 {
				t.Errorf("free: %+v, %v after %s", d, err, took)
			}
		}
		wg.Wait()
	})
}

// TestACallerThatLeavesIsNotAnswered tells a caller's own end from that of the store.
func TestACallerThatLeavesIsNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(newDistant(), nil)
		defer p.guard.Close()
		p.link.silent.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		d, err := p.limiter.Allow(ctx, headgate.MustParse("token-bucket 1/s away allow"), "k")
		if !errors.Is(err, context.Canceled) || d.Allowed {
			t.Errorf("%+v, %v", d, err)
		}
		if st := p.guard.Stats(); st.Away || st.Degraded != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// TestWaitersWaitForTheStore, whatever the limit's policy for an absent store is.
func TestWaitersWaitForTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(newDistant(), nil)
		defer p.guard.Close()
		p.link.silent.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		begin := time.Now()
		err := p.limiter.Wait(ctx, headgate.Charge{Limit: headgate.MustParse("fixed-window 1/1s away allow"), Key: "k"})
		if took := time.Since(begin); err == nil || took != 3*time.Second {
			t.Errorf("%v after %s", err, took)
		}
	})
}

// TestAFullDiskIsReportedWhileTheStoreIsNotCalled too.
func TestAFullDiskIsReportedWhileTheStoreIsNotCalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(newDistant(), nil)
		defer p.guard.Close()
		p.link.cut(fmt.Errorf("%w: disk error 7", store.ErrNoSpace))
		text := ""
		for range 20 {
			_, err := p.limiter.Allow(t.Context(), headgate.MustParse("token-bucket 1/s"), "k")
			if !errors.Is(err, store.ErrNoSpace) {
				t.Fatalf("%v, want ErrNoSpace", err)
			}
			text = err.Error()
		}
		if !strings.Contains(text, "it was not asked") {
			t.Errorf("the store was asked 20 times: %s", text)
		}
	})
}
