package mysql

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// standsAlone reports whether a statement that commits by itself may decide a batch.
func (s *Store) standsAlone() bool {
	return s.own && s.tx == nil && s.returning.Load() && !s.galera.Load() && !s.group.Load()
}

// applyTexts decides a batch in the ways that are open to all: a lone charge, else one text.
func (s *Store) applyTexts(ctx context.Context, n *node, ops []law.Op, outs []law.Outcome) error {
	p := newPlainPlan(ops)
	if p == nil {
		p = newPlan(ops, outs)
	}
	if len(p.runs) == 0 {
		return nil
	}
	at := site{
		own: s.tx == nil, foreign: !s.own, galera: s.galera.Load(), group: s.group.Load(),
		snapshots: s.snapshots.Load(), values: s.returning.Load(),
		parts: s.extended.Load(),
	}
	if s.standsAlone() && p.lone() {
		decided, err := s.applyOne(ctx, n, p, &outs[0])
		if err != nil || decided {
			return err
		}
	}
	heard, err := s.sendText(ctx, n, p, at)
	if err != nil {
		return classify(fmt.Sprintf("apply %d ops", len(ops)), err)
	}
	if err := p.hear(heard.records, heard.entries, outs); err != nil {
		return fmt.Errorf("mysql: apply %d ops: %w", len(ops), err)
	}
	if p.plain != nil && p.left == 0 {
		s.unsummed.Store(0)
	}
	return nil
}

// sendText sends a batch, and once more where the text knew too little: a request that is settled was extended.
func (s *Store) sendText(ctx context.Context, n *node, p *plan, at site) (answer, error) {
	heard, err := s.send(ctx, n, p.text(at))
	if !knewTooLittle(err) || at.parts || !p.has(func(s *shape) bool { return s.Settle }) {
		return heard, err
	}
	at.parts = true
	if heard, err = s.send(ctx, n, p.text(at)); err == nil {
		s.extended.Store(true)
	}
	return heard, err
}

// applyOne decides a lone charge by one statement, and reports false if that has done
// nothing because the general way has to.
func (s *Store) applyOne(ctx context.Context, n *node, p *plan, out *law.Outcome) (decided bool, err error) {
	fresh := s.fresh.Load()
	answer, err := s.sendOne(ctx, n, p.one(fresh, s.turns.Add(1)))
	if !fresh && knewTooLittle(err) { // a new key
		answer, err = s.sendOne(ctx, n, p.one(true, s.turns.Add(1)))
	}
	if err != nil {
		return false, classify("apply 1 op", err)
	}
	decided, made, err := p.hearOne(answer, out)
	if err != nil {
		return false, fmt.Errorf("mysql: apply 1 op: %w: %w", store.ErrUnknownOutcome, err)
	}
	if made != fresh {
		s.fresh.Store(made)
	}
	return decided, nil
}
