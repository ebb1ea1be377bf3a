// Package pending opens a store in the background, and retries until that succeeds. So a server can start before its
// database, and report to its callers that the database is not there yet.
//
// Until the store is open, every call fails with store.ErrUnavailable: nothing was done. From then on calls go to the
// store, which handles later failures of its server itself.
package pending

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/internal/wrap"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

var (
	_ store.Store     = (*Store)(nil)
	_ store.OneTaker  = (*Store)(nil)
	_ store.Unwrapper = (*Store)(nil)
)

// NoLimit is the Within of a Config that retries for ever.
const NoLimit = time.Duration(-1)

// Config says how to open a store.
type Config struct {
	// Open opens the store. It is called again after it failed. Its context ends after AttemptWithin, or when Within is
	// over; Store does not wait for an Open that takes longer.
	Open func(ctx context.Context) (store.Store, error)
	// Within is how long to retry, counted from New. Zero: one attempt. NoLimit: until it succeeds.
	Within time.Duration
}

// An attempt takes AttemptWithin at most. The pause between two attempts is half of firstPause to firstPause, and
// doubles each time up to longestPause.
const (
	AttemptWithin = 10 * time.Second
	firstPause    = 100 * time.Millisecond
	longestPause  = time.Second
)

// IsPermanent reports whether an error of Open stays: the URL or its options are wrong, or a newer binary has migrated
// the store. Other problems can be fixed at the store, such as a missing schema, user or privilege.
func IsPermanent(err error) bool {
	return errors.Is(err, store.ErrInvalid) || errors.Is(err, store.ErrSchemaNewer)
}

// Store is a store that is opened in the background. It is safe for concurrent use.
type Store struct {
	cfg     Config
	current atomic.Pointer[wrap.Inner] // the store that calls go to
	done    chan struct{}
	err     error // why opening was given up; written before done is closed
	cancel  context.CancelFunc

	mu     sync.Mutex
	closed bool // guarded by mu
}

// New starts to open a store. Close stops that, and closes the store if it is open.
func New(cfg Config) *Store {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Store{cfg: cfg, done: make(chan struct{}), cancel: cancel}
	s.setCurrent(notOpen(errors.New("it is being opened")))
	sched.Go(func() { s.run(ctx) })
	return s
}

// setCurrent directs calls to a store.
func (s *Store) setCurrent(current store.Store) {
	inner := wrap.Around(current)
	s.current.Store(&inner)
}

// Done returns a channel that is closed when the store is open or opening was given up; Err says which.
func (s *Store) Done() <-chan struct{} { return s.done }

// Err returns why opening was given up, or nil.
func (s *Store) Err() error {
	if sched.Wait(0, s.done, nil, nil) == sched.TimeOut {
		return nil
	}
	return s.err
}

// run retries until the store is open, the error is final, Within has passed, or the context ends.
func (s *Store) run(ctx context.Context) {
	defer close(s.done)
	end := sched.Now().Add(s.cfg.Within)
	for maxPause := firstPause; ; maxPause = min(2*maxPause, longestPause) {
		inner, err := s.attempt(ctx, end)
		switch {
		case err == nil:
			s.err = s.publish(inner)
			return
		case ctx.Err() != nil:
			s.err = store.ErrClosed
			return
		}
		s.setCurrent(notOpen(err))
		pause := maxPause/2 + sched.N(maxPause/2)
		if s.cfg.Within >= 0 {
			pause = min(pause, sched.Until(end))
		}
		if IsPermanent(err) || pause <= 0 {
			s.err = err
			return
		}
		if sched.Wait(pause, ctx.Done(), nil, nil) != sched.TimeOut {
			s.err = store.ErrClosed
			return
		}
	}
}

// attempt opens the store. It gives up when its time is over, since not all drivers obey the context.
func (s *Store) attempt(ctx context.Context, end time.Time) (store.Store, error) {
	timeout := AttemptWithin
	if s.cfg.Within > 0 {
		timeout = max(min(timeout, sched.Until(end)), firstPause)
	}
	ctx, cancel := sched.WithTimeout(ctx, timeout)
	defer cancel()
	var inner store.Store
	var err error
	done := make(chan struct{})
	sched.Go(func() {
		defer close(done)
		inner, err = s.cfg.Open(ctx)
	})
	if sched.Either(done, ctx.Done()) {
		return inner, err
	}
	sched.Go(func() { // a store that is opened too late is closed
		sched.Receive(done)
		if err == nil {
			inner.Close()
		}
	})
	return nil, fmt.Errorf("%w: it did not answer within %s", store.ErrUnavailable, timeout.Round(time.Millisecond))
}

// publish directs calls to the inner store, or closes it if Close was called.
func (s *Store) publish(inner store.Store) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		inner.Close()
		return store.ErrClosed
	}
	s.setCurrent(inner)
	return nil
}

// Unwrap implements store.Unwrapper. A store that is not open yet is a wrap.Failing.
func (s *Store) Unwrap() store.Store { return s.current.Load().Store }

// Apply implements store.Store.
func (s *Store) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	return s.current.Load().Apply(ctx, ops, outs)
}

// TakeOne implements store.OneTaker.
func (s *Store) TakeOne(ctx context.Context, cell law.Cell, p *law.Params, cost int64) (b store.Brief, decided bool) {
	return s.current.Load().TakeOne(ctx, cell, p, cost)
}

// Sweep implements store.Store.
func (s *Store) Sweep(ctx context.Context, maxCells int) (removed int, err error) {
	return s.current.Load().Sweep(ctx, maxCells)
}

// Close implements store.Store. It does not wait for an attempt under way.
func (s *Store) Close() error {
	s.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	current := s.current.Load()
	if _, ok := current.Store.(wrap.Failing); ok {
		s.setCurrent(wrap.Failing{Err: store.ErrClosed})
	}
	return current.Close()
}

// ErrNotOpen is wrapped by the errors of a store that is not open yet.
var ErrNotOpen = errors.New("it is not open yet")

// notOpen returns a store that fails since the real store is not open; err says why.
func notOpen(err error) wrap.Failing {
	//nolint:errorlint // the class is that of the calls
	return wrap.Failing{Err: fmt.Errorf("%w: %w: %v", store.ErrUnavailable, ErrNotOpen, err)}
}
