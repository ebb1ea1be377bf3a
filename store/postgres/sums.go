package postgres

import (
	"cmp"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/headgate/headgate/internal/wrap"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// sums is a batch of plain charges in the form that headgate_internal.take_sums takes.
type sums struct {
	keys []string // the key of each cell
	// For each limit.
	limits                              []string
	anchor, unit, capacity, step, drain []int64
	block                               []int64 // only to tell limits apart: the function blocks nothing
	// For each cell; a single element stands for all cells.
	limitNumbers []int32 // the number of its limit
	cost         []int64 // the sum of its charges
	now          int64   // the time of the ops in a test; 0: the server's clock

	allOrNone bool // some requests have several charges: all cells are granted their sums, or no cell is

	indexes     []int   // for each charge: its index in the caller's slice
	cellNumbers []int32 // for each charge: the number of its cell, from 1
}

// sumUp sums up a batch, and reports whether it can: all ops are plain charges, or partial ones in full, at one time,
// and each cell has one limit, whose capacity holds the cell's sum. Else b is incomplete.
func sumUp(ops []law.Op, valid *validBatch) (b sums, ok bool) {
	n := len(valid.cells)
	b.cost, b.limitNumbers = make([]int64, n), make([]int32, n)
	b.indexes, b.cellNumbers, b.now = valid.indexes, make([]int32, len(valid.indexes)), ops[valid.indexes[0]].Now
	for k, i := range valid.indexes {
		op, c := &ops[i], valid.cellNumbers[i]-1
		unitOp := *op
		unitOp.Count, unitOp.Partial = 1, false
		if op.Count > 1 && !op.Partial || !isPlain(&unitOp) || op.Now != b.now ||
			op.Count > (op.Params.Capacity-b.cost[c])/op.Cost {
			return b, false
		}
		rule := b.limitNumber(op.Cell.Limit, &op.Params)
		if b.limitNumbers[c] != 0 && b.limitNumbers[c] != rule {
			return b, false
		}
		b.limitNumbers[c], b.cellNumbers[k] = rule, c+1
		b.allOrNone = b.allOrNone || valid.sameRequest(ops, k)
		b.cost[c] += op.Cost * op.Count
	}
	_, b.keys = valid.names()
	b.limitNumbers, b.cost = collapse(b.limitNumbers), collapse(b.cost)
	return b, true
}

// sameRequest reports whether the valid op k belongs to the request of the op before it.
func (v *validBatch) sameRequest(ops []law.Op, k int) bool {
	return k > 0 && v.indexes[k] == v.indexes[k-1]+1 && ops[v.indexes[k]].Group == ops[v.indexes[k-1]].Group
}

// recentLimits is how many of the last limits limitNumber compares with.
const recentLimits = 8

// limitNumber returns the number of a limit, from 1 as SQL counts. It adds the limit if it is not one of the last.
func (b *sums) limitNumber(name string, p *law.Params) int32 {
	for i := len(b.limits) - 1; i >= max(0, len(b.limits)-recentLimits); i-- {
		if b.limits[i] == name && b.anchor[i] == int64(p.Anchor) && b.unit[i] == p.Unit &&
			b.capacity[i] == p.Capacity && b.step[i] == p.Step && b.drain[i] == drainOf(p) && b.block[i] == p.Block {
			return int32(i + 1)
		}
	}
	b.limits = append(b.limits, name)
	b.anchor, b.unit = append(b.anchor, int64(p.Anchor)), append(b.unit, p.Unit)
	b.capacity, b.step = append(b.capacity, p.Capacity), append(b.step, p.Step)
	b.drain, b.block = append(b.drain, drainOf(p)), append(b.block, p.Block)
	return int32(len(b.limits))
}

// collapse returns a list of one element if all elements of list are equal, else list.
func collapse[T comparable](list []T) []T {
	for _, v := range list {
		if v != list[0] {
			return list
		}
	}
	return list[:min(1, len(list))]
}

// skippedBatches is how many batches skip headgate_internal.take_sums after it could not decide all ops of a batch. The
// next batches are likely to meet the same obstacle, a limit that grants only a part each time, or cells to which
// something was given back. applyAll decides them in one call.
const skippedBatches = 8

// applySums applies a batch of plain charges by headgate_internal.take_sums. Other functions decide what that leaves
// undecided: all of a batch that met a locked row, or with allOrNone a cell without room.
func (s *Store) applySums(ctx context.Context, b *sums, valid *validBatch, ops []law.Op, outs []law.Outcome) error {
	statement := `select headgate_internal.take_sums_N($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`
	if b.allOrNone {
		statement = `select headgate_internal.take_sums_or_nothing_N($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`
	}
	args := []any{
		b.keys, b.limitNumbers, b.limits, b.anchor, b.unit, b.capacity, b.step, b.drain, b.cost, b.now,
	}
	var res pgtype.FlatArray[int64]
	err := s.retry(ctx, func() error {
		err := s.call(context.WithValue(ctx, lockWaitKey{}, nil), // the function sets lock_timeout itself
			s.def.statement(statement), args, &res)
		if isLockTimeout(err) {
			return &lockWaitError{err}
		}
		return err
	})
	if isLockWait(err) && lockWaitMode(ctx) != lockGiveUp { // nothing was done, and this batch may wait
		return s.applyAll(ctx, valid, ops, outs)
	}
	if err == nil && b.allOrNone && len(res) == 0 {
		s.skipSumsBatches.Store(skippedBatches)
		return s.applyAll(ctx, valid, ops, outs)
	}
	var undecided []int
	if err == nil {
		var ok bool
		if undecided, ok = b.decode(res, ops, outs); !ok {
			err = &unreadableError{fmt.Errorf("headgate_internal.take_sums answered about %d cells with %d numbers",
				len(b.keys), len(res))}
		}
	}
	if err != nil {
		return s.batchError(len(b.indexes), err)
	}
	if len(undecided) == 0 {
		return nil
	}
	s.skipSumsBatches.Store(skippedBatches)
	undecidedOps, undecidedOuts := make([]law.Op, len(undecided)), make([]law.Outcome, len(undecided))
	for k, i := range undecided {
		undecidedOps[k] = ops[i]
		undecidedOps[k].Group = uint32(k) //nolint:gosec // as many as fit in a batch
	}
	err = s.apply(ctx, undecidedOps, undecidedOuts)
	if isLockWait(err) { // others of this batch are charged, so it is no longer one of which nothing was done
		if len(undecided) == len(ops) {
			return err
		}
		err = fmt.Errorf("%w: %w", store.ErrHeld, err)
	}
	wrap.Join(outs, undecidedOuts, undecided, err)
	return nil
}

// The answer of headgate_internal.take_sums consists of rows of five numbers: a row about the answer, a row for each
// cell that was granted, and two rows with the state of each other cell that it found.
const (
	sumsRow   = 5
	stateSize = 2 * sumsRow
)

// cellAnswer is the part of an answer about one cell; clock is 0 if there is none.
type cellAnswer struct {
	granted bool
	clock   int64
	state   law.State // if granted: only level, previous window, time and block, after the cell's last charge
}

// decode sets the outcomes of ops that headgate_internal.take_sums has granted, and of ops that package law refuses by
// the states in the answer. It returns the indexes of the other ops, in order, and whether the answer is well-formed.
func (b *sums) decode(res []int64, ops []law.Op, outs []law.Outcome) (undecided []int, ok bool) {
	if len(res) < sumsRow || res[1] < 0 || res[1] > int64(len(b.keys)) || res[3] < 0 || res[3] > res[1] {
		return nil, false
	}
	clock, laterClock, laterRows, rows := res[0], res[2], int(res[3])*sumsRow, res[sumsRow:]
	end := int(res[1]) * sumsRow
	if len(rows) < end || (len(rows)-end)%stateSize != 0 {
		return nil, false
	}
	cells := make([]cellAnswer, len(b.keys))
	add := func(cell int64, s cellAnswer) bool {
		if cell < 1 || cell > int64(len(cells)) || cells[cell-1].clock != 0 || s.clock == 0 {
			return false
		}
		cells[cell-1] = s
		return true
	}
	for r := rows[:end]; len(r) > 0; r = r[sumsRow:] {
		if len(r) == laterRows {
			clock = laterClock
		}
		state := law.State{Level: r[1], Prev: r[2], At: r[3], BlockedUntil: r[4]}
		if !add(r[0], cellAnswer{true, max(clock, r[3]), state}) { // the charge may have waited for its row
			return nil, false
		}
	}
	for r := rows[end:]; len(r) > 0; r = r[stateSize:] {
		state := law.State{
			Kind: law.Kind(r[1]), Level: r[2], Prev: r[3], At: r[4], Unit: r[5], Step: r[6], EmptyAt: r[7],
			BlockedUntil: r[8],
		}
		if !add(r[0], cellAnswer{false, r[9], state}) {
			return nil, false
		}
	}
	return b.outcomes(cells, ops, outs), true
}

// outcomes sets the outcomes of ops by the answers about their cells, and returns the indexes of the other ops.
func (b *sums) outcomes(cells []cellAnswer, ops []law.Op, outs []law.Outcome) (undecided []int) {
	for k := len(b.indexes) - 1; k >= 0; k-- { // backwards from the state after the last charge of each cell
		if s := &cells[b.cellNumbers[k]-1]; s.granted {
			outs[b.indexes[k]] = lastCharge(&ops[b.indexes[k]], &s.state, s.clock)
		}
	}
	for k, i := range b.indexes {
		op, s := &ops[i], &cells[b.cellNumbers[k]-1]
		if s.granted {
			continue
		}
		if s.clock != 0 {
			if v := law.Decide(s.state, op, cmp.Or(op.Now, s.clock), 0, nil); v.Outcome.Granted == 0 && !v.Moved {
				outs[i] = v.Outcome
				outs[i].State = s.state // the row as stored, not the drained state of the verdict
				continue
			}
		}
		s.clock = 0 // later charges of the cell stay undecided too
		undecided = append(undecided, i)
	}
	return undecided
}

// lastCharge returns the outcome of the last plain charge of a cell, and subtracts the charge from the level of s,
// which then is the state before the charge. s has only level, previous window, time and block.
func lastCharge(op *law.Op, s *law.State, clock int64) law.Outcome {
	state, used := op.Params.ChargedState(s.Level, s.Prev, s.At)
	state.BlockedUntil = s.BlockedUntil
	s.Level -= op.Cost * op.Count
	return law.Outcome{Granted: op.Count, Used: used, Clock: cmp.Or(op.Now, clock), State: state}
}
