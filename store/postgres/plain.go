package postgres

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/law"
)

// plainBatch is a batch in the form that headgate.take_plain takes: its plain charges, and
// the rest of it as a batch for headgate.apply.
type plainBatch struct {
	keys []string // of each cell
	// Of each limit. The unit is 0 if no charge is plain.
	limits                                     []string
	anchor, unit, capacity, step, drain, block []int64
	// Of each cell; one alone stands for all.
	rule      []int32 // its limit
	cost, now []int64 // the sum of its plain charges, and their time

	cells int   // that have plain charges
	index []int // of each plain charge, in the caller's slice
	// Of each plain charge: its cell, its request, its cost and its count. Nil: each cell has
	// one, of a count of 1.
	cell, group []int32
	each, count []int64
	several     bool // a request has several charges
	coupled     bool // a request has charges on several cells

	more batch // on a cell it comes after all plain charges
}

// plainly divides a batch. From the first request on that is not plain, all on its cells
// go the other way too, so that each cell is charged in the order of the batch.
func plainly(ops []law.Op, a *arranged) (b plainBatch) {
	n := len(a.cells)
	numbers := make([]int64, 2*n)
	b.cost, b.now, b.rule = numbers[:n:n], numbers[n:], make([]int32, n)
	closed := make([]bool, n) // to plain charges
	var more []int
	single, group := true, int32(0)
	for k := 0; k < len(a.index); {
		request := a.request(ops, k)
		k += len(request)
		if !b.takes(ops, a, request, closed) {
			for _, i := range request {
				closed[a.cell[i]-1] = true
			}
			more = append(more, request...)
			continue
		}
		group++
		b.several = b.several || len(request) > 1
		for _, i := range request {
			op := &ops[i]
			b.index, b.cell, b.group = append(b.index, i), append(b.cell, a.cell[i]), append(b.group, group)
			b.each, b.count = append(b.each, op.Cost), append(b.count, op.Count)
			b.coupled = b.coupled || a.cell[i] != a.cell[request[0]]
			single = single && op.Count == 1
		}
	}
	if len(b.index) == 0 {
		return b
	}
	for c, rule := range b.rule {
		if rule == 0 {
			b.rule[c] = b.number(a.cells[c].Limit, &nothing)
		} else {
			b.cells++
		}
	}
	if len(more) > 0 {
		b.more = encode(ops, more, a, int64(group))
	} else if single && !b.coupled && len(b.index) == n {
		for k, c := range b.cell { // in the order of the cells
			b.group[c-1] = int32(b.index[k])
		}
		for c, i := range b.group {
			b.index[c] = int(i)
		}
		b.cell, b.group, b.each, b.count = nil, nil, nil, nil
	}
	_, b.keys = a.names()
	b.rule, b.now = one(b.rule), one(b.now)
	if !b.coupled {
		b.cost = one(b.cost)
	}
	return b
}

// request returns the request that begins with op k of the valid ones.
func (a *arranged) request(ops []law.Op, k int) []int {
	end := k + 1
	for end < len(a.index) && a.index[end] == a.index[end-1]+1 && ops[a.index[end]].Group == ops[a.index[k]].Group {
		end++
	}
	return a.index[k:end]
}

// takes adds a request to the sums of its cells, if it consists of plain charges, and reports
// whether it has.
func (b *plainBatch) takes(ops []law.Op, a *arranged, request []int, closed []bool) bool {
	for n, i := range request {
		op, c := &ops[i], a.cell[i]-1
		one := *op
		one.Count, one.Partial = 1, false
		if op.Count > 1 && !op.Partial || !plain(&one) || closed[c] ||
			op.Count > (op.Params.Capacity-b.cost[c])/op.Cost {
			b.withdraw(ops, a, request[:n])
			return false
		}
		rule := b.number(op.Cell.Limit, &op.Params)
		if b.rule[c] != 0 && (b.rule[c] != rule || b.now[c] != op.Now) {
			b.withdraw(ops, a, request[:n])
			return false
		}
		b.rule[c], b.now[c] = rule, op.Now
		b.cost[c] += op.Cost * op.Count
	}
	return true
}

// withdraw takes the first charges of a request out of the sums.
func (b *plainBatch) withdraw(ops []law.Op, a *arranged, charges []int) {
	for _, i := range charges {
		c := a.cell[i] - 1
		if b.cost[c] -= ops[i].Cost * ops[i].Count; b.cost[c] == 0 {
			b.rule[c], b.now[c] = 0, 0
		}
	}
}

// nothing are the parameters of a limit of which no charge is plain. No cell has the unit 0.
var nothing = law.Params{Step: 1, Drain: 1}

// lookedAt is among how many limits the same one is looked for.
const lookedAt = 8

// number returns the number of a limit, from 1 on as SQL counts.
func (b *plainBatch) number(name string, p *law.Params) int32 {
	for i := len(b.limits) - 1; i >= max(0, len(b.limits)-lookedAt); i-- {
		if b.limits[i] == name && b.anchor[i] == int64(p.Anchor) && b.unit[i] == p.Unit &&
			b.capacity[i] == p.Capacity && b.step[i] == p.Step && b.drain[i] == p.Drain && b.block[i] == p.Block {
			return int32(i + 1)
		}
	}
	b.limits = append(b.limits, name)
	b.anchor, b.unit = append(b.anchor, int64(p.Anchor)), append(b.unit, p.Unit)
	b.capacity, b.step = append(b.capacity, p.Capacity), append(b.step, p.Step)
	b.drain, b.block = append(b.drain, p.Drain), append(b.block, p.Block)
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

// granted is what headgate.take_plain answers.
type granted struct {
	clock              int64
	cells              []int32 // that were granted all
	level, at, blocked []int64 // of each of those
	rest               []int32 // plain charges that were not granted by the sums
	outcomes           []int64 // of those, and of all that is not plain
}

// applyPlain applies a batch with plain charges.
func (s *Store) applyPlain(ctx context.Context, b *plainBatch, ops []law.Op, outs []law.Outcome) error {
	var prints []int64
	var parts []int32
	if b.more.once {
		prints, parts = b.more.prints(ops), b.more.parts(ops)
	}
	args := []any{
		b.keys, b.rule, b.limits, b.anchor, b.unit, b.capacity, b.step, b.drain, b.block, b.cost, b.now, b.cells,
		b.cell, b.group, b.each, b.count, b.coupled, b.more.modes, b.more.ops, b.more.notes,
		prints, parts,
	}
	var g granted
	err := s.retry(ctx, func() error {
		return s.call(ctx, s.def.statement(`select * from headgate.take_plain_N($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, `+
			`$11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22)`),
			args, &g.clock, &g.cells, &g.level, &g.at, &g.blocked, &g.rest, &g.outcomes)
	})
	if err == nil && !b.decode(&g, ops, outs) {
		err = &unreadable{fmt.Errorf("headgate.take_plain answered about %d and %d with %d numbers", len(g.cells),
			len(g.rest), len(g.outcomes))}
	}
	if err != nil {
		return s.failed(len(b.index)+len(b.more.index), err)
	}
	return nil
}

// decode writes the outcomes, if the answer is about each op, once.
func (b *plainBatch) decode(g *granted, ops []law.Op, outs []law.Outcome) bool {
	n := len(b.keys)
	if len(g.level) != len(g.cells) || len(g.at) != len(g.cells) || len(g.blocked) != len(g.cells) ||
		len(g.outcomes) != (len(g.rest)+len(b.more.index))*law.Width {
		return false
	}
	left := make([]bool, len(b.index))
	for k, r := range g.rest {
		if r < 1 || int(r) > len(left) || left[r-1] {
			return false
		}
		left[r-1] = true
		outs[b.index[r-1]] = decode(g.outcomes, k)
	}
	cells := make([]seen, n)
	for k, c := range g.cells {
		if c < 1 || int(c) > n || cells[c-1].granted {
			return false
		}
		cells[c-1] = seen{granted: true, state: law.State{Level: g.level[k], At: g.at[k], BlockedUntil: g.blocked[k]}}
	}
	for k := len(left) - 1; k >= 0; k-- { // back from what the last charge of each cell has left
		if left[k] {
			continue
		}
		s := &cells[b.cellOf(k)]
		if !s.granted {
			return false
		}
		outs[b.index[k]] = chargedTo(&ops[b.index[k]], &s.state, g.clock)
	}
	b.more.decode(g.outcomes[len(g.rest)*law.Width:], outs)
	return true
}
