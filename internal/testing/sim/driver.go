package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// Apply is of the database's own driver, of which nothing is a matter of one process.
func (d *database) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	_, err := store.Retry(ctx, 10*time.Second, func() error { return d.once(ctx, ops, outs) },
		func(err error) bool { return errors.Is(err, store.ErrConflict) })
	return err
}

func (d *database) once(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	// The transaction goes on without the caller, so it has copies of its own.
	mine, answers := slices.Clone(ops), make([]law.Outcome, len(ops))
	came, err := d.trip(ctx, func() error { return d.transact(mine, answers) })
	if came {
		copy(outs, answers)
	}
	return err
}

// trip lets the server do something, and reports whether its answer has come.
func (d *database) trip(ctx context.Context, do func() error) (came bool, err error) {
	if d.s.chance(d.refused) {
		return false, fmt.Errorf("simulated: %w: connection refused", store.ErrUnavailable)
	}
	var said error
	switch d.send(d.p, func() { said = do() }).wait(ctx.Done()) {
	case answered:
		return true, said
	case broken:
		return false, fmt.Errorf("simulated: %w: connection lost", store.ErrUnknownOutcome)
	}
	return false, fmt.Errorf("simulated: %w: %w", store.ErrUnknownOutcome, ctx.Err())
}

func (d *database) Sweep(ctx context.Context, most int) (removed int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if d.full {
		return 0, fmt.Errorf("simulated: %w: the disk is full", store.ErrUnavailable)
	}
	return d.sweep(most), nil
}

func (d *database) Close() error { return nil }

// Cells implements store.Inspector, at once and without faults.
func (d *database) Cells(_ context.Context, q store.Query) (cells []store.Cell, clock int64, err error) {
	for cell, r := range d.rows {
		if (q.Limit == "" || q.Limit == cell.Limit) && (!q.HasKey || q.Key == cell.Key) {
			cells = append(cells, store.Cell{Cell: cell, State: r.State, Reason: r.Reason})
		}
	}
	slices.SortFunc(cells, func(a, b store.Cell) int { return a.Compare(b.Cell) })
	return cells, d.clock(), nil
}

// Entries returns none: what Inspect says of them is not recorded.
func (d *database) Entries(context.Context, law.Cell, int) ([]law.Entry, error) { return nil, nil }
