package grpclimit_test

import (
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/grpclimit"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/store/sqlite"
)

// TestExactlyAsManyAsTheLimitAdmits calls two servers that share a store, 64 times at once: of a database, each has
// connections of its own.
func TestExactlyAsManyAsTheLimitAdmits(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T) func() (store.Store, error){
		"memory": func(*testing.T) func() (store.Store, error) {
			s := memory.New(nil)
			return func() (store.Store, error) { return s, nil }
		},
		"sqlite": func(t *testing.T) func() (store.Store, error) {
			url := "sqlite:" + filepath.Join(t.TempDir(), "calls.db")
			return func() (store.Store, error) { return sqlite.Open(t.Context(), url, nil) }
		},
		"postgres": func(t *testing.T) func() (store.Store, error) {
			dsn := migrated.Postgres(t)
			return func() (store.Store, error) { return postgres.Open(t.Context(), dsn, nil) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var limiters [2]*headgate.Limiter
			next := open(t)
			for i := range limiters {
				s, err := next()
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { s.Close() })
				if m, ok := store.As[store.Migrator](s); ok && i == 0 && name == "sqlite" {
					if _, err := m.Migrate(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				limiters[i] = headgate.New(s, &headgate.Config{Timeout: time.Minute})
			}
			exactly(t, limiters)
		})
	}
}

// exactly makes 64 calls, and then 64 streams, at a limit of 20.
func exactly(t *testing.T, limiters [2]*headgate.Limiter) {
	t.Helper()
	for name, call := range map[string]func(*far) error{
		"unary":  func(f *far) error { _, _, err := f.call(t.Context()); return err },
		"stream": func(f *far) error { _, _, err := f.talk(t.Context(), 2); return err },
	} {
		limit := named(name, "fixed-window 20/1h from-first")
		var servers [2]*far
		for i, l := range limiters {
			servers[i] = (&far{}).start(t, []grpc.ServerOption{
				grpc.UnaryInterceptor(grpclimit.UnaryServer(l, limit, grpclimit.ByPeer)),
				grpc.StreamInterceptor(grpclimit.StreamServer(l, limit, grpclimit.ByPeer)),
			})
		}
		var all sync.WaitGroup
		var passed, refused atomic.Int64
		for i := range 64 {
			all.Go(func() {
				switch err := call(servers[i%2]); status.Code(err) {
				case codes.OK:
					passed.Add(1)
				case codes.ResourceExhausted:
					refused.Add(1)
				default:
					t.Error(name, err)
				}
			})
		}
		all.Wait()
		served := servers[0].served.Load() + servers[1].served.Load()
		if passed.Load() != 20 || refused.Load() != 44 || served != 20 {
			t.Errorf("%s: %d passed, %d were refused, %d were served; want 20, 44 and 20", name, passed.Load(),
				refused.Load(), served)
		}
		if n := used(t, limiters[0], limit, "192.0.2.1"); n != "20" {
			t.Errorf("%s: %s units are charged", name, n)
		}
	}
}
