package mysql

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/internal/wrap"
)

// Apply implements store.Store.
func (s *Store) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	return s.route(ops, outs, func(ops []law.Op, outs []law.Outcome, n *node) error {
		return s.apply(ctx, n, ops, outs)
	})
}

// waitsKey is the key of a context's value that tells whether a batch gives way.
type waitsKey struct{}

func givesWay(ctx context.Context) bool { return ctx.Value(waitsKey{}) == true }

// ApplyFree implements store.Passer. On MariaDB a batch that is decided by sums waits for
// one second; all others wait as in Apply.
func (s *Store) ApplyFree(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	return s.Apply(context.WithValue(ctx, waitsKey{}, true), ops, outs)
}

// apply asks one node.
func (s *Store) apply(ctx context.Context, n *node, ops []law.Op, outs []law.Outcome) error {
	if s.standsAlone() && s.tries() {
		if b := newSums(ops); b != nil && (len(ops) > 1 || b.partial) {
			done, err := s.applySums(ctx, n, b, outs)
			if done || err != nil {
				return err
			}
			s.unsummed.Store(restFrom)
		}
	}
	return s.applyTexts(ctx, n, ops, outs)
}

// restFrom is how many batches are not tried by sums after one that could not be decided so:
// requests that are refused come together. makeFrom is how many are sent in the form that
// makes cells, after one that has made any.
const restFrom, makeFrom = 8, 8

// tries reports whether a batch is to be tried by sums.
func (s *Store) tries() bool {
	return s.unsummed.Load() <= 0 || s.unsummed.Add(-1) < 0
}

// applySums decides a batch by sums, and what these leave by texts. It reports false if it
// has done nothing.
func (s *Store) applySums(ctx context.Context, n *node, b *sums, outs []law.Outcome) (done bool, err error) {
	giveWay := givesWay(ctx) && len(b.cells) > 1
	ask := func(makes bool) ([]int64, error) {
		turn := strconv.FormatInt(s.turns.Add(1), 10)
		return s.sendSums(ctx, n, b.text(turn, makes), turn, giveWay)
	}
	makes := s.makes.Load() > 0
	answer, err := ask(makes)
	if !makes && knewTooLittle(err) {
		makes = true
		answer, err = ask(true)
	}
	var waited *lockWait
	switch {
	case knewTooLittle(err):
		return false, nil
	case errors.As(err, &waited):
		return s.applyFree(ctx, n, b, outs)
	case err != nil:
		return false, classify(fmt.Sprintf("apply %d ops", len(b.ops)), err)
	}
	decided, made, err := b.hear(answer, outs)
	switch {
	case made:
		s.makes.Store(makeFrom)
	case makes:
		s.makes.Add(-1)
	}
	if err != nil {
		store.Void(outs)
		return false, fmt.Errorf("mysql: apply %d ops: %w: %w", len(b.ops), store.ErrUnknownOutcome, err)
	}
	if len(decided) == len(b.ops) {
		return true, nil
	}
	rest, index := wrap.Rest(b.ops, decided)
	answers := make([]law.Outcome, len(rest))
	err = s.applyTexts(ctx, n, rest, answers)
	wrap.Join(outs, answers, index, err)
	if len(decided) > 0 {
		err = nil // it is the error of those
	}
	return true, err
}

// applyFree decides those groups of a batch of which nobody else holds a cell. Cells that
// are not there count as held: they are soon asked for without the others.
func (s *Store) applyFree(ctx context.Context, n *node, b *sums, outs []law.Outcome) (done bool, err error) {
	held, err := s.heldOf(ctx, n, b)
	if err != nil {
		return false, classify(fmt.Sprintf("apply %d ops", len(b.ops)), err)
	}
	some := make([]bool, len(b.ops))
	for i := range b.ops {
		some[i] = held[b.ops[i].Cell]
	}
	ctx = context.WithValue(ctx, waitsKey{}, false)
	return true, wrap.PassBy(ctx, b.ops, outs, some, func(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
		return s.apply(ctx, n, ops, outs)
	})
}

// heldOf returns the cells of a batch that somebody holds, or that are not there.
func (s *Store) heldOf(ctx context.Context, n *node, b *sums) (held map[law.Cell]bool, err error) {
	held = make(map[law.Cell]bool, len(b.cells))
	for k := range b.cells {
		held[b.ops[b.cells[k].head].Cell] = true
	}
	rows, err := n.db.QueryContext(ctx, b.free())
	if err != nil {
		return nil, &undone{err}
	}
	defer rows.Close()
	for rows.Next() {
		var c law.Cell
		if err := rows.Scan(&c.Limit, &c.Key); err != nil {
			return nil, &undone{err}
		}
		delete(held, c)
	}
	if err := rows.Err(); err != nil {
		return nil, &undone{err}
	}
	return held, nil
}
