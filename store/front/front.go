// Package front puts the recommended wrappers in front of a store, and removes its dead keys in the background.
//
//	pg, err := postgres.Open(ctx, "postgres://localhost/app", nil)
//	...
//	s := front.New(pg, nil)
//	defer s.Close()
//	limiter := headgate.New(s, nil)
//
// A call passes these packages in order:
//
//   - guard answers by the limit's policy while the store cannot decide, and then retries the store only now and then;
//   - deny repeats a refusal that still holds, without the store;
//   - prefetch hands out tokens that this process took ahead of demand, for limits with a prefetch;
//   - coalesce puts callers who wait into one batch.
//
// No other order works as well: coalesce has to be next to the store, to batch the calls of deny and prefetch too; deny
// comes before prefetch, because a refused call does not need the others; and guard comes first, so that a call waits
// for none of them beyond its deadline. A caller who finds no batch under way, and has a second or more, calls the
// store itself, and notices its deadline when the store has answered, a second later at the most.
//
// The sweeper is one goroutine. It removes the rows that can no longer affect a decision. Without a sweeper, a database
// keeps one row for each key that was ever used.
package front

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/front/coalesce"
	"github.com/headgate/headgate/internal/front/deny"
	"github.com/headgate/headgate/internal/front/guard"
	"github.com/headgate/headgate/internal/front/prefetch"
	"github.com/headgate/headgate/internal/wrap"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

var (
	_ store.Store     = (*Store)(nil)
	_ store.OneTaker  = (*Store)(nil)
	_ store.Unwrapper = (*Store)(nil)
)

// Config adjusts a Store. It may be nil, and every field may be zero.
type Config struct {
	// Coalesce adjusts package coalesce. If its Observer is nil, coalesce uses that of this Config.
	Coalesce *CoalesceConfig
	// Guard adjusts package guard. If its Observer or Logger is nil, guard uses that of this Config.
	Guard *GuardConfig
	// SweepEvery is the mean time between two sweeps. Each pause is 0.5 to 1.5 times SweepEvery, so that processes that
	// were started together sweep at different times. It is shorter after a sweep that did not reach the end, and
	// longer after one that failed. A pause above a second ends within a second after the store got 5000 ops, unless
	// the last sweep failed. Zero: DefaultSweepEvery. Below 0: there is no sweeper; use that if another process sweeps
	// the same database. A value below a millisecond counts as a millisecond.
	SweepEvery time.Duration
	// Observer receives batches and sweeps. It may be nil. Drivers have one of their own, for repeated transactions.
	Observer store.Observer
	// Logger receives a line for each class of errors of the sweeper, and one when it works again. Nil: slog.Default().
	Logger *slog.Logger
}

// GuardConfig adjusts package guard.
type GuardConfig = guard.Config

// CoalesceConfig adjusts package coalesce.
type CoalesceConfig = coalesce.Config

// DefaultSweepEvery is the default of Config.SweepEvery.
const DefaultSweepEvery = 10 * time.Second

// maxSweepRows is the number of rows that one sweep removes at most. If a sweep did not reach the end, the next one
// follows soon: the more of the rows that it looked at were dead, the sooner.
const maxSweepRows = 5000

// withDefaults returns the settings with the defaults filled in.
func (c *Config) withDefaults() Config {
	d := *cmp.Or(c, &Config{})
	if d.SweepEvery = cmp.Or(d.SweepEvery, DefaultSweepEvery); d.SweepEvery > 0 {
		d.SweepEvery = min(max(d.SweepEvery, time.Millisecond), 1<<62)
	}
	return d
}

// coalesce returns the settings of package coalesce.
func (c *Config) coalesce() *coalesce.Config {
	d := *cmp.Or(c.Coalesce, &coalesce.Config{})
	d.Observer = cmp.Or(d.Observer, c.Observer)
	return &d
}

// guard returns the settings of package guard.
func (c *Config) guard() *guard.Config {
	d := *cmp.Or(c.Guard, &guard.Config{})
	d.Observer = cmp.Or(d.Observer, c.Observer)
	d.Logger = cmp.Or(d.Logger, c.Logger)
	return &d
}

// Store is the recommended stack. It is safe for concurrent use. The optional interfaces of the store below
// (store.Migrator, store.Inspector and others) are found with store.As, as behind every wrapper.
type Store struct {
	top      store.Store    // the first of the wrappers, or the store itself
	oneTaker store.OneTaker // top as a OneTaker; nil if it is none

	guard    *guard.Store // nil if left out, as the next three
	deny     *deny.Store
	prefetch *prefetch.Store
	coalesce *coalesce.Store

	sweeper   sweeper
	closeOnce sync.Once
	closeErr  error // what Close returns
}

// New returns the wrappers around a store, and starts the sweeper. Close closes the store too.
//
// A store that answers out of the memory of this process (Info.Local) gets the sweeper and no wrappers, because a
// wrapper costs more than it can save there. If s is nil, each call fails with store.ErrInvalid.
func New(s store.Store, cfg *Config) *Store {
	c := cfg.withDefaults()
	if s == nil {
		s, c.SweepEvery = wrap.Failing{Err: law.Invalid("store", "is nil; front.New was given none")}, -1
	}
	return stack(s, &c, true)
}

// stack puts the wrappers in front of a store, and starts the sweeper. Without guarded it leaves package guard out.
func stack(s store.Store, c *Config, guarded bool) *Store {
	f := &Store{top: s}
	// A store that itself, not the store behind it, answers out of the memory of this process needs no wrappers.
	if i, ok := s.(store.Informer); !ok || !i.Info().Local {
		f.coalesce = coalesce.New(s, c.coalesce())
		f.prefetch = prefetch.New(f.coalesce)
		f.deny = deny.New(f.prefetch)
		f.top = f.deny
		if guarded {
			f.guard = guard.New(f.deny, c.guard())
			f.top = f.guard
		}
		f.sweeper.opCount = func() int64 { return f.coalesce.Stats().Ops }
	}
	f.oneTaker, _ = f.top.(store.OneTaker)
	f.sweeper.info = func() store.Info { return store.InfoOf(s) }
	f.sweeper.start(f.Sweep, c)
	return f
}

// Unwrap implements store.Unwrapper. It returns the first of the wrappers.
func (s *Store) Unwrap() store.Store { return s.top }

// Apply implements store.Store.
func (s *Store) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	return s.top.Apply(ctx, ops, outs)
}

// TakeOne implements store.OneTaker.
func (s *Store) TakeOne(ctx context.Context, cell law.Cell, p *law.Params, cost int64) (b store.Brief, decided bool) {
	if s.oneTaker == nil {
		return store.Brief{}, false
	}
	return s.oneTaker.TakeOne(ctx, cell, p, cost)
}

// Sweep implements store.Store. Stats counts sweeps by this method too.
func (s *Store) Sweep(ctx context.Context, maxCells int) (removed int, err error) {
	removed, err = s.top.Sweep(ctx, maxCells)
	s.sweeper.count(removed, err)
	return removed, err
}

// Close implements store.Store. It stops the sweeper, waits for the batches under way, returns the tokens that were
// taken ahead, and closes the store below. It does so once: further calls wait for that, and return the same error.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		s.sweeper.stop()
		s.closeErr = s.top.Close()
	})
	return s.closeErr
}
