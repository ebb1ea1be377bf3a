package mysql

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/internal/wrap"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// Apply implements store.Store. A batch of store.PassHeld waits for one second at most; in a transaction of the
// caller's and on pools of the caller's it waits for as long as any other.
func (s *Store) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	return s.route(ops, outs, func(ops []law.Op, outs []law.Outcome, n *node) error {
		return s.apply(ctx, n, ops, outs)
	})
}

// apply calls one node. A statement that commits by itself decides plain charges; what it leaves is decided by rows,
// and comes after all that the statement has decided on its cells.
func (s *Store) apply(ctx context.Context, n *node, ops []law.Op, outs []law.Outcome) error {
	decided, err := s.applyPlain(ctx, n, ops, outs)
	switch {
	case lockWait.on(err):
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

// applyPlain decides what it can of a batch by one statement, and returns which ops those are. A node of a cluster
// may repeat a statement by itself after another node has won; others may change the sessions of a caller's pool.
func (s *Store) applyPlain(ctx context.Context, n *node, ops []law.Op, outs []law.Outcome) (decided []int, err error) {
	if !s.own || s.tx != nil || s.galera.Load() || s.group.Load() {
		return nil, nil
	}
	ask := s.askOne
	switch {
	case s.returning.Load() && len(ops) > 1:
		ask = s.askSums
	case len(ops) > 1:
		return nil, nil
	case !s.returning.Load():
		ask = s.askCall
	}
	b := newSums(ops)
	if b == nil {
		return nil, nil
	}
	answer, err := ask(ctx, n, b)
	if err != nil || answer == nil {
		return nil, err
	}
	return b.read(answer, outs)
}
