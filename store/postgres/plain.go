package postgres

import (
	"context"
	"fmt"
	"slices"

	"github.com/headgate/headgate/law"
)

// plainBatch is a batch of plain charges in the form that headgate.take_plain
// takes.
type plainBatch struct {
	limits, keys                               []string
	anchor, unit, capacity, step, drain, block []int64
	cost, now                                  []int64
	index                                      []int // of each op, in the caller's slice
}

// plain reports whether headgate.take_plain can decide about an op.
func plain(op *law.Op) bool { return op.Plain() && op.Params.Plain() && !law.IsShared(op.Cell) }

// plainly returns the batch as one of plain charges on cells that differ, if it
// is one. One charge alone goes to headgate.apply.
func plainly(ops []law.Op) (b plainBatch, ok bool) {
	if len(ops) < 2 {
		return b, false
	}
	for i := range ops {
		if !plain(&ops[i]) || i > 0 && ops[i].Group == ops[i-1].Group || ops[i].Valid() != nil {
			return b, false
		}
	}
	b.index = make([]int, len(ops))
	for i := range b.index {
		b.index[i] = i
	}
	slices.SortFunc(b.index, func(i, j int) int { return ops[i].Cell.Compare(ops[j].Cell) })
	n := len(ops)
	text, numbers := make([]string, 2*n), make([]int64, 8*n)
	b.limits, b.keys = text[:n:n], text[n:]
	for i, to := range []*[]int64{&b.anchor, &b.unit, &b.capacity, &b.step, &b.drain, &b.block, &b.cost, &b.now} {
		*to = numbers[i*n : (i+1)*n : (i+1)*n]
	}
	for k, i := range b.index {
		op := &ops[i]
		if k > 0 && op.Cell == ops[b.index[k-1]].Cell {
			return b, false
		}
		p := &op.Params
		b.limits[k], b.keys[k] = op.Cell.Limit, op.Cell.Key
		b.anchor[k], b.unit[k], b.capacity[k], b.step[k], b.drain[k], b.block[k] = int64(p.Anchor), p.Unit, p.Capacity,
			p.Step, p.Drain, p.Block
		b.cost[k], b.now[k] = op.Cost, op.Now
	}
	return b, true
}

// applyPlain applies a batch of plain charges.
func (s *Store) applyPlain(ctx context.Context, b *plainBatch, ops []law.Op, outs []law.Outcome) error {
	var granted, rest []int32
	var clock, level, prev, at, empty, blocked, outcomes []int64
	err := s.retry(ctx, func() error {
		return s.call(ctx, s.def.statement(
			`select * from headgate.take_plain_N($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`),
			[]any{
				b.limits, b.keys, b.anchor, b.unit, b.capacity, b.step, b.drain, b.block, b.cost, b.now,
				s.counter.every.Load() > 0,
			},
			&granted, &clock, &level, &prev, &at, &empty, &blocked, &rest, &outcomes)
	})
	if err == nil && !sound(len(ops), granted, rest, outcomes, clock, level, prev, at, empty, blocked) {
		err = &unreadable{fmt.Errorf("headgate.take_plain answered about %d and %d with %d numbers", len(granted),
			len(rest), len(outcomes))}
	}
	if err != nil {
		return s.failed(len(ops), err)
	}
	for k, n := range granted {
		i := b.index[n-1]
		outs[i] = law.Outcome{
			Granted: 1, Used: level[k], Clock: clock[k],
			State: law.State{
				Kind: law.Bucket, Level: level[k], Prev: prev[k], At: at[k],
				Unit: ops[i].Params.Unit, Step: ops[i].Params.Step, EmptyAt: empty[k], BlockedUntil: blocked[k],
			},
		}
	}
	for k, n := range rest {
		outs[b.index[n-1]] = decode(outcomes, k)
	}
	return nil
}
