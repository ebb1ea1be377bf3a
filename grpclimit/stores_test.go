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

// TestTwoServersAdmitExactlyTheLimit checks that two servers that share a store admit 20 of 64 calls that come at once.
func TestTwoServersAdmitExactlyTheLimit(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T) func() (store.Store, error){
		"memory": func(*testing.T) func() (store.Store, error) {
			s := memory.New(nil)
			return func() (store.Store, error) { return s, nil }
		},
		"sqlite": func(t *testing.T) func() (store.Store, error) {
			storeURL := "sqlite:" + filepath.Join(t.TempDir(), "calls.db")
			return func() (store.Store, error) { return sqlite.Open(t.Context(), storeURL, nil) }
		},
		"postgres": func(t *testing.T) func() (store.Store, error) {
			dsn := migrated.Postgres(t)
			return func() (store.Store, error) { return postgres.Open(t.Context(), dsn, nil) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var limiters [2]*headgate.Limiter
			openShared := open(t)
			for i := range limiters {
				s, err := openShared()
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
			checkAdmissions(t, limiters)
		})
	}
}

// checkAdmissions makes 64 calls at a limit of 20, and 64 streams at another one, half of them at each server.
func checkAdmissions(t *testing.T, limiters [2]*headgate.Limiter) {
	t.Helper()
	for name, call := range map[string]func(*testServer) error{
		"unary":  func(srv *testServer) error { _, _, err := srv.call(t.Context()); return err },
		"stream": func(srv *testServer) error { _, _, err := srv.stream(t.Context(), 2); return err },
	} {
		limit := namedLimit(name, "fixed-window 20/1h from-first")
		var servers [2]*testServer
		for i, l := range limiters {
			servers[i] = (&testServer{}).start(t, []grpc.ServerOption{
				grpc.UnaryInterceptor(grpclimit.UnaryServer(l, limit, grpclimit.ByPeer)),
				grpc.StreamInterceptor(grpclimit.StreamServer(l, limit, grpclimit.ByPeer)),
			})
		}
		var wg sync.WaitGroup
		var admissions, refusals atomic.Int64
		for i := range 64 {
			wg.Go(func() {
				switch err := call(servers[i%2]); status.Code(err) {
				case codes.OK:
					admissions.Add(1)
				case codes.ResourceExhausted:
					refusals.Add(1)
				default:
					t.Error(name, err)
				}
			})
		}
		wg.Wait()
		served := servers[0].served.Load() + servers[1].served.Load()
		if admissions.Load() != 20 || refusals.Load() != 44 || served != 20 {
			t.Errorf("%s: got %d admitted, %d refused, %d served; want 20, 44 and 20", name, admissions.Load(),
				refusals.Load(), served)
		}
		if n := usedUnits(t, limiters[0], limit, "192.0.2.1"); n != "20" {
			t.Errorf("%s: got %s units charged, want 20", name, n)
		}
	}
}
