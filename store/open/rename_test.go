package open_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/open"
)

// renameLoad counts charges and what passes while the limit is renamed.
type renameLoad struct {
	keys     int
	passed   []atomic.Int32 // by key
	charges  atomic.Int64
	renameAt chan struct{} // closed when each key was charged twice on average
	version  atomic.Int64  // that has the new name; 0: not yet
}

// capacity is how often each key may pass.
const capacity = 3

// renameServer is what a server has: a store with the wrappers, and a catalog.
type renameServer struct {
	limits  *catalog.Catalog
	limiter *headgate.Limiter
}

func newRenameServer(t *testing.T, s store.Store) *renameServer {
	t.Helper()
	s = front.New(s, nil)
	t.Cleanup(func() { s.Close() })
	limits, err := catalog.Open(t.Context(), s, &catalog.Config{
		Every: 20 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(limits.Close)
	return &renameServer{limits, headgate.New(s, &headgate.Config{Names: limits, Timeout: time.Minute})}
}

// charge charges a key by a name. A server that has not read the new name yet charges by the old one.
func (l *renameLoad) charge(t *testing.T, s *renameServer, name string, key int) {
	read, _ := s.limits.Version()
	renamed := l.version.Load()
	d, err := s.limiter.Allow(t.Context(), headgate.MustNamed(name), strconv.Itoa(key))
	if name == "signin" && errors.Is(err, headgate.ErrUnknownLimit) && (renamed == 0 || read < renamed) {
		d, err = s.limiter.Allow(t.Context(), headgate.MustNamed("login"), strconv.Itoa(key))
	}
	if err != nil {
		t.Errorf("key %d by %s: %v", key, name, err)
	}
	if d.Allowed && l.passed[key].Add(1) > capacity {
		t.Errorf("key %d passes more than %d times", key, capacity)
	}
	if l.charges.Add(1) == int64(l.keys*2) {
		close(l.renameAt)
	}
}

// eachKey calls f for each key, on 64 goroutines.
func (l *renameLoad) eachKey(f func(key int)) {
	const workers = 64
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for key := w; key < l.keys; key += workers {
				f(key)
			}
		})
	}
	wg.Wait()
}

// TestARenameUnderLoadMakesNoKeyFresh renames a limit while two servers charge its used keys by both names. Each key
// may pass three times in all, once of it before; at no moment more. HEADGATE_TEST_TIER=nightly takes 100,000 keys.
func TestARenameUnderLoadMakesNoKeyFresh(t *testing.T) {
	t.Parallel()
	for kind, url := range map[string]func(testing.TB) string{
		"sqlite":   func(tb testing.TB) string { return "sqlite:" + filepath.Join(tb.TempDir(), "headgate.db") },
		"postgres": migrated.Postgres,
		"mariadb":  migrated.MariaDB,
		"redis":    dbtest.Redis,
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			at := url(t)
			testRenameUnderLoad(t, func() store.Store {
				s, err := open.Store(t.Context(), at)
				if err != nil {
					t.Fatal(err)
				}
				return s
			})
		})
	}
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		s := memory.New(&memory.Config{Names: true})
		testRenameUnderLoad(t, func() store.Store { return s })
	})
}

func testRenameUnderLoad(t *testing.T, open func() store.Store) {
	a, b := newRenameServer(t, open()), newRenameServer(t, open())
	ctx, by := t.Context(), catalog.By{}
	l := &renameLoad{keys: tier.Pick(2000, 2000, 100_000), renameAt: make(chan struct{})}
	l.passed = make([]atomic.Int32, l.keys)
	login := catalog.Definition{Limit: headgate.MustParseNamed("login", "fixed-window 3/100d from-first")}
	if _, err := a.limits.Set(ctx, by, login); err != nil {
		t.Fatal(err)
	}
	if err := b.limits.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	l.eachKey(func(key int) { l.charge(t, a, "login", key) }) // each is used
	var wg sync.WaitGroup
	for i, s := range []*renameServer{a, b} {
		wg.Go(func() {
			for pass := range 3 {
				l.eachKey(func(key int) { l.charge(t, s, []string{"login", "signin"}[(key+pass+i)%2], key) })
			}
		})
	}
	<-l.renameAt
	v, err := b.limits.Rename(ctx, by, "login", "signin")
	if err != nil {
		t.Error(err)
	}
	l.version.Store(v)
	wg.Wait()
	for _, s := range []*renameServer{a, b} {
		if err := s.limits.Refresh(ctx); err != nil {
			t.Fatal(err)
		}
		l.eachKey(func(key int) { checkUsedUp(ctx, t, s, key) })
	}
	for key := range l.passed {
		if n := l.passed[key].Load(); n != capacity {
			t.Errorf("key %d has passed %d times, want %d", key, n, capacity)
		}
	}
}

// checkUsedUp checks that a key has nothing left by either name.
func checkUsedUp(ctx context.Context, t *testing.T, s *renameServer, key int) {
	for _, name := range []string{"login", "signin"} {
		d, err := s.limiter.Check(ctx, headgate.Charge{Limit: headgate.MustNamed(name), Key: strconv.Itoa(key)})
		if err != nil || d.Allowed || d.LimitName != "login" {
			t.Errorf("key %d by %s: got %+v, %v; want a refusal of login", key, name, d, err)
		}
	}
}
