// Package guard answers for a store that cannot decide.
//
// The limit selects the answer (law.Away): the store's error, which admits nothing; a grant; or a decision by this
// process's share of the limit. An outcome that did not come from the store has Via law.ViaFallback.
//
// A store cannot decide while it cannot be reached, takes no writes, or does not answer in time: the context of each
// decision has a deadline, by default Config.Deadline, which the Limiter reads from Info. After some failures without
// any success between them, a circuit breaker opens: the store is called by one decision every half second, and the
// others are answered at once. The first success closes it.
//
// Guard is the outermost wrapper. The deadline therefore bounds the whole call, including the time spent in other
// wrappers, whether one row is locked, one node is slow, or the whole store is silent.
//
// Guard does not write its answers to the store later. It answers only requests that take or check. Requests with an
// id, reservations and leases get the store's error.
package guard

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/front/pending"
	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/internal/wrap"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

var (
	_ store.Store     = (*Store)(nil)
	_ store.OneTaker  = (*Store)(nil)
	_ store.Informer  = (*Store)(nil)
	_ store.Unwrapper = (*Store)(nil)
)

// DefaultDeadline is the deadline of a decision unless the Config or the limit has another. MariaDB and MySQL wait a
// second for a locked row, the shortest lock timeout that they have; and a disk that a checkpoint writes to can stall
// for some hundred milliseconds. See docs/project/decisions/wrappers.md for what was measured.
const DefaultDeadline = 1500 * time.Millisecond

// Config adjusts a Store. It may be nil, and every field may be zero.
type Config struct {
	// Deadline is how long a decision may take if its limits have no deadline. Guard only tells it by Info: the
	// caller's context has to end then. Zero, or below: DefaultDeadline.
	Deadline time.Duration
	// ShareLife is how long a process may use its share of limits after the last answer of the store. For the same
	// time, the share of a process that ends without Close cannot be used by others. Zero: DefaultShareLife.
	ShareLife time.Duration
	// Observer is notified when the store goes away and comes back, if it is an Observer of this package. Nil: none.
	Observer store.Observer
	// Turned is called with an error when the store goes away, and with nil when it is back, never in parallel. It is
	// for a program that writes its own log of the store's state. Nil: Logger receives a line each time.
	Turned func(err error)
	// Logger receives a line when the store goes away and when it is back, and one when a process that shares limits
	// cannot get its share. Nil: slog.Default().
	Logger *slog.Logger
}

// Observer is a store.Observer that is also notified of the circuit breaker.
type Observer interface {
	store.Observer
	// Away is called when the breaker opens, with the error of the store, and when it closes, with nil.
	Away(err error)
}

// Store is a store in front of another. It is safe for concurrent use. It starts a goroutine when the first limit with
// law.AwayShare is requested, which Close ends.
type Store struct {
	wrap.Inner
	deadline time.Duration
	breaker  breaker
	shares   shares
	degraded atomic.Int64 // ops that were answered without the store
}

// New returns a store in front of inner, which Close closes too.
func New(inner store.Store, cfg *Config) *Store {
	c := *cmp.Or(cfg, &Config{})
	c.Logger = cmp.Or(c.Logger, slog.Default())
	s := &Store{Inner: wrap.Around(inner), deadline: cmp.Or(max(c.Deadline, 0), DefaultDeadline)}
	if c.Turned == nil {
		c.Turned = s.logTurns(c.Logger)
	}
	s.breaker.onTurn = func(err error) {
		c.Turned(err)
		if o, ok := c.Observer.(Observer); ok {
			o.Away(err)
		}
	}
	s.shares.init(inner, &c)
	return s
}

// logTurns returns a function for Config.Turned that logs when the store goes away and when it is back.
func (s *Store) logTurns(log *slog.Logger) func(err error) {
	var awaySince time.Time
	var oldDegraded int64
	return func(err error) {
		if err != nil {
			awaySince, oldDegraded = sched.Now(), s.degraded.Load()
			log.Error("the store is away: limits answer as their policy says", "error", err)
			return
		}
		log.Info("the store is back", "after", sched.Since(awaySince).Round(time.Millisecond), "answered_without_it",
			s.degraded.Load()-oldDegraded)
	}
}

// Info implements store.Informer.
func (s *Store) Info() store.Info {
	i := store.InfoOf(s.Store)
	i.Deadline = s.deadline
	return i
}

// Stats are counts since New, for metrics.
type Stats struct {
	// Away is true while the circuit breaker is open.
	Away bool
	// Degraded is the number of ops that were answered without the store.
	Degraded int64
	// Share is the part of each limit with law.AwayShare, from 0 to 1, that this process holds for deciding while the
	// store is away. A part counts for a limit only some time later. 0 if no limit shares.
	Share float64
}

// Stats returns the counts.
func (s *Store) Stats() Stats {
	units := s.shares.units(&law.Op{Params: law.Params{Kind: law.Log}})
	return Stats{Away: s.breaker.open.Load(), Degraded: s.degraded.Load(), Share: float64(units) / totalUnits}
}

// Apply implements store.Store. Batches with ops that neither take nor check, and calls with a context of
// store.WithPatience, are passed on as they are.
func (s *Store) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if !wrap.OnlyTakesAndChecks(ops) || store.Patient(ctx) {
		return s.Inner.Apply(ctx, ops, outs)
	}
	for i := range ops {
		if ops[i].Params.Away == law.AwayShare {
			s.shares.start()
			break
		}
	}
	attempt, ok := s.breaker.begin()
	if !ok {
		return s.fallback(ops, outs, s.breaker.awayErr())
	}
	err := s.Inner.Apply(ctx, ops, outs)
	s.breaker.finish(attempt, outage(ctx, outs, err))
	switch {
	case err != nil && away(ctx, err):
		return s.fallback(ops, outs, err)
	case err != nil:
		store.Void(outs)
		return err
	}
	for i, j := 0, law.GroupEnd(ops, 0); i < len(ops); i, j = j, law.GroupEnd(ops, j) {
		for k := i; k < j; k++ {
			if e := outs[k].Err; e != nil && away(ctx, e) {
				if e = s.fallback(ops[i:j], outs[i:j], e); e != nil {
					law.FailAll(outs[i:j], e)
				}
				break
			}
		}
	}
	return nil
}

// away reports whether an error means that the store cannot decide now. Errors that a caller can cause by bad input, by
// very many keys, or by leaving do not count.
func away(ctx context.Context, err error) bool {
	if errors.Is(ctx.Err(), context.Canceled) { // the caller has left
		return false
	}
	switch class := store.Class(err); {
	case class == nil:
		return errors.Is(err, context.DeadlineExceeded)
	case errors.Is(class, store.ErrFull):
		return false
	default:
		return errors.Is(class, store.ErrUnavailable) || errors.Is(class, store.ErrReadOnly) ||
			errors.Is(class, store.ErrUnknownOutcome) || errors.Is(class, store.ErrConflict)
	}
}

// outage returns an error if the store as a whole seems to be away, else nil. A conflict before the deadline is an
// answer, and so is any outcome without an error. The error of a store that is not open yet does not count: it fails at
// once, and an open breaker would keep it away for another half second after it has opened.
func outage(ctx context.Context, outs []law.Outcome, err error) error {
	if err == nil {
		for i := range outs {
			if outs[i].Err == nil {
				return nil
			}
			err = outs[i].Err
		}
		if err == nil {
			return nil
		}
	}
	if !away(ctx, err) || errors.Is(err, store.ErrConflict) && ctx.Err() == nil || errors.Is(err, pending.ErrNotOpen) {
		return nil
	}
	return err
}

// Close implements store.Store. It also gives back the share of this process.
func (s *Store) Close() error {
	s.shares.close()
	return s.Inner.Close()
}
