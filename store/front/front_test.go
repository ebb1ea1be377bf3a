package front_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/front/deny"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/store/storetest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// noSweeper is for tests that count what their own sweeps remove. A decision may take long on a busy machine.
var noSweeper = &front.Config{SweepEvery: -1, Guard: &front.GuardConfig{Deadline: time.Minute}}

func inMemory() store.Store { return newMemory() }

// TestConformance is of all wrappers over a store in memory.
func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(testing.TB) store.Store { return front.New(&remote{Store: inMemory()}, noSweeper) },
		nil)
}

func TestConformanceWithoutWrappers(t *testing.T) {
	tier.Engines(t)
	storetest.Run(t, func(testing.TB) store.Store { return front.New(inMemory(), noSweeper) },
		&storetest.Options{Histories: 500})
}

// TestNothingIsAdmittedWhenTheStoreFails has a store in memory fail behind each wrapper, and behind all.
func TestNothingIsAdmittedWhenTheStoreFails(t *testing.T) {
	storetest.RunFailing(t, func(testing.TB) store.Store { return inMemory() })
}

func TestConformanceOverPostgres(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	storetest.Run(t, func(tb testing.TB) store.Store {
		return front.New(openPostgres(tb, migrated.Postgres(tb)), noSweeper)
	}, &storetest.Options{Histories: 100})
}

func openPostgres(tb testing.TB, dsn string) *postgres.Store {
	tb.Helper()
	s, err := postgres.Open(context.Background(), dsn, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// remote is a store that does not show that it is in this process. A test lets it fail
// and counts what it is asked.
type remote struct {
	store.Store
	asked, swept, closed atomic.Int64
	fault                atomic.Pointer[error]     // of Sweep
	sweeps               func(ctx context.Context) // if it is set
	onClose              error
}

func (r *remote) Unwrap() store.Store { return r.Store }

func (r *remote) Info() store.Info { return store.Info{Retries: 7} }

func (r *remote) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	r.asked.Add(1)
	return r.Store.Apply(ctx, ops, outs)
}

func (r *remote) Sweep(ctx context.Context, max int) (int, error) {
	r.swept.Add(1)
	if r.sweeps != nil {
		r.sweeps(ctx)
	}
	if err := r.fault.Load(); err != nil && *err != nil {
		return 0, *err
	}
	return r.Store.Sweep(ctx, max)
}

func (r *remote) Close() error {
	r.closed.Add(1)
	return errors.Join(r.onClose, r.Store.Close())
}

func newRemote() *remote { return &remote{Store: memory.New(nil)} }

func TestOptionalInterfacesAreFoundBehindIt(t *testing.T) {
	pg := openPostgres(t, migrated.Postgres(t))
	s := front.New(pg, noSweeper)
	defer s.Close()
	if _, ok := store.As[store.Migrator](s); !ok {
		t.Error("no Migrator")
	}
	if _, ok := store.As[store.Catalog](s); !ok {
		t.Error("no Catalog")
	}
	if _, ok := store.As[store.Inspector](s); !ok {
		t.Error("no Inspector")
	}
	if i := store.InfoOf(s); !i.Partial || i.Deadline == 0 {
		t.Errorf("%+v: not of the driver and of package guard", i)
	}
	if got, ok := store.As[*postgres.Store](s); !ok || got != pg {
		t.Error("the driver is not found")
	}
	if _, ok := store.As[*deny.Store](s); !ok {
		t.Error("the wrappers are not found")
	}
}

func TestCloseClosesOnce(t *testing.T) {
	synctest.Test(t, closesOnce)
}

func closesOnce(t *testing.T) {
	r := newRemote()
	r.onClose = errors.New("of a test")
	s := front.New(r, &front.Config{SweepEvery: time.Millisecond})
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if err := s.Close(); !errors.Is(err, r.onClose) {
				t.Errorf("Close: %v", err)
			}
			if r.closed.Load() != 1 {
				t.Error("Close returned before the store was closed")
			}
		})
	}
	all.Wait()
	swept := r.swept.Load()
	time.Sleep(time.Minute)
	if r.closed.Load() != 1 || r.swept.Load() != swept {
		t.Errorf("closed %d times, swept %d times after that", r.closed.Load(), r.swept.Load()-swept)
	}
	op := law.Op{
		Verb: law.Take, Group: 1, Cell: law.Cell{Limit: "l", Key: "k"},
		Params: law.Params{Kind: law.Bucket, Unit: 1, Capacity: 1, Step: 1, Drain: 1}, Cost: 1, Count: 1,
	}
	if err := s.Apply(t.Context(), []law.Op{op}, make([]law.Outcome, 1)); !errors.Is(err, store.ErrClosed) {
		t.Errorf("Apply after Close: %v", err)
	}
}

// TestCloseEndsASweepUnderWay: one that heeds its context at once, another one after
// a second.
func TestCloseEndsASweepUnderWay(t *testing.T) {
	for name, tt := range map[string]struct {
		deaf bool
		took time.Duration
	}{"heeds": {false, 0}, "does not heed": {true, time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			r, end := newRemote(), make(chan struct{})
			r.sweeps = func(ctx context.Context) {
				if tt.deaf {
					<-end
				}
				<-ctx.Done()
			}
			s := front.New(r, nil)
			time.Sleep(11 * time.Second) // it is sweeping now
			if r.swept.Load() != 1 {
				t.Fatalf("%s: %d sweeps were begun", name, r.swept.Load())
			}
			begin := time.Now()
			s.Close()
			if took := time.Since(begin); took != tt.took || r.closed.Load() != 1 {
				t.Errorf("%s: Close took %s, and closed the store %d times", name, took, r.closed.Load())
			}
			close(end)
			synctest.Wait()
		})
	}
}

func TestWithoutAStoreEachCallIsInvalid(t *testing.T) {
	s := front.New(nil, nil)
	if err := s.Apply(t.Context(), make([]law.Op, 1), make([]law.Outcome, 1)); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("Apply: %v", err)
	}
	if _, err := s.Sweep(t.Context(), 1); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("Sweep: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}
