package mysql

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/internal/wrap"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// Apply implements store.Store. If a batch of several cells with store.PassHeld waits too long for a lock, applyFree
// decides what is not locked: over connections of Open after a second, in a transaction of the caller never.
func (s *Store) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	return s.route(ops, outs, func(ops []law.Op, outs []law.Outcome, n *node) error {
		return s.apply(ctx, n, ops, outs)
	})
}

// apply applies a batch on one node. A statement that commits by itself decides plain charges. Then applyRows decides
// the other ops. No such op stands before a charge of its cell that the statement has decided.
func (s *Store) apply(ctx context.Context, n *node, ops []law.Op, outs []law.Outcome) error {
	decided, err := s.applyPlain(ctx, n, ops, outs)
	switch {
	case lockWait.in(err):
		return s.applyFree(ctx, n, ops, outs)
	case err != nil:
		store.Void(outs)
		return classify(fmt.Sprintf("apply %d ops", len(ops)), err)
	case len(decided) == len(ops):
		return nil
	case len(decided) == 0:
		return s.applyRows(ctx, n, ops, outs)
	}
	rest, index := wrap.Rest(ops, decided)
	answers := make([]law.Outcome, len(rest))
	wrap.Join(outs, answers, index, s.applyRows(ctx, n, rest, answers))
	return nil
}

// applyPlain decides what it can of a batch by one statement, and returns the indices of the ops that it has decided.
// It decides nothing on a node of a cluster, which may repeat a statement by itself after another node has won, and
// nothing on a pool or in a transaction of the caller, who may change the session.
func (s *Store) applyPlain(ctx context.Context, n *node, ops []law.Op, outs []law.Outcome) (decided []int, err error) {
	if !s.ownPools || s.tx != nil || s.galera.Load() || s.groupRepl.Load() {
		return nil, nil
	}
	send := s.sendSingle
	switch {
	case s.hasReturning.Load() && len(ops) > 1:
		send = s.sendSums
	case len(ops) > 1:
		return nil, nil
	case !s.hasReturning.Load():
		send = s.sendCall
	}
	b := newSums(ops)
	if b == nil {
		return nil, nil
	}
	answer, err := send(ctx, n, b)
	if err != nil || answer == nil {
		return nil, err
	}
	return b.decode(answer, outs)
}
