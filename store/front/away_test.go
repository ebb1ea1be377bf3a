package front_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/mysql"
	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/store/redis"
)

// connection is a connection to a store of another process. It can be cut, or silent: then calls wait.
type connection struct {
	store.Store
	store.Inspector
	isCut  atomic.Bool
	silent atomic.Pointer[chan struct{}] // closed when the silence ends; nil: there is none
	delay  func()                        // is called before each answer
}

func newMemory() *memory.Store { return memory.New(&memory.Config{Names: true}) }

// connect returns a connection to a store, with a delay before each answer.
func connect(s *memory.Store, delay func()) *connection {
	return &connection{Store: s, Inspector: s, delay: delay}
}

// silence begins or ends a silence.
func (c *connection) silence(silent bool) {
	if silent {
		end := make(chan struct{})
		c.silent.Store(&end)
	} else if end := c.silent.Swap(nil); end != nil {
		close(*end)
	}
}

func (c *connection) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if c.isCut.Load() {
		return fmt.Errorf("%w: it is cut", store.ErrUnavailable)
	}
	if end := c.silent.Load(); end != nil {
		select {
		case <-*end:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", store.ErrUnknownOutcome, ctx.Err())
		}
	}
	c.delay()
	return c.Store.Apply(ctx, ops, outs)
}

func (c *connection) Close() error { return nil } // other connections use the store

// newStack returns all wrappers around a connection, without a sweeper.
func newStack(c *connection) *front.Store {
	return front.New(c, &front.Config{SweepEvery: -1, Logger: slog.New(slog.DiscardHandler)})
}

// TestDecisionsWhileTheStoreIsAway has sixteen callers take before, while and after their store is away. Each decision
// without the store must come within a second of the deadline, and the last one within a second of the store's return.
func TestDecisionsWhileTheStoreIsAway(t *testing.T) {
	for _, silent := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			conn := connect(newMemory(), func() { time.Sleep(time.Millisecond) })
			s := newStack(conn)
			defer s.Close()
			setAway := conn.isCut.Store
			if silent {
				setAway = conn.silence
			}
			limiter, limit := headgate.New(s, nil), headgate.MustParse("token-bucket 1000000/s away allow")
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var returnedAt, lastByStore, lastFallback time.Time
			var mu sync.Mutex
			fallbacks := 0
			var callers sync.WaitGroup
			for i := range 16 {
				key := strings.Repeat("k", 1+i%4)
				callers.Go(func() {
					for ctx.Err() == nil {
						begin := time.Now()
						d, err := limiter.Allow(t.Context(), limit, key)
						end := time.Now()
						mu.Lock()
						switch {
						case err != nil || !d.Allowed:
							t.Errorf("got %+v, %v; want it allowed", d, err)
						case d.Via == headgate.ViaStore:
							lastByStore = end
						default:
							fallbacks, lastFallback = fallbacks+1, end
							// The caller may have called the store itself until the deadline.
							if took := end.Sub(begin); took > store.InfoOf(s).Deadline+time.Second {
								t.Errorf("silent %v: a decision without the store took %s", silent, took)
							}
						}
						mu.Unlock()
						time.Sleep(10 * time.Millisecond)
					}
				})
			}
			time.Sleep(300 * time.Millisecond)
			setAway(true)
			time.Sleep(2*store.InfoOf(s).Deadline + time.Second)
			setAway(false)
			returnedAt = time.Now()
			time.Sleep(3 * time.Second)
			stop()
			callers.Wait()
			if fallbacks < 100 {
				t.Fatalf("silent %v: got %d decisions without the store, want 100 at least", silent, fallbacks)
			}
			if d := lastFallback.Sub(returnedAt); d > time.Second {
				t.Errorf("silent %v: got a decision without the store %s after its return", silent, d)
			}
			if lastByStore.Before(returnedAt) {
				t.Errorf("silent %v: the store never decided again", silent)
			}
		})
	}
}

// proxiedServers open a server through a proxy that can be cut and made silent.
var proxiedServers = map[string]func(t *testing.T, proxy func(host string) string) (store.Store, error){
	"PostgreSQL": func(t *testing.T, proxy func(string) string) (store.Store, error) {
		return postgres.Open(t.Context(), viaProxy(t, migrated.Postgres(t), proxy), nil)
	},
	"MariaDB": func(t *testing.T, proxy func(string) string) (store.Store, error) {
		return mysql.Open(t.Context(), viaProxy(t, migrated.MariaDB(t), proxy), nil)
	},
	"Redis": func(t *testing.T, proxy func(string) string) (store.Store, error) {
		return redis.Open(t.Context(), viaProxy(t, dbtest.Redis(t), proxy), nil)
	},
}

// viaProxy returns the URL of a server with a proxy in place of its host.
func viaProxy(t *testing.T, server string, proxy func(string) string) string {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = proxy(u.Host)
	return u.String()
}

// TestDecisionsWhileAServerIsAway checks with each driver that the fallback decides while the server is away.
func TestDecisionsWhileAServerIsAway(t *testing.T) {
	t.Parallel()
	for name, open := range proxiedServers {
		for _, silent := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, silent %v", name, silent), func(t *testing.T) {
				t.Parallel()
				var p *dbtest.Proxy
				inner, err := open(t, func(host string) string { p = dbtest.StartProxy(t, host); return p.Addr })
				if err != nil {
					t.Fatal(err)
				}
				s := front.New(inner, &front.Config{SweepEvery: -1, Logger: slog.New(slog.DiscardHandler)})
				defer s.Close()
				setAway := p.Cut
				if silent {
					setAway = p.Silence
				}
				limiter, limit := headgate.New(s, nil), headgate.MustParse("token-bucket 1000000/s away allow")
				// takeUntil has sixteen callers take until each has got a decision of this Via.
				takeUntil := func(want headgate.Via) {
					t.Helper()
					var wg sync.WaitGroup
					for i := range 16 {
						key := strings.Repeat("k", 1+i%4)
						wg.Go(func() {
							ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
							defer cancel()
							for {
								d, err := limiter.Allow(ctx, limit, key)
								if err != nil || !d.Allowed {
									t.Errorf("got %+v, %v; want it allowed", d, err)
									return
								}
								if d.Via == want {
									return
								}
							}
						})
					}
					wg.Wait()
				}
				takeUntil(headgate.ViaStore)
				setAway(true)
				for range 10 {
					takeUntil(headgate.ViaFallback)
				}
				setAway(false)
				takeUntil(headgate.ViaStore)
			})
		}
	}
}

// TestAwayShareOfFourProcesses checks that processes that are cut off admit together no more than the limit.
func TestAwayShareOfFourProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := headgate.MustParse("token-bucket 8/s burst 40 away share")
		shared := newMemory()
		var connections []*connection
		var stacks []*front.Store
		var limiters []*headgate.Limiter
		for range 4 {
			c := connect(shared, func() { time.Sleep(time.Millisecond) })
			s := newStack(c)
			defer s.Close()
			connections, stacks = append(connections, c), append(stacks, s)
			limiters = append(limiters, headgate.New(s, nil))
			// After its first call each process finds out its share.
			if _, err := limiters[len(limiters)-1].Allow(t.Context(), limit, "first"); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(20 * time.Second) // a share counts after the time in which a full bucket drains: 40/8 = 5 s
		for i, s := range stacks {
			if share := s.Stats().Guard.Share; share != 0.25 {
				t.Errorf("stack %d: got share %v, want 0.25", i, share)
			}
		}
		for _, cutOff := range []int{1, 4} {
			for _, c := range connections[:cutOff] {
				c.isCut.Store(true)
			}
			// All processes take a new key for a second.
			begin, byShare, byStore := time.Now(), 0, 0
			var mu sync.Mutex
			var callers sync.WaitGroup
			for _, l := range limiters {
				for range 4 {
					callers.Go(func() {
						for time.Since(begin) < time.Second {
							d, err := l.Allow(t.Context(), limit, fmt.Sprint("cut off: ", cutOff))
							if err != nil && !errors.Is(err, store.ErrUnavailable) {
								t.Error(err)
							}
							mu.Lock()
							if d.Allowed && d.Via == headgate.ViaFallback {
								byShare++
							} else if d.Allowed {
								byStore++
							}
							mu.Unlock()
							time.Sleep(time.Millisecond)
						}
					})
				}
			}
			callers.Wait()
			// In less than a second 11 units pass by a share, a burst of 10 at 2/s, and 47 by the store, 40 at 8/s.
			wantByShare, wantByStore := 11*cutOff, 47
			if cutOff == 4 {
				wantByStore = 0
			}
			if byShare != wantByShare || byStore != wantByStore {
				t.Errorf("%d of 4 cut off: %d by shares, %d by the store, want %d and %d", cutOff, byShare, byStore,
					wantByShare, wantByStore)
			}
			for _, c := range connections[:cutOff] {
				c.isCut.Store(false)
			}
			time.Sleep(2 * time.Second)
		}
	})
}
