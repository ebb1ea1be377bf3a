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

// noSweeper is a configuration without a sweeper. A decision may take a minute, as on a busy machine.
var noSweeper = &front.Config{SweepEvery: -1, Guard: &front.GuardConfig{Deadline: time.Minute}}

func inMemory() store.Store { return newMemory() }

// TestConformance runs the conformance suite with all wrappers around a store in memory.
func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(testing.TB) store.Store { return front.New(&remoteStore{Store: inMemory()}, noSweeper) },
		nil)
}

func TestConformanceWithoutWrappers(t *testing.T) {
	tier.Engines(t)
	storetest.Run(t, func(testing.TB) store.Store { return front.New(inMemory(), noSweeper) },
		&storetest.Options{Histories: 500})
}

// TestNothingIsAdmittedWhenTheStoreFails checks each wrapper, and all together, around a store in memory that fails.
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

// remoteStore is a store that hides that it is in this process. It counts calls.
type remoteStore struct {
	store.Store
	applyCalls, sweepCalls, closeCalls atomic.Int64

	sweepErr atomic.Pointer[error]
	onSweep  func(ctx context.Context) // nil: none
	closeErr error
}

func (r *remoteStore) Unwrap() store.Store { return r.Store }

func (r *remoteStore) Info() store.Info { return store.Info{Retries: 7} }

func (r *remoteStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	r.applyCalls.Add(1)
	return r.Store.Apply(ctx, ops, outs)
}

func (r *remoteStore) Sweep(ctx context.Context, maxCells int) (int, error) {
	r.sweepCalls.Add(1)
	if r.onSweep != nil {
		r.onSweep(ctx)
	}
	if err := r.sweepErr.Load(); err != nil && *err != nil {
		return 0, *err
	}
	return r.Store.Sweep(ctx, maxCells)
}

func (r *remoteStore) Close() error {
	r.closeCalls.Add(1)
	return errors.Join(r.closeErr, r.Store.Close())
}

func newRemote() *remoteStore { return &remoteStore{Store: memory.New(nil)} }

// TestAsFindsTheDriverAndTheWrappers checks that store.As finds the driver, its interfaces and the wrappers.
func TestAsFindsTheDriverAndTheWrappers(t *testing.T) {
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
		t.Errorf("got info %+v, want Partial of the driver and Deadline of package guard", i)
	}
	if got, ok := store.As[*postgres.Store](s); !ok || got != pg {
		t.Error("the driver is not found")
	}
	if _, ok := store.As[*deny.Store](s); !ok {
		t.Error("the wrappers are not found")
	}
}

func TestCloseClosesOnce(t *testing.T) { synctest.Test(t, testCloseOnce) }

// testCloseOnce checks that 20 calls of Close close the store once, end the sweeper, and return the same error.
func testCloseOnce(t *testing.T) {
	r := newRemote()
	r.closeErr = errors.New("cannot close")
	s := front.New(r, &front.Config{SweepEvery: time.Millisecond})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if err := s.Close(); !errors.Is(err, r.closeErr) {
				t.Errorf("Close: got %v, want %v", err, r.closeErr)
			}
			if r.closeCalls.Load() != 1 {
				t.Error("Close returned before the store was closed")
			}
		})
	}
	wg.Wait()
	sweeps := r.sweepCalls.Load()
	time.Sleep(time.Minute)
	if r.closeCalls.Load() != 1 || r.sweepCalls.Load() != sweeps {
		t.Errorf("got %d calls of Close, %d sweeps after it; want 1, 0", r.closeCalls.Load(), r.sweepCalls.Load()-sweeps)
	}
	op := law.Op{
		Verb: law.Take, Group: 1, Cell: law.Cell{Limit: "l", Key: "k"},
		Params: law.Params{Kind: law.Bucket, Unit: 1, Capacity: 1, Step: 1, Drain: 1}, Cost: 1, Count: 1,
	}
	if err := s.Apply(t.Context(), []law.Op{op}, make([]law.Outcome, 1)); !errors.Is(err, store.ErrClosed) {
		t.Errorf("Apply after Close: got %v, want %v", err, store.ErrClosed)
	}
}

// TestCloseEndsASweepUnderWay checks that Close waits a second at most for a sweep that ignores its context.
func TestCloseEndsASweepUnderWay(t *testing.T) {
	for name, tt := range map[string]struct {
		ignoresContext bool
		wantTook       time.Duration
	}{"a sweep that ends": {false, 0}, "a sweep that does not end": {true, time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			r, end := newRemote(), make(chan struct{})
			r.onSweep = func(ctx context.Context) {
				if tt.ignoresContext {
					<-end
				}
				<-ctx.Done()
			}
			s := front.New(r, nil)
			time.Sleep(11 * time.Second) // the first sweep has begun
			if r.sweepCalls.Load() != 1 {
				t.Fatalf("%s: got %d sweeps, want 1", name, r.sweepCalls.Load())
			}
			begin := time.Now()
			s.Close()
			if took := time.Since(begin); took != tt.wantTook || r.closeCalls.Load() != 1 {
				t.Errorf("%s: Close took %s, want %s; it closed the store %d times, want once", name, took, tt.wantTook,
					r.closeCalls.Load())
			}
			close(end)
			synctest.Wait()
		})
	}
}

func TestWithoutAStoreApplyAndSweepAreErrInvalid(t *testing.T) {
	s := front.New(nil, nil)
	if err := s.Apply(t.Context(), make([]law.Op, 1), make([]law.Outcome, 1)); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("Apply: got %v, want %v", err, store.ErrInvalid)
	}
	if _, err := s.Sweep(t.Context(), 1); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("Sweep: got %v, want %v", err, store.ErrInvalid)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close: got %v, want nil", err)
	}
}
