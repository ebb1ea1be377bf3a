package postgres

import (
	"cmp"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/headgate/headgate/internal/wrap"
	"github.com/headgate/headgate/law"
)

// sums is a batch of plain charges in the form that headgate_internal.take_sums takes.
type sums struct {
	keys []string // of each cell
	// Of each limit.
	limits                              []string
	anchor, unit, capacity, step, drain []int64
	block                               []int64 // which the function need not know: it blocks nothing
	// Of each cell; one alone stands for all.
	rule []int32 // its limit
	cost []int64 // the sum of its charges
	now  int64   // a test's time

	several bool // some requests have several charges: so each cell is granted its sum, or none is

	index []int   // of each charge, in the caller's slice
	cell  []int32 // of each charge, from 1 on
}

// sum sums up a batch, and reports whether it consists of plain charges alone, at one time.
func sum(ops []law.Op, a *arranged) (b sums, ok bool) {
	n := len(a.cells)
	b.cost, b.rule = make([]int64, n), make([]int32, n)
	b.index, b.cell, b.now = a.index, make([]int32, len(a.index)), ops[a.index[0]].Now
	for k, i := range a.index {
		op, c := &ops[i], a.cell[i]-1
		one := *op
		one.Count, one.Partial = 1, false
		if op.Count > 1 && !op.Partial || !plain(&one) || op.Now != b.now ||
			op.Count > (op.Params.Capacity-b.cost[c])/op.Cost {
			return b, false
		}
		rule := b.number(op.Cell.Limit, &op.Params)
		if b.rule[c] != 0 && b.rule[c] != rule {
			return b, false
		}
		b.rule[c], b.cell[k] = rule, c+1
		b.several = b.several || a.joined(ops, k)
		b.cost[c] += op.Cost * op.Count
	}
	_, b.keys = a.names()
	b.rule, b.cost = one(b.rule), one(b.cost)
	return b, true
}

// joined reports whether the valid op k belongs to the request of the op before it.
func (a *arranged) joined(ops []law.Op, k int) bool {
	return k > 0 && a.index[k] == a.index[k-1]+1 && ops[a.index[k]].Group == ops[a.index[k-1]].Group
}

// lookedAt is among how many limits the same one is looked for.
const lookedAt = 8

// number returns the number of a limit, from 1 on as SQL counts.
func (b *sums) number(name string, p *law.Params) int32 {
	for i := len(b.limits) - 1; i >= max(0, len(b.limits)-lookedAt); i-- {
		if b.limits[i] == name && b.anchor[i] == int64(p.Anchor) && b.unit[i] == p.Unit &&
			b.capacity[i] == p.Capacity && b.step[i] == p.Step && b.drain[i] == drain(p) && b.block[i] == p.Block {
			return int32(i + 1)
		}
	}
	b.limits = append(b.limits, name)
	b.anchor, b.unit = append(b.anchor, int64(p.Anchor)), append(b.unit, p.Unit)
	b.capacity, b.step = append(b.capacity, p.Capacity), append(b.step, p.Step)
	b.drain, b.block = append(b.drain, drain(p)), append(b.block, p.Block)
	return int32(len(b.limits))
}

// one returns the first of a list if all are equal.
func one[T comparable](list []T) []T {
	for _, v := range list {
		if v != list[0] {
			return list
		}
	}
	return list[:min(1, len(list))]
}

// Where headgate_internal.take_sums has left something that is not refused, many batches that follow meet
// the same: a limit of which a part is granted each time, or cells to which something was given
// back. So the next ones are decided in one call.
const crowdedFor = 8

// crowd reports whether a batch is one of those.
func (s *Store) crowd() bool {
	if s.crowded.Load() > 0 {
		s.crowded.Add(-1)
		return true
	}
	return false
}

// applySums applies a batch of plain charges.
func (s *Store) applySums(ctx context.Context, b *sums, a *arranged, ops []law.Op, outs []law.Outcome) error {
	statement := `select headgate_internal.take_sums_N($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`
	if b.several {
		statement = `select headgate_internal.take_sums_or_nothing_N($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`
	}
	args := []any{
		b.keys, b.rule, b.limits, b.anchor, b.unit, b.capacity, b.step, b.drain, b.cost, b.now,
	}
	var res pgtype.FlatArray[int64]
	err := s.retry(ctx, func() error {
		err := s.call(context.WithValue(ctx, impatience{}, nil), // the function has a setting of its own
			s.def.statement(statement), args, &res)
		if inTheWay(err) {
			return &lockWait{err}
		}
		return err
	})
	if waited(err) && impatient(ctx) != givesWay { // nothing is done, and this one may wait
		return s.applyAll(ctx, a, ops, outs)
	}
	if err == nil && b.several && len(res) == 0 {
		s.crowded.Store(crowdedFor)
		return s.applyAll(ctx, a, ops, outs)
	}
	var left []int
	if err == nil {
		var ok bool
		if left, ok = b.decode(res, ops, outs); !ok {
			err = &unreadable{fmt.Errorf("headgate_internal.take_sums answered about %d cells with %d numbers",
				len(b.keys), len(res))}
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
	wrap.Join(outs, answers, left, s.apply(ctx, rest, answers))
	return nil
}

// How the answer of headgate_internal.take_sums is laid out: in rows of five numbers, of which two are
// the state of a cell that was not granted.
const (
	sumsRow   = 5
	stateSize = 2 * sumsRow
)

// seen is what an answer says of a cell; its clock is 0 if it says nothing.
type seen struct {
	granted bool
	clock   int64
	state   law.State // if it is granted: level, window before, time and block after its last charge
}

// decode writes the outcomes of what headgate_internal.take_sums has granted, and of what package law
// refuses by the cells that were read. It returns the other ops in the order of the batch, and
// whether the answer can be one.
func (b *sums) decode(res []int64, ops []law.Op, outs []law.Outcome) (left []int, ok bool) {
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
		state := law.State{Level: r[1], Prev: r[2], At: r[3], BlockedUntil: r[4]}
		if !put(r[0], seen{true, max(clock, r[3]), state}) { // it may have waited for its row
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

// outcomes is decode for cells.
func (b *sums) outcomes(cells []seen, ops []law.Op, outs []law.Outcome) (left []int) {
	for k := len(b.index) - 1; k >= 0; k-- { // back from what the last charge of each cell has left
		if s := &cells[b.cell[k]-1]; s.granted {
			outs[b.index[k]] = chargedTo(&ops[b.index[k]], &s.state, s.clock)
		}
	}
	for k, i := range b.index {
		op, s := &ops[i], &cells[b.cell[k]-1]
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

// chargedTo returns the outcome of the last plain charge of a cell, whose state has level, window before,
// time and block, and takes the charge out of the level.
func chargedTo(op *law.Op, s *law.State, clock int64) law.Outcome {
	state, used := op.Params.Charged(s.Level, s.Prev, s.At)
	state.BlockedUntil = s.BlockedUntil
	s.Level -= op.Cost * op.Count
	return law.Outcome{Granted: op.Count, Used: used, Clock: cmp.Or(op.Now, clock), State: state}
}
