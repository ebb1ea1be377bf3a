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

// Apply implements store.Store as a driver of the database does. The driver keeps no state in its process.
func (d *database) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	attempt := func() error {
		// The transaction may go on after the caller has left, so it needs copies of its own.
		opsCopy, answers := slices.Clone(ops), make([]law.Outcome, len(ops))
		arrived, err := d.trip(ctx, func() error { return d.transact(opsCopy, answers) })
		if arrived {
			copy(outs, answers)
		}
		return err
	}
	_, err := store.Retry(ctx, 10*time.Second, attempt,
		func(err error) bool { return errors.Is(err, store.ErrConflict) })
	return err
}

// trip sends a request that the server answers by calling handle, and reports whether the answer has arrived.
func (d *database) trip(ctx context.Context, handle func() error) (arrived bool, err error) {
	if d.scheduler.chance(d.refusals) {
		return false, fmt.Errorf("simulated: %w: connection refused", store.ErrUnavailable)
	}
	var result error
	switch d.send(d.p, func() { result = handle() }).wait(ctx.Done()) {
	case tripAnswered:
		return true, result
	case tripBroken:
		return false, fmt.Errorf("simulated: %w: connection lost", store.ErrUnknownOutcome)
	}
	return false, fmt.Errorf("simulated: %w: %w", store.ErrUnknownOutcome, ctx.Err())
}

func (d *database) Sweep(ctx context.Context, maxRows int) (removed int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if d.diskFull {
		return 0, fmt.Errorf("simulated: %w: the disk is full", store.ErrUnavailable)
	}
	return d.sweep(maxRows), nil
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

// Entries returns no entries: histories do not record them.
func (d *database) Entries(context.Context, law.Cell, int) ([]law.Entry, error) { return nil, nil }
