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

// server is a server to open, which fails at first.
type server struct {
	failures atomic.Int64 // how many attempts fail
	err      error        // of the failing attempts
	attempts atomic.Int64
	hang     bool // an attempt takes a minute, whatever its context
	store    *memory.Store
}

func (s *server) open(context.Context) (store.Store, error) {
	n := s.attempts.Add(1)
	if s.hang {
		time.Sleep(time.Minute)
	}
	if n <= s.failures.Load() {
		return nil, s.err
	}
	return s.store, nil
}

// newServer returns a server on which the first attempts fail.
func newServer(failures int64, err error) *server {
	s := &server{err: err, store: memory.New(&memory.Config{Names: true})}
	s.failures.Store(failures)
	return s
}

var (
	errAway = fmt.Errorf("dial: %w", store.ErrUnavailable) // of a server that is not reachable yet
	limit   = headgate.MustParse("token-bucket 5/1h")
)

// TestCallsFailUntilTheStoreIsOpen checks that calls return ErrUnavailable, without a charge, until the store is open.
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
				t.Errorf("%s before the store is open: got %v, want ErrUnavailable", name, err)
			}
		}
		if err := s.Err(); err != nil {
			t.Errorf("Err before the store is open: got %v, want nil", err)
		}
		<-s.Done()
		if err := s.Err(); err != nil || srv.attempts.Load() != 6 {
			t.Errorf("got %v after %d attempts, want nil after 6", err, srv.attempts.Load())
		}
		for name, call := range calls {
			if err := call(); err != nil {
				t.Errorf("%s after the store is open: got %v", name, err)
			}
		}
		if inner, ok := store.As[*memory.Store](s); !ok || inner != srv.store {
			t.Error("As does not find the store")
		}
		if _, decided := s.TakeOne(t.Context(), law.Cell{Limit: limit.Name(), Key: "k"}, new(limit.Params()),
			1000); !decided {
			t.Error("a store in this process did not decide at once")
		}
	})
}

// TestWithinBoundsTheAttempts checks after which time and how many attempts Open is given up.
func TestWithinBoundsTheAttempts(t *testing.T) {
	for name, tt := range map[string]struct {
		within   time.Duration
		after    time.Duration // when it gives up
		err      error
		hang     bool
		attempts []int64 // the fewest and the most
	}{
		"once":        {within: 0, after: 0, err: errAway, attempts: []int64{1, 1}},
		"for a while": {within: 2 * time.Second, after: 2 * time.Second, err: errAway, attempts: []int64{4, 12}},
		"no password": {
			within: 2 * time.Second, after: 2 * time.Second, err: store.ErrSetup, attempts: []int64{4, 12},
		},
		"a wrong URL":    {within: pending.NoLimit, after: 0, err: store.ErrInvalid, attempts: []int64{1, 1}},
		"a newer schema": {within: pending.NoLimit, after: 0, err: store.ErrSchemaNewer, attempts: []int64{1, 1}},
		"no answer": {
			within: 3 * time.Second, after: 3 * time.Second, err: errAway, hang: true, attempts: []int64{1, 2},
		},
		"no answer, one time": {
			within: 0, after: pending.AttemptWithin, err: errAway, hang: true, attempts: []int64{1, 1},
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
				wantErr := tt.err
				if tt.hang {
					wantErr = store.ErrUnavailable
				}
				if took < tt.after || took > tt.after+200*time.Millisecond || !errors.Is(s.Err(), wantErr) {
					t.Errorf("gave up after %s with %v, want %s and %v", took, s.Err(), tt.after, wantErr)
				}
				if n := srv.attempts.Load(); n < tt.attempts[0] || n > tt.attempts[1] {
					t.Errorf("got %d attempts, want %v", n, tt.attempts)
				}
				s.Close()
				time.Sleep(2 * time.Minute) // for the attempts that hang
			})
		})
	}
}

// TestPausesGrow checks that the pauses between attempts grow from 0.1 s at most to between 0.5 s and 1 s.
func TestPausesGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newServer(1<<60, errAway)
		var attemptTimes []time.Time
		s := pending.New(pending.Config{Within: pending.NoLimit, Open: func(ctx context.Context) (store.Store, error) {
			attemptTimes = append(attemptTimes, time.Now())
			return srv.open(ctx)
		}})
		time.Sleep(time.Hour)
		s.Close()
		synctest.Wait()
		var pauses []time.Duration
		for i := range attemptTimes[1:] {
			pauses = append(pauses, attemptTimes[i+1].Sub(attemptTimes[i]))
		}
		if pauses[0] > 100*time.Millisecond || slices.Max(pauses) > time.Second ||
			slices.Min(pauses[10:]) < 400*time.Millisecond {
			t.Errorf("got a first pause of %s, then %s to %s", pauses[0], slices.Min(pauses[10:]), slices.Max(pauses))
		}
	})
}

// TestCloseDuringAnAttempt checks that Close does not wait, and that a store which opens later is closed.
func TestCloseDuringAnAttempt(t *testing.T) {
	for _, hang := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			srv := newServer(3, errAway)
			if srv.hang = hang; hang {
				srv.failures.Store(0)
			}
			s := pending.New(pending.Config{Open: srv.open, Within: pending.NoLimit})
			begin := time.Now()
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			<-s.Done()
			if took := time.Since(begin); took > 0 {
				t.Errorf("Close took %s, want no time", took)
			}
			if _, err := headgate.New(s, nil).Allow(t.Context(), limit, "k"); !errors.Is(err, store.ErrClosed) {
				t.Errorf("after Close: got %v, want %v", err, store.ErrClosed)
			}
			time.Sleep(2 * time.Minute)
			if _, err := srv.store.Sweep(t.Context(), 1); hang && !errors.Is(err, store.ErrClosed) {
				t.Errorf("a store that opened after Close was left open: %v", err)
			}
		})
	}
}
