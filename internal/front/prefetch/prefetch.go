// Package prefetch lets a node take tokens up front and hand them out without
// calling the store for each.
//
// Only limits that ask for it have fetches, "token-bucket 1000/s prefetch 10%", and
// of them only charges that come alone. Every token is paid for in the store
// before it is handed out, and at most the prefetch's life before: so the limit's
// bound grows by what flows in a life, for any number of nodes, and a node that
// is killed takes with it only what it held. How much a node takes follows what
// it has handed out lately, up to the prefetch.
package prefetch

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"

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

const (
	// maxKeys is how many keys have fetches at a time. What is held of a key that gives way to another is lost.
	maxKeys = 100_000
	// returnWithin bounds what Close gives back.
	returnWithin = 5 * time.Second
)

// Store is a store in front of another. It is safe for concurrent use.
type Store struct {
	wrap.Inner
	locals *otter.Cache[law.Cell, *localTokens]
	born   time.Time
	closed atomic.Bool
	handed atomic.Int64
}

// New returns a store in front of inner, which Close closes too.
func New(inner store.Store) *Store {
	s := &Store{Inner: wrap.Around(inner), born: sched.Now()}
	s.locals = otter.Must(&otter.Options[law.Cell, *localTokens]{MaximumSize: maxKeys})
	return s
}

// now returns microseconds on a clock that is never set back, and is read exactly: a clock that lags would hand tokens
// out beyond their life.
func (s *Store) now() int64 { return sched.Since(s.born).Microseconds() }

// Handed returns how many charges were granted out of fetches: for metrics.
func (s *Store) Handed() int64 { return s.handed.Load() }

// TakeOne implements store.OneTaker.
func (s *Store) TakeOne(ctx context.Context, cell law.Cell, p *law.Params, cost int64) (b store.Brief, decided bool) {
	if p.Prefetch > 0 {
		if h, ok := s.locals.GetIfPresent(cell); ok && !s.closed.Load() && ctx.Err() == nil {
			if out, ok := h.hand(p, cost, s.now()); ok {
				s.handed.Add(1)
				return store.Brief{
					Granted: true, Via: law.ViaPrefetch, Used: out.Used, Clock: out.Clock,
					At:      max(out.Clock, out.State.At),
					EmptyAt: max(out.State.EmptyAt, out.State.BlockedUntil),
				}, true
			}
		}
		return store.Brief{}, false
	}
	return s.Inner.TakeOne(ctx, cell, p, cost)
}

// prefetching reports whether an op may be granted out of a prefetch. One that costs
// more than a prefetch holds goes to the store, and so do those of a limit that
// blocks: a prefetch that the store cannot fill would be a refusal.
func prefetching(op *law.Op) bool {
	p := &op.Params
	return 0 < op.Cost && op.Cost <= p.Prefetch && op.Plain() && p.PrefetchLife > 0 && p.Kind == law.Bucket &&
		p.Block == 0 && op.Now == 0
}

// Apply implements store.Store.
func (s *Store) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.closed.Load() {
		return store.ErrClosed
	}
	if len(ops) == 1 && prefetching(&ops[0]) && ops[0].Valid() == nil {
		return s.take(ctx, ops, outs)
	}
	if !wrap.Asks(ops) {
		return s.ask(ctx, ops, outs)
	}
	var skip []int
	for i, j := 0, law.GroupEnd(ops, 0); i < len(ops); i, j = j, law.GroupEnd(ops, j) {
		if j == i+1 && prefetching(&ops[i]) {
			if h, ok := s.locals.GetIfPresent(ops[i].Cell); ok {
				if out, ok := h.hand(&ops[i].Params, ops[i].Cost, s.now()); ok {
					s.handed.Add(1)
					outs[i] = out
					skip = append(skip, i)
				}
			}
		}
	}
	if skip == nil {
		return s.ask(ctx, ops, outs)
	}
	rest, index := wrap.Rest(ops, skip)
	if len(rest) == 0 {
		return nil
	}
	answers := make([]law.Outcome, len(rest))
	wrap.Join(outs, answers, index, s.ask(ctx, rest, answers))
	return nil // what was handed out is charged: those callers must hear of it
}

// ask calls the store, and drops the fetches of cells that are reset or blocked.
func (s *Store) ask(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	defer func() {
		for i := range ops {
			if v := ops[i].Verb; v == law.Reset || v == law.Block {
				s.drop(ops[i].Cell)
			}
		}
	}()
	err := s.Inner.Apply(ctx, ops, outs)
	if err != nil {
		store.Void(outs)
	}
	return err
}

func (s *Store) drop(c law.Cell) {
	if h, ok := s.locals.Invalidate(c); ok {
		h.end()
	}
}

// take takes one charge out of a prefetch, or takes a new prefetch with it.
func (s *Store) take(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	op := &ops[0]
	for !s.closed.Load() {
		h, ok := s.locals.GetIfPresent(op.Cell)
		if !ok {
			h, _ = s.locals.SetIfAbsent(op.Cell, newLocalTokens(op.Params))
		}
		if h.params != op.Params { // the limit was changed
			s.drop(op.Cell)
			continue
		}
		out, wait, count, ended := h.ask(op, s.now())
		switch {
		case ended: // it is on its way out of the cache, or another is in its place
			continue
		case count > 0: // this caller goes to the store, for all who wait
			return s.fetch(ctx, h, *op, count, outs)
		case wait == nil:
			s.handed.Add(1)
			outs[0] = out
			return nil
		}
		landed := sched.Either(wait.done, ctx.Done())
		h.leave(op.Cost)
		switch {
		case !landed:
			return ctx.Err()
		case wait.err != nil:
			return wait.err
		}
		out, ok = h.hand(&op.Params, op.Cost, s.now())
		if !ok && !wait.refused(op) {
			continue
		}
		if outs[0] = wait.out; ok {
			s.handed.Add(1)
			outs[0] = out
		}
		return nil
	}
	return store.ErrClosed
}

// fetch takes a charge and a new prefetch, of count charges together.
func (s *Store) fetch(ctx context.Context, h *localTokens, op law.Op, count int64, outs []law.Outcome) error {
	sent := s.now()
	op.Count, op.Partial = count, count > 1
	ops := []law.Op{op}
	var answer [1]law.Outcome
	if err := s.Inner.Apply(ctx, ops, answer[:]); err != nil {
		shared := err
		if ctx.Err() != nil { // this caller's own end: let another go
			shared = nil
		}
		h.failed(shared)
		return err
	}
	outs[0] = h.fetched(&op, &answer[0], sent)
	return nil
}

// Close implements store.Store. What is held is given back by the return rule.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return s.Inner.Close()
	}
	var back []law.Op
	for _, h := range s.locals.All() {
		back = h.giveBack(s.now(), back)
	}
	s.locals.InvalidateAll()
	ctx, cancel := sched.WithTimeout(context.Background(), returnWithin)
	defer cancel()
	var failed error
	for len(back) > 0 && failed == nil {
		n := min(len(back), 256)
		failed = s.Inner.Apply(ctx, back[:n], make([]law.Outcome, n))
		back = back[n:]
	}
	if errors.Is(failed, store.ErrClosed) {
		failed = nil
	}
	return errors.Join(failed, s.Inner.Close())
}
