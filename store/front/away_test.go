package front_test

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
	"github.com/headgate/headgate/store/mysql"
	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/store/redis"
)

// behind opens a server through a proxy that can be cut and made silent.
var behind = map[string]func(t *testing.T, proxy func(host string) string) store.Store{
	"PostgreSQL": func(t *testing.T, proxy func(string) string) store.Store {
		dsn := dbtest.Postgres(t)
		openPostgres(t, dsn, 0).Close() // which migrates
		u, err := url.Parse(dsn)
		if err != nil {
			t.Fatal(err)
		}
		u.Host = proxy(u.Host)
		s, err := postgres.Open(t.Context(), u.String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	},
	"MariaDB": func(t *testing.T, proxy func(string) string) store.Store {
		dsn := dbtest.MariaDB(t)
		direct, err := mysql.Open(t.Context(), dsn, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer direct.Close()
		if _, err := direct.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(dsn)
		if err != nil {
			t.Fatal(err)
		}
		u.Host = proxy(u.Host)
		s, err := mysql.Open(t.Context(), u.String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	},
	"Redis": func(t *testing.T, proxy func(string) string) store.Store {
		u, err := url.Parse(dbtest.Redis(t))
		if err != nil {
			t.Fatal(err)
		}
		u.Host = proxy(u.Host)
		s, err := redis.Open(t.Context(), u.String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	},
}

// TestAStoreThatGoesAwayAndComesBack has sixteen callers ask before, while and after their store is
// away: each decision is there within its deadline, and by the store soon after its return.
func TestAStoreThatGoesAwayAndComesBack(t *testing.T) {
	for name, open := range behind {
		for _, how := range []string{"cut", "silent"} {
			t.Run(name+" "+how, func(t *testing.T) {
				var p *dbtest.Swallower
				s := front.New(open(t, func(host string) string { p = dbtest.Swallow(t, host); return p.Addr }),
					&front.Config{SweepEvery: -1, Logger: slog.New(slog.DiscardHandler)})
				defer s.Close()
				away := p.Cut
				if how == "silent" {
					away = p.Silence
				}
				goAndComeBack(t, headgate.New(s, nil), s.Deadline(), away)
			})
		}
	}
}

// busy is how much later an answer may be on a machine with other work. On a quiet one it is 50 ms.
const busy = time.Second

func goAndComeBack(t *testing.T, l *headgate.Limiter, deadline time.Duration, away func(bool)) {
	limit := headgate.MustParse("token-bucket 1000000/s away allow")
	ctx, stop := context.WithCancel(t.Context())
	var mu sync.Mutex
	var took []time.Duration // of decisions without the store
	var byStore, gone, back, last time.Time
	var callers sync.WaitGroup
	for i := range 16 {
		key := strings.Repeat("k", 1+i%4)
		callers.Go(func() {
			for ctx.Err() == nil {
				begin := time.Now()
				d, err := l.Allow(ctx, limit, key)
				if ctx.Err() != nil {
					return
				}
				end := time.Now()
				mu.Lock()
				switch {
				case err != nil || !d.Allowed:
					t.Errorf("%+v, %v", d, err)
				case d.Via == headgate.ViaStore:
					byStore = end
				default:
					took, last = append(took, end.Sub(begin)), end
				}
				mu.Unlock()
				time.Sleep(time.Millisecond)
			}
		})
	}
	time.Sleep(300 * time.Millisecond)
	away(true)
	gone = time.Now()
	time.Sleep(2*deadline + time.Second)
	away(false)
	back = time.Now()
	time.Sleep(3 * time.Second)
	stop()
	callers.Wait()
	slices.Sort(took)
	if len(took) < 100 {
		t.Fatalf("nothing was tested: %d decisions without the store", len(took))
	}
	p999 := took[len(took)-1-len(took)/1000]
	t.Logf("%d decisions without the store, p99.9 %s; the last one %s after its return", len(took), p999,
		last.Sub(back))
	if most := deadline + busy; p999 > most {
		t.Errorf("p99.9 of decisions without the store is %s, want at most %s", p999, most)
	}
	if late := last.Sub(back); late > 2*time.Second+busy {
		t.Errorf("%s after its return the store did not decide", late)
	}
	if byStore.Before(back) || gone.IsZero() {
		t.Error("the store never decided again")
	}
}

// TestFourServersShare cuts off all four, and one, of four stacks over one database: what they admit without it is
// no more than the limit.
func TestFourServersShare(t *testing.T) {
	limit := headgate.MustParse("token-bucket 8/s burst 40 away share")
	dsn := dbtest.Postgres(t)
	openPostgres(t, dsn, 0).Close()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	host := u.Host
	var proxies []*dbtest.Swallower
	var limiters []*headgate.Limiter
	var stacks []*front.Store
	for range 4 {
		p := dbtest.Swallow(t, host)
		u.Host = p.Addr
		pg, err := postgres.Open(t.Context(), u.String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		s := front.New(pg, &front.Config{SweepEvery: -1, Logger: slog.New(slog.DiscardHandler)})
		defer s.Close()
		proxies, stacks, limiters = append(proxies, p), append(stacks, s), append(limiters, headgate.New(s, nil))
	}
	for _, l := range limiters { // each asks, so it looks for a share
		begin := time.Now()
		for _, err := l.Allow(t.Context(), limit, "first"); err != nil; _, err = l.Allow(t.Context(), limit, "first") {
			if time.Since(begin) > time.Minute { // a slow machine takes longer than the deadline at first
				t.Fatal(err)
			}
		}
	}
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		var shares []float64
		for _, s := range stacks {
			shares = append(shares, s.Stats().Guard.Share)
		}
		if slices.Equal(shares, []float64{0.25, 0.25, 0.25, 0.25}) {
			break
		}
		if time.Since(begin) > time.Minute {
			t.Fatalf("the shares are %v", shares)
		}
	}
	time.Sleep(6 * time.Second) // a share counts when a full bucket would have drained
	for _, cut := range [][]*dbtest.Swallower{proxies[:1], proxies} {
		cutOff(t, cut, limiters, limit, "of "+u.Host+string(rune('a'+len(cut))))
		time.Sleep(2 * time.Second)
	}
}

// cutOff cuts some of four stacks off for a second, in which all ask about a new key of a limit.
func cutOff(
	t *testing.T, cut []*dbtest.Swallower, limiters []*headgate.Limiter, limit headgate.Limit, key string,
) {
	t.Helper()
	for _, p := range cut {
		p.Cut(true)
	}
	begin, byShare, byStore := time.Now(), 0, 0
	var mu sync.Mutex
	asks := func() bool { // for longer, if a machine that pauses leaves no time to use the shares up
		mu.Lock()
		defer mu.Unlock()
		took := time.Since(begin)
		return took < time.Second || took < time.Minute && byShare < 40*len(cut)/4
	}
	var callers sync.WaitGroup
	for _, l := range limiters {
		for range 4 {
			callers.Go(func() {
				for asks() {
					d, err := l.Allow(t.Context(), limit, key)
					if class := store.Class(err); err != nil && !errors.Is(class, store.ErrUnavailable) &&
						!errors.Is(class, store.ErrUnknownOutcome) {
						t.Error(err)
					}
					mu.Lock()
					if d.Allowed && d.Via == headgate.ViaFallback {
						byShare++
					} else if d.Allowed {
						byStore++
					}
					mu.Unlock()
				}
			})
		}
	}
	callers.Wait()
	most := 40 + int(8*time.Since(begin).Seconds()) + 1
	t.Logf("%d of 4 cut off: %d by shares, %d by the store, at most %d each", len(cut), byShare, byStore, most)
	if byShare > most || byStore > most || byShare < 40*len(cut)/4 {
		t.Errorf("%d of 4 cut off: %d by shares, %d by the store, want at most %d each", len(cut), byShare,
			byStore, most)
	}
	for _, p := range cut {
		p.Cut(false)
	}
}
