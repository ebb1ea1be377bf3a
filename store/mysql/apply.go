package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

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

// apply calls one node.
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
	if isLone(ops) {
		decided := false
		var err error
		switch {
		case s.standsAlone():
			decided, err = s.applyOne(ctx, n, &ops[0], &outs[0])
		case s.calls() && isCallable(&ops[0]):
			decided, err = s.applyCall(ctx, n, ops, outs)
		}
		if err != nil || decided {
			return err
		}
	}
	return s.applyRows(ctx, n, ops, outs)
}

// standsAlone reports whether a statement that commits by itself may decide a batch.
func (s *Store) standsAlone() bool {
	return s.own && s.tx == nil && s.returning.Load() && !s.galera.Load() && !s.group.Load()
}

// applyOne decides a lone charge by one statement, and reports false if that has done
// nothing because the general way has to.
func (s *Store) applyOne(ctx context.Context, n *node, op *law.Op, out *law.Outcome) (decided bool, err error) {
	l := loneOf(op, s.turns.Add(1))
	var answer []int64
	err = s.retry(ctx, n, func(n *node) error {
		return askAlone(ctx, n, l.turn, func(c *ownConn) (err error) {
			answer, err = c.askOne(ctx, l)
			return err
		})
	})
	if err != nil {
		return false, classify("apply 1 op", err)
	}
	if decided, err = hearOne(op, answer, out); err != nil {
		return false, fmt.Errorf("mysql: apply 1 op: %w: %w", store.ErrUnknownOutcome, err)
	}
	return decided, nil
}

// restFrom is how many batches are not tried by sums after one that could not be decided so:
// requests that are refused come together. makeFrom is how many are sent in the form that
// makes cells, after one that has made any.
const restFrom, makeFrom = 8, 8

// tries reports whether a batch is to be tried by sums.
func (s *Store) tries() bool {
	return s.unsummed.Load() <= 0 || s.unsummed.Add(-1) < 0
}

// applySums decides a batch by sums, and what these leave by rows. It reports false if it
// has done nothing.
func (s *Store) applySums(ctx context.Context, n *node, b *sums, outs []law.Outcome) (done bool, err error) {
	giveWay := store.PassesHeld(ctx) && len(b.cells) > 1
	var answer []int64
	ask := func(makes bool) error {
		turn := strconv.FormatInt(s.turns.Add(1), 10)
		text := b.text(turn, makes)
		return s.retry(ctx, n, func(n *node) error {
			err := askAlone(ctx, n, turn, func(c *ownConn) (err error) {
				answer, err = c.askSums(ctx, text, answer[:0])
				return err
			})
			if number, _ := numberOf(err); number == errLockWait && giveWay { // not to be repeated
				return lockWait.of(err)
			}
			return err
		})
	}
	makes := s.makes.Load() > 0
	err = ask(makes)
	if !makes && knewTooLittle(err) {
		makes = true
		err = ask(true)
	}
	switch {
	case knewTooLittle(err):
		return false, nil
	case lockWait.on(err):
		return true, s.applyFree(ctx, n, b.ops, outs)
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
	err = s.applyRows(ctx, n, rest, answers)
	wrap.Join(outs, answers, index, err)
	if len(decided) > 0 {
		err = nil // it is the error of those
	}
	return true, err
}

// applyFree decides those groups of a batch of which nobody else holds a cell. Cells that
// are not there count as held: they are soon asked for without the others.
func (s *Store) applyFree(ctx context.Context, n *node, ops []law.Op, outs []law.Outcome) error {
	cells := make([]law.Cell, len(ops))
	for i := range ops {
		cells[i] = ops[i].Cell
	}
	slices.SortFunc(cells, law.Cell.Compare)
	cells = slices.Compact(cells)
	held := make([]bool, len(ops))
	err := holdFree(ctx, n, cells, func(_ *sql.Conn, free []law.Cell) error {
		for i := range ops {
			_, found := slices.BinarySearchFunc(free, ops[i].Cell, law.Cell.Compare)
			held[i] = !found
		}
		return nil
	})
	if err != nil {
		return classify(fmt.Sprintf("apply %d ops", len(ops)), undone.of(err))
	}
	ctx = store.PassHeld(ctx, false)
	return wrap.PassBy(ctx, ops, outs, held, func(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
		return s.apply(ctx, n, ops, outs)
	})
}

// holdFree has do work in a transaction in which those of some cells are locked that are there, and that nobody else
// holds. What do does not commit is rolled back.
func holdFree(ctx context.Context, n *node, cells []law.Cell, do func(*sql.Conn, []law.Cell) error) error {
	conn, err := n.db.Conn(ctx)
	if err != nil {
		return notSent.of(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var free []law.Cell
	if _, err = conn.ExecContext(ctx, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;START TRANSACTION;"+
		"SAVEPOINT headgate"); err == nil {
		free, err = findFree(ctx, conn, cells)
	}
	if err == nil {
		err = do(conn, free)
	}
	_, _ = abandon(ctx, conn, "")
	return err
}

// findFree locks those of some cells, which are in order, that are there and that nobody holds, and returns them in
// order. Where one of them is held, it asks about each half. TiDB accepts SKIP LOCKED, and then locks nothing.
func findFree(ctx context.Context, conn *sql.Conn, cells []law.Cell) ([]law.Cell, error) {
	var b strings.Builder
	b.WriteString("SELECT limit_name,cell_key FROM headgate_cells FORCE INDEX (PRIMARY) WHERE ")
	ofCells(&b, cells)
	free, err := readList(ctx, conn, b.String()+" ORDER BY limit_name,cell_key FOR UPDATE NOWAIT",
		func(c *law.Cell) []any { return []any{&c.Limit, &c.Key} })
	switch {
	case err == nil:
		return free, nil
	case !errors.Is(class(err), store.ErrConflict):
		return nil, err
	case len(cells) == 1:
		return nil, nil
	}
	first, err := findFree(ctx, conn, cells[:len(cells)/2])
	if err != nil {
		return nil, err
	}
	second, err := findFree(ctx, conn, cells[len(cells)/2:])
	return append(first, second...), err
}
