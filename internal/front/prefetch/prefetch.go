// Package prefetch lets a process take tokens up front and hand them out without calling the store for each.
//
// It works for limits with a prefetch, "token-bucket 1000/s prefetch 10%", and for requests with one charge. Every
// token is charged in the store before it is handed out, and at most the prefetch's life before. So the limit's bound
// grows by what drains in a life, for any number of processes, and if a process is killed only the tokens that it held
// are lost. How much a process takes depends on what it has handed out lately, up to the prefetch.
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
	// maxKeys is how many keys have tokens at a time. The tokens of a key that is evicted are lost.
	maxKeys = 100_000
	// returnTimeout bounds how long Close takes to give tokens back, in batches of maxReturns ops.
	returnTimeout = 5 * time.Second
	maxReturns    = 256
)

// Store is a store in front of another. It is safe for concurrent use.
type Store struct {
	wrap.Inner
	locals    *otter.Cache[law.Cell, *localTokens]
	startTime time.Time
	closed    atomic.Bool
	handedOut atomic.Int64
}

// New returns a store in front of inner, which Close closes too.
func New(inner store.Store) *Store {
	s := &Store{Inner: wrap.Around(inner), startTime: sched.Now()}
	s.locals = otter.Must(&otter.Options[law.Cell, *localTokens]{MaximumSize: maxKeys})
	return s
}

// now returns microseconds on a monotonic clock. It reads the clock exactly: with a clock that lags, tokens would be
// handed out beyond their life.
func (s *Store) now() int64 { return sched.Since(s.startTime).Microseconds() }

// HandedOut returns how many charges were granted out of local tokens, for metrics.
func (s *Store) HandedOut() int64 { return s.handedOut.Load() }

// TakeOne implements store.OneTaker.
func (s *Store) TakeOne(ctx context.Context, cell law.Cell, p *law.Params, cost int64) (b store.Brief, decided bool) {
	if p.Prefetch > 0 {
		if tokens, ok := s.locals.GetIfPresent(cell); ok && !s.closed.Load() && ctx.Err() == nil {
			if out, ok := tokens.handOut(p, cost, s.now()); ok {
				s.handedOut.Add(1)
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

// mayPrefetch reports whether an op may be granted out of a prefetch. An op that costs more than a prefetch holds goes
// to the store, and so do ops of a limit that blocks: if the store could grant only a part of the prefetch, it would
// block the key.
func mayPrefetch(op *law.Op) bool {
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
	if len(ops) == 1 && mayPrefetch(&ops[0]) && ops[0].Valid() == nil {
		return s.take(ctx, ops, outs)
	}
	if !wrap.OnlyTakesAndChecks(ops) {
		return s.apply(ctx, ops, outs)
	}
	var decided []int
	for i, j := 0, law.GroupEnd(ops, 0); i < len(ops); i, j = j, law.GroupEnd(ops, j) {
		if j == i+1 && mayPrefetch(&ops[i]) {
			if tokens, ok := s.locals.GetIfPresent(ops[i].Cell); ok {
				if out, ok := tokens.handOut(&ops[i].Params, ops[i].Cost, s.now()); ok {
					s.handedOut.Add(1)
					outs[i] = out
					decided = append(decided, i)
				}
			}
		}
	}
	if decided == nil {
		return s.apply(ctx, ops, outs)
	}
	undecided, index := wrap.Rest(ops, decided)
	if len(undecided) == 0 {
		return nil
	}
	answers := make([]law.Outcome, len(undecided))
	wrap.Join(outs, answers, index, s.apply(ctx, undecided, answers))
	return nil // even if the store failed: the outcomes of what was handed out must count
}

// apply calls the store, and drops the tokens of cells that are reset or blocked.
func (s *Store) apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
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
	if tokens, ok := s.locals.Invalidate(c); ok {
		tokens.discard()
	}
}

// take grants one charge out of local tokens, or fetches new ones with it, or waits for the fetch of another caller.
func (s *Store) take(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	op := &ops[0]
	for !s.closed.Load() {
		tokens, ok := s.locals.GetIfPresent(op.Cell)
		if !ok {
			tokens, _ = s.locals.SetIfAbsent(op.Cell, &localTokens{params: op.Params})
		}
		if tokens.params != op.Params { // the limit was changed
			s.drop(op.Cell)
			continue
		}
		out, wait, count, discarded := tokens.request(op, s.now())
		switch {
		case discarded: // the cache is about to drop or replace it
			continue
		case count > 0: // this caller calls the store for all waiters
			return s.fetch(ctx, tokens, *op, count, outs)
		case wait == nil:
			s.handedOut.Add(1)
			outs[0] = out
			return nil
		}
		fetched := sched.Either(wait.done, ctx.Done())
		tokens.stopWaiting(op.Cost)
		switch {
		case !fetched:
			return ctx.Err()
		case wait.err != nil:
			return wait.err
		}
		out, ok = tokens.handOut(&op.Params, op.Cost, s.now())
		if !ok && !wait.alsoRefuses(op) {
			continue
		}
		if outs[0] = wait.out; ok {
			s.handedOut.Add(1)
			outs[0] = out
		}
		return nil
	}
	return store.ErrClosed
}

// fetch takes count charges from the store: the caller's own one, and others whose credits tokens keeps.
func (s *Store) fetch(ctx context.Context, tokens *localTokens, op law.Op, count int64, outs []law.Outcome) error {
	sentAt := s.now()
	op.Count, op.Partial = count, count > 1
	ops := []law.Op{op}
	var answer [1]law.Outcome
	if err := s.Inner.Apply(ctx, ops, answer[:]); err != nil {
		waitersErr := err
		if ctx.Err() != nil { // only this caller's context has ended: a waiter fetches
			waitersErr = nil
		}
		tokens.failFetch(waitersErr)
		return err
	}
	outs[0] = tokens.finishFetch(&op, &answer[0], sentAt)
	return nil
}

// Close implements store.Store. The tokens are given back by the return rule, before inner is closed.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return s.Inner.Close()
	}
	var back []law.Op
	for _, tokens := range s.locals.All() {
		back = tokens.giveBack(s.now(), back)
	}
	s.locals.InvalidateAll()
	ctx, cancel := sched.WithTimeout(context.Background(), returnTimeout)
	defer cancel()
	var err error
	for len(back) > 0 && err == nil {
		n := min(len(back), maxReturns)
		err = s.Inner.Apply(ctx, back[:n], make([]law.Outcome, n))
		back = back[n:]
	}
	if errors.Is(err, store.ErrClosed) {
		err = nil
	}
	return errors.Join(err, s.Inner.Close())
}
