package pending_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/front/pending"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// server answers an Open.
type server struct {
	at    atomic.Int64 // after how many attempts it is there
	err   error        // till then
	tries atomic.Int64
	hang  bool // it answers nobody, and heeds no context
	store *memory.Store
}

func (s *server) open(context.Context) (store.Store, error) {
	n := s.tries.Add(1)
	if s.hang {
		time.Sleep(time.Minute)
	}
	if n <= s.at.Load() {
		return nil, s.err
	}
	return s.store, nil
}

func newServer(at int64, err error) *server {
	s := &server{err: err, store: memory.New(&memory.Config{Names: true})}
	s.at.Store(at)
	return s
}

var (
	errAway = fmt.Errorf("dial: %w", store.ErrUnavailable)
	limit   = headgate.MustParse("token-bucket 5/1h")
)

// TestCallsFailUntilTheStoreIsOpen: without anything charged, and then they are the
// store's.
func TestCallsFailUntilTheStoreIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newServer(5, errAway)
		s := pending.New(pending.Config{Open: srv.open, Within: pending.NoLimit})
		defer s.Close()
		l := headgate.New(s, nil)
		calls := map[string]func() error{
			"Allow":   func() error { _, err := l.Allow(t.Context(), limit, "k"); return err },
			"Inspect": func() error { _, err := l.Inspect(t.Context(), limit, "k"); return err },
			"List":    func() error { _, err := l.List(t.Context(), store.Query{}); return err },
			"Sweep":   func() error { _, err := s.Sweep(t.Context(), 10); return err },
		}
		synctest.Wait()
		for name, call := range calls {
			if err := call(); !errors.Is(err, store.ErrUnavailable) || !store.NothingDone(err) {
				t.Errorf("%s before: %v, want ErrUnavailable", name, err)
			}
		}
		if err := s.Err(); err != nil {
			t.Errorf("given up: %v", err)
		}
		<-s.Done()
		if err := s.Err(); err != nil || srv.tries.Load() != 6 {
			t.Errorf("%v after %d attempts", err, srv.tries.Load())
		}
		for name, call := range calls {
			if err := call(); err != nil {
				t.Errorf("%s then: %v", name, err)
			}
		}
		if inner, ok := store.As[*memory.Store](s); !ok || inner != srv.store {
			t.Error("the store behind is not found")
		}
		if _, decided := s.TakeOne(t.Context(), law.Cell{Limit: limit.Name(), Key: "k"}, new(limit.Params()),
			1000); !decided {
			t.Error("a store in this process did not decide at once")
		}
	})
}

// TestForHowLongItTries counts attempts and measures when it gives up.
func TestForHowLongItTries(t *testing.T) {
	for name, tt := range map[string]struct {
		within, after time.Duration // gives up after
		err           error
		hang          bool
		tries         []int64 // from, to
	}{
		"once":        {within: 0, after: 0, err: errAway, tries: []int64{1, 1}},
		"for a while": {within: 2 * time.Second, after: 2 * time.Second, err: errAway, tries: []int64{4, 12}},
		"no password": {
			within: 2 * time.Second, after: 2 * time.Second, err: store.ErrSetup,
			tries: []int64{4, 12},
		},
		"a wrong URL":    {within: pending.NoLimit, after: 0, err: store.ErrInvalid, tries: []int64{1, 1}},
		"a newer schema": {within: pending.NoLimit, after: 0, err: store.ErrSchemaNewer, tries: []int64{1, 1}},
		"no answer": {
			within: 3 * time.Second, after: 3 * time.Second, err: errAway, hang: true,
			tries: []int64{1, 2},
		},
		"no answer, one time": {
			within: 0, after: pending.AttemptWithin, err: errAway, hang: true,
			tries: []int64{1, 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := newServer(1<<60, tt.err)
				srv.hang = tt.hang
				begin := time.Now()
				s := pending.New(pending.Config{Open: srv.open, Within: tt.within})
				<-s.Done()
				took := time.Since(begin)
				want := tt.err
				if tt.hang {
					want = store.ErrUnavailable
				}
				if took < tt.after || took > tt.after+200*time.Millisecond || !errors.Is(s.Err(), want) {
					t.Errorf("gave up after %s with %v, want %s and %v", took, s.Err(), tt.after, want)
				}
				if n := srv.tries.Load(); n < tt.tries[0] || n > tt.tries[1] {
					t.Errorf("%d attempts, want %v", n, tt.tries)
				}
				s.Close()
				time.Sleep(2 * time.Minute) // for those that hang
			})
		})
	}
}

// TestPausesGrow: a server that is away for long is asked once or twice a second.
func TestPausesGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newServer(1<<60, errAway)
		var at []time.Time
		s := pending.New(pending.Config{Within: pending.NoLimit, Open: func(ctx context.Context) (store.Store, error) {
			at = append(at, time.Now())
			return srv.open(ctx)
		}})
		time.Sleep(time.Hour)
		s.Close()
		synctest.Wait()
		var pauses []time.Duration
		for i := range at[1:] {
			pauses = append(pauses, at[i+1].Sub(at[i]))
		}
		if pauses[0] > 100*time.Millisecond || slices.Max(pauses) > time.Second ||
			slices.Min(pauses[10:]) < 400*time.Millisecond {
			t.Errorf("pauses from %s, then %s to %s", pauses[0], slices.Min(pauses[10:]), slices.Max(pauses))
		}
	})
}

// TestCloseWhileItTries does not wait, and leaves nothing open.
func TestCloseWhileItTries(t *testing.T) {
	for _, hang := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			srv := newServer(3, errAway)
			if srv.hang = hang; hang {
				srv.at.Store(0)
			}
			s := pending.New(pending.Config{Open: srv.open, Within: pending.NoLimit})
			begin := time.Now()
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			<-s.Done()
			if took := time.Since(begin); took > 0 {
				t.Errorf("it took %s", took)
			}
			if _, err := headgate.New(s, nil).Allow(t.Context(), limit, "k"); !errors.Is(err, store.ErrClosed) {
				t.Errorf("after Close: %v", err)
			}
			time.Sleep(2 * time.Minute)
			if _, err := srv.store.Sweep(t.Context(), 1); hang && !errors.Is(err, store.ErrClosed) {
				t.Errorf("a store that opened after Close was left open: %v", err)
			}
		})
	}
}
