package postgres

import (
	"cmp"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store/internal/wrap"
)

// Where headgate.take_sums has left something that is not refused, many batches that follow meet
// the same: a limit of which a part is granted each time, or cells to which something was given
// back. So the next ones go to headgate.take_plain, which decides about all in one call.
const crowdedFor = 8

// bySums reports whether headgate.take_sums may decide about a batch: it is nothing but plain
// charges, each a request of its own, at one time. Inside a
// transaction of the caller's a second call could wait for a row out of order.
func (s *Store) bySums(b *plainBatch) bool {
	if s.pool == nil || b.several || len(b.more.index) > 0 || len(b.now) != 1 {
		return false
	}
	if s.crowded.Load() > 0 {
		s.crowded.Add(-1)
		return false
	}
	return true
}

// applySums applies a batch of plain charges.
func (s *Store) applySums(ctx context.Context, b *plainBatch, ops []law.Op, outs []law.Outcome) error {
	args := []any{
		b.keys, b.rule, b.limits, b.anchor, b.unit, b.capacity, b.step, b.drain, b.cost, b.now[0],
	}
	var res pgtype.FlatArray[int64]
	err := s.retry(ctx, func() error {
		err := s.call(context.WithValue(ctx, impatience{}, nil), // the function has a setting of its own
			s.def.statement(`select headgate.take_sums_N($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`), args, &res)
		if inTheWay(err) {
			return &lockWait{err}
		}
		return err
	})
	if waited(err) && impatient(ctx) != givesWay { // nothing is done, and this one may wait
		return s.applyPlain(ctx, b, ops, outs)
	}
	var left []int
	if err == nil {
		var ok bool
		if left, ok = b.decodeSums(res, ops, outs); !ok {
			err = &unreadable{fmt.Errorf("headgate.take_sums answered about %d cells with %d numbers", len(b.keys),
				len(res))}
		}
	}
	if err != nil {
		return s.failed(len(b.index), err)
	}
	if len(left) == 0 {
		return nil
	}
	s.crowded.Store(crowdedFor)
	rest, answers := make([]law.Op, len(left)), make([]law.Outcome, len(left))
	for k, i := range left {
		rest[k] = ops[i]
		rest[k].Group = uint32(k) //nolint:gosec // as many as fit in a batch
	}
	wrap.Join(outs, answers, left, s.Apply(ctx, rest, answers))
	return nil
}

// How the answer of headgate.take_sums is laid out: in rows of four numbers, of which three are
// the state of a cell that was not granted.
const (
	sumsRow   = 4
	stateSize = 3 * sumsRow
)

// seen is what an answer says of a cell; its clock is 0 if it says nothing.
type seen struct {
	granted bool
	clock   int64
	state   law.State // if it is granted: level, time and block after its last charge
}

// decodeSums writes the outcomes of what headgate.take_sums has granted, and of what package law
// refuses by the cells that were read. It returns the other ops in the order of the batch, and
// whether the answer can be one.
func (b *plainBatch) decodeSums(res []int64, ops []law.Op, outs []law.Outcome) (left []int, ok bool) {
	if len(res) < sumsRow || res[1] < 0 || res[1] > int64(len(b.keys)) || res[3] < 0 || res[3] > res[1] {
		return nil, false
	}
	clock, again, made, rows := res[0], res[2], int(res[3])*sumsRow, res[sumsRow:]
	end := int(res[1]) * sumsRow
	if len(rows) < end || (len(rows)-end)%stateSize != 0 {
		return nil, false
	}
	cells := make([]seen, len(b.keys))
	put := func(cell int64, s seen) bool {
		if cell < 1 || cell > int64(len(cells)) || cells[cell-1].clock != 0 || s.clock == 0 {
			return false
		}
		cells[cell-1] = s
		return true
	}
	for r := rows[:end]; len(r) > 0; r = r[sumsRow:] {
		if len(r) == made {
			clock = again
		}
		state := law.State{Level: r[1], At: r[2], BlockedUntil: r[3]}
		if !put(r[0], seen{true, max(clock, r[2]), state}) { // it may have waited for its row
			return nil, false
		}
	}
	for r := rows[end:]; len(r) > 0; r = r[stateSize:] {
		state := law.State{
			Kind: law.Kind(r[1]), Level: r[2], Prev: r[3], At: r[4], Unit: r[5], Step: r[6], EmptyAt: r[7],
			BlockedUntil: r[8],
		}
		if !put(r[0], seen{false, r[9], state}) {
			return nil, false
		}
	}
	return b.outcomes(cells, ops, outs), true
}

// outcomes is decodeSums for cells.
func (b *plainBatch) outcomes(cells []seen, ops []law.Op, outs []law.Outcome) (left []int) {
	for k := len(b.index) - 1; k >= 0; k-- { // back from what the last charge of each cell has left
		if s := &cells[b.cellOf(k)]; s.granted {
			outs[b.index[k]] = chargedTo(&ops[b.index[k]], &s.state, s.clock)
		}
	}
	for k, i := range b.index {
		op, s := &ops[i], &cells[b.cellOf(k)]
		if s.granted {
			continue
		}
		if s.clock != 0 {
			if v := law.Decide(s.state, op, cmp.Or(op.Now, s.clock), 0, nil); v.Outcome.Granted == 0 && !v.Moved {
				outs[i] = v.Outcome
				outs[i].State = s.state // the row as it stays, not what has drained from it since
				continue
			}
		}
		s.clock = 0 // later charges of the cell are left too
		left = append(left, i)
	}
	return left
}

// cellOf returns the number of the cell of plain charge k, from 0 on.
func (b *plainBatch) cellOf(k int) int {
	if b.cell == nil {
		return k
	}
	return int(b.cell[k]) - 1
}

// chargedTo returns the outcome of the last plain charge of a cell, whose state has level, time and
// block, and takes the charge out of the level.
func chargedTo(op *law.Op, s *law.State, clock int64) law.Outcome {
	state := op.Params.PlainState(s.Level, s.At)
	state.BlockedUntil = s.BlockedUntil
	s.Level -= op.Cost * op.Count
	return law.Outcome{Granted: op.Count, Used: state.Level, Clock: cmp.Or(op.Now, clock), State: state}
}
