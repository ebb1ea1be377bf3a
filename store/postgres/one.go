package postgres

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/law"
)

// isPlain reports whether headgate_internal.take_one and headgate_internal.take_sums can decide an op.
func isPlain(op *law.Op) bool {
	return op.Plain() && (op.Params.Plain() || op.Params.Kind == law.Window)
}

// drainOf returns the drain of a limit for these functions, which recognize a sliding window by a drain of 0.
func drainOf(p *law.Params) int64 {
	if p.Kind == law.Window {
		return 0
	}
	return p.Drain
}

// applyOne applies one valid plain charge, for which isPlain holds.
func (s *Store) applyOne(ctx context.Context, op *law.Op, out *law.Outcome) error {
	p := &op.Params
	args := []any{
		op.Cell.Limit, op.Cell.Key, int64(p.Anchor), p.Unit, p.Capacity, p.Step, drainOf(p), p.Block, op.Cost, op.Now,
	}
	var res []int64
	err := s.retry(ctx, func() error {
		return s.call(ctx, s.def.statement(
			`select headgate_internal.take_one_N($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`), args, &res)
	})
	if err == nil && len(res) != law.Width {
		err = &unreadableError{fmt.Errorf("headgate_internal.take_one answered with %d numbers", len(res))}
	}
	if err != nil {
		return s.batchError(1, err)
	}
	*out = decodeOutcome(res, 0)
	return nil
}
