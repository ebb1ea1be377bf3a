package mysql

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// standsAlone reports whether a statement that commits by itself may decide a batch, if that
// has no shared cells.
func (s *Store) standsAlone() bool {
	return s.own && s.tx == nil && s.returning.Load() && !s.galera.Load() && !s.group.Load() && !s.rooms.full.Load()
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
		full: s.rooms.full.Load() || p.mayBeFull(), parts: s.extended.Load(),
	}
	if !at.full && s.standsAlone() && p.lone() {
		decided, err := s.applyOne(ctx, n, p, &outs[0])
		if err != nil || decided {
			return err
		}
		at.full = s.rooms.full.Load()
	}
	heard, err := s.sendText(ctx, n, p, at)
	if err != nil {
		return classify(fmt.Sprintf("apply %d ops", len(ops)), err)
	}
	if heard.sharing.Valid {
		s.rooms.full.Store(heard.sharing.Bool)
	}
	if err := p.hear(heard.records, heard.entries, outs); err != nil {
		return fmt.Errorf("mysql: apply %d ops: %w", len(ops), err)
	}
	if p.plain != nil && p.left == 0 {
		s.unsummed.Store(0)
	}
	return nil
}

// sendText sends a batch, and once more where the text knew too little: a limit has begun to share, or a request that
// is settled was extended. Both fail with the same error, so the second text knows of both.
func (s *Store) sendText(ctx context.Context, n *node, p *plan, at site) (answer, error) {
	heard, err := s.send(ctx, n, p.text(at))
	settles := p.has(func(s *shape) bool { return s.Settle })
	if !mentionsFull(err) || at.full && (at.parts || !settles) {
		return heard, err
	}
	s.rooms.full.Store(true)
	at.full, at.parts = true, true
	heard, err = s.send(ctx, n, p.text(at))
	if err == nil && settles && !heard.sharing.Bool {
		s.extended.Store(true)
	}
	return heard, err
}

// applyOne decides a lone charge by one statement, and reports false if that has done
// nothing because the general way has to.
func (s *Store) applyOne(ctx context.Context, n *node, p *plan, out *law.Outcome) (decided bool, err error) {
	fresh := s.fresh.Load()
	answer, err := s.sendOne(ctx, n, p.one(fresh, s.turns.Add(1)))
	if !fresh && mentionsFull(err) { // a new key
		answer, err = s.sendOne(ctx, n, p.one(true, s.turns.Add(1)))
	}
	if mentionsFull(err) { // a limit has begun to share
		s.rooms.full.Store(true)
		return false, nil
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
