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

// remoteStore is a store that hides that it is in this process.
type remoteStore struct{ memory *memory.Store }

func newRemoteStore() remoteStore { return remoteStore{memory.New(&memory.Config{Names: true})} }

func (s remoteStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	return s.memory.Apply(ctx, ops, outs)
}

func (s remoteStore) Sweep(ctx context.Context, maxCells int) (int, error) {
	return s.memory.Sweep(ctx, maxCells)
}

func (s remoteStore) Close() error { return s.memory.Close() }

// silentConfig makes a configuration, or a new one if c is nil, discard the lines of the log, and returns it.
func silentConfig(c *guard.Config) *guard.Config {
	if c == nil {
		c = &guard.Config{}
	}
	c.Logger = slog.New(slog.DiscardHandler)
	return c
}

// connection is the connection of one process to a shared store. It can fail, or be silent.
type connection struct {
	remoteStore
	err         atomic.Pointer[error]
	silent      atomic.Bool // calls return when their context ends
	calls       atomic.Int64
	isSlow      func(law.Cell) bool // calls for such a cell return when their context ends; nil: none
	hold        chan struct{}       // calls wait until it is closed; nil: they do not wait
	failingVerb atomic.Uint32       // ops of this verb fail
}

// fail lets calls fail with an error, or succeed again if it is nil.
func (c *connection) fail(err error) {
	if err == nil {
		c.err.Store(nil)
		return
	}
	c.err.Store(&err)
}

func (c *connection) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	c.calls.Add(1)
	if c.silent.Load() || c.isSlow != nil && c.isSlow(ops[0].Cell) {
		<-ctx.Done()
		return fmt.Errorf("%w: %w", store.ErrUnknownOutcome, ctx.Err())
	}
	if c.hold != nil {
		<-c.hold
	}
	if err := c.err.Load(); err != nil {
		return *err
	}
	if uint32(ops[0].Verb) == c.failingVerb.Load() {
		return errCut
	}
	return c.remoteStore.Apply(ctx, ops, outs)
}

func (c *connection) Entries(ctx context.Context, cell law.Cell, n int) ([]law.Entry, error) {
	if err := c.err.Load(); err != nil {
		return nil, *err
	}
	return c.memory.Entries(ctx, cell, n)
}

func (c *connection) Cells(context.Context, store.Query) ([]store.Cell, int64, error) {
	return nil, 0, store.ErrUnsupported
}

func (c *connection) KeyCounts(context.Context) ([]store.KeyCount, error) {
	return nil, store.ErrUnsupported
}

func (c *connection) Close() error { return nil } // other connections use the store

var errCut = fmt.Errorf("%w: the cable is cut", store.ErrUnavailable)

// process is a process with its connection to a shared store.
type process struct {
	conn    *connection
	guard   *guard.Store
	limiter *headgate.Limiter
}

func newProcess(shared remoteStore, cfg *guard.Config) *process {
	p := &process{conn: &connection{remoteStore: shared}}
	p.guard = guard.New(p.conn, silentConfig(cfg))
	p.limiter = headgate.New(p.guard, nil)
	return p
}

func TestDecisionsByAwayPolicy(t *testing.T) {
	for _, tt := range []struct {
		limits  []string
		err     error // of the store
		allowed bool  // else the error of the store is returned
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
		t.Run(fmt.Sprint(tt.limits, tt.err), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newProcess(newRemoteStore(), nil)
				defer p.guard.Close()
				p.conn.fail(tt.err)
				var charges []headgate.Charge
				for _, l := range tt.limits {
					charges = append(charges, headgate.Charge{Limit: headgate.MustParse(l), Key: "k"})
				}
				d, err := p.limiter.Take(t.Context(), charges...)
				switch {
				case tt.allowed && (err != nil || !d.Allowed || d.Via != headgate.ViaFallback):
					t.Errorf("got %+v, %v; want it admitted by the fallback", d, err)
				case !tt.allowed && (!errors.Is(err, tt.err) || d.Allowed):
					t.Errorf("got %+v, %v; want the error of the store", d, err)
				}
			})
		})
	}
}

// TestLastingRequestsHaveNoFallback checks that requests with an id, reservations and resets get the store's error.
func TestLastingRequestsHaveNoFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(newRemoteStore(), nil)
		defer p.guard.Close()
		p.conn.fail(errCut)
		c := headgate.Charge{Limit: headgate.MustParse("token-bucket 1/s away allow"), Key: "k"}
		if _, err := p.limiter.Once("id", 0).Take(t.Context(), c); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("with an id: got %v, want %v", err, store.ErrUnavailable)
		}
		if _, err := p.limiter.Reserve(t.Context(), time.Second, c); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("Reserve: got %v, want %v", err, store.ErrUnavailable)
		}
		if _, err := p.limiter.Reset(t.Context(), c.Limit, "k"); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("Reset: got %v, want %v", err, store.ErrUnavailable)
		}
	})
	if _, err := headgate.Parse("concurrency 1 ttl 1s away allow"); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("concurrency with an away policy: got %v, want %v", err, headgate.ErrInvalid)
	}
}

// TestTheBreakerSparesAnAwayStore counts the calls of a store, and checks that it decides 600 ms after its return.
func TestTheBreakerSparesAnAwayStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(newRemoteStore(), nil)
		defer p.guard.Close()
		limit := headgate.MustParse("token-bucket 1000/s away allow")
		take := func() headgate.Decision {
			d, err := p.limiter.Allow(t.Context(), limit, "k")
			if err != nil {
				t.Error(err)
			}
			return d
		}
		p.conn.fail(errCut)
		for range 100 {
			take()
		}
		if n := p.conn.calls.Load(); n != 5 {
			t.Errorf("got %d calls before the breaker opened, want 5", n)
		}
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			take()
		}
		if n := p.conn.calls.Load() - 5; n < 18 || n > 20 {
			t.Errorf("got %d calls in ten seconds, want two a second", n)
		}
		if st := p.guard.Stats(); !st.Away || st.Degraded != 200 {
			t.Errorf("got %+v, want it away, 200 degraded", st)
		}
		p.conn.fail(nil)
		time.Sleep(600 * time.Millisecond)
		if d := take(); d.Via != headgate.ViaStore {
			t.Errorf("600 ms after its return: got %+v, want it by the store", d)
		}
		if p.guard.Stats().Away {
			t.Error("the breaker is open, want it closed")
		}
	})
}

// TestDeadlines checks after which time a silent store is away, by the Config and by the limit.
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
			p := newProcess(newRemoteStore(), tt.cfg)
			defer p.guard.Close()
			p.conn.silent.Store(true)
			for i := range 6 {
				begin := time.Now()
				d, err := p.limiter.Allow(t.Context(), headgate.MustParse(tt.limit), "k")
				want := tt.want
				if i == 5 { // the breaker is open
					want = 0
				}
				if took := time.Since(begin); took != want || err != nil || d.Via != headgate.ViaFallback {
					t.Errorf("%s, call %d: got %+v, %v after %s, want %s", tt.limit, i, d, err, took, want)
				}
			}
		})
	}
}

// TestALockedRowDelaysNoOtherKey checks that another key is decided at once while 50 callers wait for a locked one.
func TestALockedRowDelaysNoOtherKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(newRemoteStore(), nil)
		defer p.guard.Close()
		p.conn.isSlow = func(c law.Cell) bool { return c.Key == "locked" }
		limit := headgate.MustParse("token-bucket 1000000/s away allow")
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				for range 10 {
					if d, err := p.limiter.Allow(t.Context(), limit, "locked"); err != nil || d.Via != headgate.ViaFallback {
						t.Errorf("locked: got %+v, %v; want it by the fallback", d, err)
					}
				}
			})
		}
		for range 2500 {
			time.Sleep(time.Millisecond)
			begin := time.Now()
			d, err := p.limiter.Allow(t.Context(), limit, "free")
			if took := time.Since(begin); err != nil || d.Via != headgate.ViaStore || took > 0 {
				t.Errorf("free: got %+v, %v after %s; want it by the store at once", d, err, took)
			}
		}
		wg.Wait()
	})
}

// TestACancelledCallHasNoFallback checks that a cancelled call gets its context's error, and no fallback.
func TestACancelledCallHasNoFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(newRemoteStore(), nil)
		defer p.guard.Close()
		p.conn.silent.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		d, err := p.limiter.Allow(ctx, headgate.MustParse("token-bucket 1/s away allow"), "k")
		if !errors.Is(err, context.Canceled) || d.Allowed {
			t.Errorf("got %+v, %v; want %v", d, err, context.Canceled)
		}
		if st := p.guard.Stats(); st.Away || st.Degraded != 0 {
			t.Errorf("got %+v, want no degraded decision", st)
		}
	})
}

// TestWaitersWaitForTheStore checks that Wait waits for a silent store until its deadline, although of "away allow".
func TestWaitersWaitForTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(newRemoteStore(), nil)
		defer p.guard.Close()
		p.conn.silent.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		begin := time.Now()
		err := p.limiter.Wait(ctx, headgate.Charge{Limit: headgate.MustParse("fixed-window 1/1s away allow"), Key: "k"})
		if took := time.Since(begin); err == nil || took != 3*time.Second {
			t.Errorf("got %v after %s, want an error after 3 s", err, took)
		}
	})
}

// TestAFullDiskIsReportedWhileTheStoreIsNotCalled checks that the errors of an open breaker say so.
func TestAFullDiskIsReportedWhileTheStoreIsNotCalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(newRemoteStore(), nil)
		defer p.guard.Close()
		p.conn.fail(fmt.Errorf("%w: disk error 7", store.ErrNoSpace))
		text := ""
		for range 20 {
			_, err := p.limiter.Allow(t.Context(), headgate.MustParse("token-bucket 1/s"), "k")
			if !errors.Is(err, store.ErrNoSpace) {
				t.Fatalf("got %v, want ErrNoSpace", err)
			}
			text = err.Error()
		}
		if !strings.Contains(text, "it was not asked") {
			t.Errorf("got %s, want that the store was not asked", text)
		}
	})
}
