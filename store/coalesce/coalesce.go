// Package coalesce lets callers who wait for a store share its round trips.
//
// While one batch for a shard of keys is under way, newcomers queue; when it
// has come back, all of them go in the next one. There is no timer, and a
// caller who comes alone waits for nobody. Callers who ask the same of one cell
// become one op with a count: one update of a row decides for everyone who
// waits. What they are granted is handed out in the order in which they came.
package coalesce

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/flight"
	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

var (
	_ store.Store     = (*Store)(nil)
	_ store.Unwrapper = (*Store)(nil)
)

// Config adjusts a Store. A nil Config, and every zero field, is fine.
type Config struct {
	// Flights is how many batches may be under way at once, each with keys of
	// its own. Zero: what the store below asks for (store.Parallel), else 4.
	Flights int
	// MaxOps is how many ops a batch has at most, but for those of the last
	// caller to join. A caller who brings half as many or more goes alone.
	// Zero: 512.
	MaxOps int
	// MaxWaiting is how many callers may wait for a flight. Who comes then
	// gets store.ErrBusy at once. Zero: 100,000.
	MaxWaiting int
	// Timeout bounds a batch, which no caller's context does: it goes on when
	// the caller who came first leaves. Zero: 10 s.
	Timeout time.Duration
	// Observer hears of every batch. Nil: none.
	Observer store.Observer
}

func (c *Config) orDefault(inner store.Store) Config {
	var d Config
	if c != nil {
		d = *c
	}
	if d.Flights <= 0 {
		d.Flights = 4
		if p, ok := store.As[store.Parallel](inner); ok {
			d.Flights = p.Parallel()
		}
	}
	if d.MaxOps <= 0 {
		d.MaxOps = 512
	}
	if d.MaxWaiting <= 0 {
		d.MaxWaiting = 100_000
	}
	if d.Timeout <= 0 {
		d.Timeout = 10 * time.Second
	}
	return d
}

// Store is a store in front of another. It is safe for concurrent use. Its
// goroutines run only while callers wait, or while it gives back what was
// granted to callers that had left.
//
// A caller whose context ends before its batch has left was not there, and gets
// store.ErrUnavailable. One that leaves later gets store.ErrUnknownOutcome: it is
// charged, and what it was granted is given back by the return rule; but not if it has
// an ID, under which the answer can be had again.
type Store struct {
	inner store.Store
	cfg   Config
	seed  maphash.Seed
	lines []*flight.Line[*batch]
	busy  sync.WaitGroup // lines with flights

	batches, ops, callers atomic.Int64 // that were sent
}

// Stats are counts since New.
type Stats struct {
	Batches int64 // batches that were sent to the store below
	Ops     int64 // ops in these batches
	Callers int64 // callers who shared these batches
}

// Stats returns the counts of now. It is safe for concurrent use. The counts are
// read one after another, so a batch that leaves meanwhile may be in some only.
func (s *Store) Stats() Stats {
	return Stats{Batches: s.batches.Load(), Ops: s.ops.Load(), Callers: s.callers.Load()}
}

func (s *Store) sent(ops, callers int) {
	s.batches.Add(1)
	s.ops.Add(int64(ops))
	s.callers.Add(int64(callers))
}

// New returns a store in front of inner, which Close closes too.
func New(inner store.Store, cfg *Config) *Store {
	s := &Store{inner: inner, cfg: cfg.orDefault(inner), seed: maphash.MakeSeed()}
	room := max(1, s.cfg.MaxWaiting/s.cfg.Flights)
	for range s.cfg.Flights {
		s.lines = append(s.lines, flight.NewLine(room, &s.busy, s.newBatch, s.fly, s.land))
	}
	return s
}

func (s *Store) newBatch() *batch {
	return &batch{most: s.cfg.MaxOps, last: map[law.Cell]int{}}
}

// Unwrap implements store.Unwrapper.
func (s *Store) Unwrap() store.Store { return s.inner }

// Apply implements store.Store.
func (s *Store) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(ops) == 0 {
		return nil
	}
	if 2*len(ops) >= s.cfg.MaxOps {
		s.sent(len(ops), 1)
		if err := s.inner.Apply(ctx, ops, outs); err != nil {
			store.Void(outs)
			return err
		}
		return nil
	}
	f, t, err := s.join(ops)
	if err != nil {
		return err
	}
	sent := false
	landed := f.Wait(ctx, func(c *batch, departed bool) {
		if sent = departed; departed {
			c.left = append(c.left, t)
		} else {
			c.leave(t)
		}
	})
	if !landed {
		return leftEarly(ctx, ops, sent)
	}
	if err = f.Err(); err != nil && f.Batch.failed(t) {
		err = nil // its own errors say more
	}
	if err == nil {
		f.Batch.answer(t, outs)
	}
	f.Leave()
	return err
}

// leftEarly is the error of a caller whose context ended before the answer came.
func leftEarly(ctx context.Context, ops []law.Op, sent bool) error {
	charges := slices.ContainsFunc(ops, func(op law.Op) bool { return op.Verb != law.Check })
	if sent && charges {
		return fmt.Errorf("coalesce: %w: %w", store.ErrUnknownOutcome, ctx.Err())
	}
	return fmt.Errorf("coalesce: %w: %w", store.ErrUnavailable, ctx.Err())
}

func (s *Store) join(ops []law.Op) (*flight.Flight[*batch], place, error) {
	line := s.lines[0]
	if len(s.lines) > 1 {
		line = s.lines[sched.Hash(s.seed, ops[0].Cell)%uint64(len(s.lines))]
	}
	f, err := line.Board()
	switch {
	case errors.Is(err, flight.ErrClosed):
		return nil, place{}, store.ErrClosed
	case err != nil:
		return nil, place{}, fmt.Errorf("coalesce: %w: as many as may, %d", store.ErrBusy, s.cfg.MaxWaiting)
	}
	t := f.Batch.join(ops)
	f.Boarded()
	return f, t, nil
}

// fly asks the store.
func (s *Store) fly(c *batch) error {
	ctx, cancel := sched.WithTimeout(context.Background(), s.cfg.Timeout)
	defer cancel()
	c.depart()
	s.sent(len(c.ops), c.callers)
	if s.cfg.Observer == nil {
		return s.inner.Apply(ctx, c.ops, c.outs)
	}
	begin := sched.Now()
	err := s.inner.Apply(ctx, c.ops, c.outs)
	s.cfg.Observer.Batched(store.Batch{Callers: c.callers, Ops: len(c.ops), Took: sched.Since(begin), Err: err})
	return err
}

// land gives back what those were granted who left after departure. Where the
// store failed nobody knows of a grant.
func (s *Store) land(c *batch, err error) {
	if err != nil {
		return
	}
	var back []law.Op
	for _, t := range c.left {
		back = c.giveBack(t, back)
	}
	if len(back) == 0 {
		return
	}
	ctx, cancel := sched.WithTimeout(context.Background(), s.cfg.Timeout)
	defer cancel()
	// If this fails they stay charged, as a caller who breaks off must expect.
	_ = s.inner.Apply(ctx, back, make([]law.Outcome, len(back)))
}

// Sweep implements store.Store.
func (s *Store) Sweep(ctx context.Context, max int) (removed int, err error) {
	return s.inner.Sweep(ctx, max)
}

// Close implements store.Store: who waits is still answered.
func (s *Store) Close() error {
	for _, l := range s.lines {
		l.Close()
	}
	s.busy.Wait()
	return s.inner.Close()
}
