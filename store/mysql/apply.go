package mysql

import (
	"context"
	"fmt"
	"slices"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store/internal/overflow"
)

// Apply implements store.Store.
func (s *Store) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	apply := s.applyRouted
	var later error
	if s.tx != nil { // what the second question does to the transaction is of all groups
		apply = func(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
			later = s.applyRouted(ctx, ops, outs)
			return later
		}
	}
	if err := overflow.Apply(ctx, ops, outs, apply, &s.rooms.shared); err != nil {
		return err
	}
	s.saw(ops, outs)
	return later
}

// applyRouted is Apply, but for full limits.
func (s *Store) applyRouted(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	return s.route(ops, outs, func(ops []law.Op, outs []law.Outcome, n *node) error {
		return s.apply(ctx, n, ops, outs)
	})
}

func (s *Store) apply(ctx context.Context, n *node, ops []law.Op, outs []law.Outcome) error {
	p := newPlainPlan(ops)
	if p == nil {
		p = newPlan(ops, outs)
	}
	if len(p.runs) == 0 {
		return nil
	}
	at := site{
		own: s.tx == nil, foreign: !s.own, galera: s.galera.Load(), group: s.group.Load(),
		snapshots: s.snapshots.Load(), full: s.rooms.full.Load() || p.mayBeFull(),
	}
	heard, err := s.send(ctx, n, p.text(at))
	if !at.full && mentionsFull(err) { // a limit has begun to share
		s.rooms.full.Store(true)
		at.full = true
		heard, err = s.send(ctx, n, p.text(at))
	}
	if err != nil {
		return classify(fmt.Sprintf("apply %d ops", len(ops)), err)
	}
	if heard.sharing.Valid {
		s.rooms.full.Store(heard.sharing.Bool)
	}
	if err := p.hear(heard.records, heard.entries, outs); err != nil {
		return fmt.Errorf("mysql: apply %d ops: %w", len(ops), err)
	}
	return nil
}

// saw counts the keys of a limit soon when many seem new: what was granted is all that
// is in use.
func (s *Store) saw(ops []law.Op, outs []law.Outcome) {
	r := s.rooms
	var soon []string
	for i := range ops {
		op, out := &ops[i], &outs[i]
		if op.Params.MaxKeys > 0 {
			r.note(op)
		}
		if r.every.Load() > 0 && op.Verb == law.Take && out.Granted > 0 && !out.Shared &&
			out.Used == op.Cost*out.Granted {
			if r.comes(op.Cell.Limit) && !slices.Contains(soon, op.Cell.Limit) {
				soon = append(soon, op.Cell.Limit)
			}
		}
	}
	if len(soon) > 0 && s.tx == nil {
		s.countSoon(soon)
	}
}
