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

// line is the way to a store of another process, which can be cut or silent. What was sent on a silent one arrives
// when that ends.
type line struct {
	store.Store
	store.Inspector
	cut    atomic.Bool
	silent atomic.Pointer[chan struct{}] // closed when it ends; nil: it is not silent
	pause  func()                        // until an answer comes
}

func newMemory() *memory.Store { return memory.New(&memory.Config{Names: true}) }

// lineTo returns a line to a store, which waits like that for each answer.
func lineTo(s *memory.Store, pause func()) *line { return &line{Store: s, Inspector: s, pause: pause} }

func (l *line) silence(silent bool) {
	if silent {
		end := make(chan struct{})
		l.silent.Store(&end)
	} else if end := l.silent.Swap(nil); end != nil {
		close(*end)
	}
}

func (l *line) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if l.cut.Load() {
		return fmt.Errorf("%w: it is cut", store.ErrUnavailable)
	}
	if end := l.silent.Load(); end != nil {
		select {
		case <-*end:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", store.ErrUnknownOutcome, ctx.Err())
		}
	}
	l.pause()
	return l.Store.Apply(ctx, ops, outs)
}

func (l *line) Close() error { return nil } // others use the store

// newStack returns a stack that looks for a store at the end of a line.
func newStack(l *line) *front.Store {
	return front.New(l, &front.Config{SweepEvery: -1, Logger: slog.New(slog.DiscardHandler)})
}

// TestAStoreThatGoesAwayAndComesBack has sixteen callers ask before, while and after their store is
// away: each decision is there within a second of its deadline, and by the store soon after its return.
func TestAStoreThatGoesAwayAndComesBack(t *testing.T) {
	for _, silent := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			far := lineTo(newMemory(), func() { time.Sleep(time.Millisecond) })
			s := newStack(far)
			defer s.Close()
			away := far.cut.Store
			if silent {
				away = far.silence
			}
			limiter, limit := headgate.New(s, nil), headgate.MustParse("token-bucket 1000000/s away allow")
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var back, byStore, last time.Time
			var mu sync.Mutex
			without := 0
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
							t.Errorf("%+v, %v", d, err)
						case d.Via == headgate.ViaStore:
							byStore = end
						default:
							without, last = without+1, end
							// A caller that finds no other waiting calls the store itself.
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
			away(true)
			time.Sleep(2*store.InfoOf(s).Deadline + time.Second)
			away(false)
			back = time.Now()
			time.Sleep(3 * time.Second)
			stop()
			callers.Wait()
			if without < 100 {
				t.Fatalf("silent %v: nothing was tested: %d decisions without the store", silent, without)
			}
			if late := last.Sub(back); late > time.Second {
				t.Errorf("silent %v: %s after its return the store did not decide", silent, late)
			}
			if byStore.Before(back) {
				t.Errorf("silent %v: the store never decided again", silent)
			}
		})
	}
}

// behind opens a server through a proxy that can be cut and made silent.
var behind = map[string]func(t *testing.T, proxy func(host string) string) (store.Store, error){
	"PostgreSQL": func(t *testing.T, proxy func(string) string) (store.Store, error) {
		return postgres.Open(t.Context(), proxied(t, migrated.Postgres(t), proxy), nil)
	},
	"MariaDB": func(t *testing.T, proxy func(string) string) (store.Store, error) {
		return mysql.Open(t.Context(), proxied(t, migrated.MariaDB(t), proxy), nil)
	},
	"Redis": func(t *testing.T, proxy func(string) string) (store.Store, error) {
		return redis.Open(t.Context(), proxied(t, dbtest.Redis(t), proxy), nil)
	},
}

// proxied returns the URL of a server with a proxy in place of its host.
func proxied(t *testing.T, server string, proxy func(string) string) string {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = proxy(u.Host)
	return u.String()
}

// TestAServerThatGoesAwayAndComesBack is about the drivers: callers of a server that is cut off or silent are answered
// without it, and by it when it is back.
func TestAServerThatGoesAwayAndComesBack(t *testing.T) {
	t.Parallel()
	for name, open := range behind {
		for _, silent := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, silent %v", name, silent), func(t *testing.T) {
				t.Parallel()
				var p *dbtest.Swallower
				inner, err := open(t, func(host string) string { p = dbtest.Swallow(t, host); return p.Addr })
				if err != nil {
					t.Fatal(err)
				}
				s := front.New(inner, &front.Config{SweepEvery: -1, Logger: slog.New(slog.DiscardHandler)})
				defer s.Close()
				away := p.Cut
				if silent {
					away = p.Silence
				}
				limiter, limit := headgate.New(s, nil), headgate.MustParse("token-bucket 1000000/s away allow")
				// Sixteen at once ask until an answer comes so.
				answered := func(want headgate.Via) {
					t.Helper()
					var all sync.WaitGroup
					for i := range 16 {
						key := strings.Repeat("k", 1+i%4)
						all.Go(func() {
							ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
							defer cancel()
							for {
								d, err := limiter.Allow(ctx, limit, key)
								if err != nil || !d.Allowed {
									t.Errorf("%+v, %v", d, err)
									return
								}
								if d.Via == want {
									return
								}
							}
						})
					}
					all.Wait()
				}
				answered(headgate.ViaStore)
				away(true)
				for range 10 {
					answered(headgate.ViaFallback)
				}
				away(false)
				answered(headgate.ViaStore)
			})
		}
	}
}

// TestFourServersShare cuts off one, and all four, of four stacks over one store: what they admit without it is
// no more than the limit.
func TestFourServersShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := headgate.MustParse("token-bucket 8/s burst 40 away share")
		shared := newMemory()
		var lines []*line
		var stacks []*front.Store
		var limiters []*headgate.Limiter
		for range 4 {
			l := lineTo(shared, func() { time.Sleep(time.Millisecond) })
			s := newStack(l)
			defer s.Close()
			lines, stacks, limiters = append(lines, l), append(stacks, s), append(limiters, headgate.New(s, nil))
			// Each asks, so it looks for a share.
			if _, err := limiters[len(limiters)-1].Allow(t.Context(), limit, "first"); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(20 * time.Second) // they find their shares, which count when a full bucket would have drained
		for i, s := range stacks {
			if share := s.Stats().Guard.Share; share != 0.25 {
				t.Errorf("stack %d: the share is %v", i, share)
			}
		}
		for _, n := range []int{1, 4} {
			for _, l := range lines[:n] {
				l.cut.Store(true)
			}
			// All ask for a second about a new key.
			begin, byShare, byStore := time.Now(), 0, 0
			var mu sync.Mutex
			var callers sync.WaitGroup
			for _, l := range limiters {
				for range 4 {
					callers.Go(func() {
						for time.Since(begin) < time.Second {
							d, err := l.Allow(t.Context(), limit, fmt.Sprint("cut off: ", n))
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
			const most = 40 + 8 + 1
			if t.Logf("%d of 4 cut off: %d by shares, %d by the store", n, byShare, byStore); byShare > most ||
				byStore > most || byShare < 10*n || (byStore < 40) != (n == 4) {
				t.Errorf("%d of 4 cut off: %d by shares, %d by the store, want at most %d each", n, byShare, byStore, most)
			}
			for _, l := range lines[:n] {
				l.cut.Store(false)
			}
			time.Sleep(2 * time.Second)
		}
	})
}
