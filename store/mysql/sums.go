package mysql

import (
	"fmt"
	"slices"

	"github.com/headgate/headgate/law"
)

// On MariaDB most batches are one statement that commits by itself, as a lone charge is. It
// charges each cell with the sum of its plain charges, if there is room for all of them: then
// they are granted one after another too (see TakePlain of package law). A request on several
// cells is admitted if each of them has room for its sum; otherwise the statement fails, and
// has done nothing.
//
// What is not decided by it, the general way decides in a second round trip: other verbs and
// laws, cells that are not plain, and cells whose sum does not fit. On each cell that comes
// after all that the statement has decided.

// sums is a batch, as far as it is decided by sums.
type sums struct {
	ops     []law.Op
	cells   []sum // in the order in which they are locked
	coupled bool  // a request has charges on several cells
	partial bool  // a charge may be granted in part
	anchor  law.Anchor
	count   int     // of the ops that are decided by sums
	next    []int32 // after each op: the next one on its cell; 0: none
}

// sum is what one cell is charged.
type sum struct {
	head, tail int32 // its first op and its last one
	many       bool  // it has several: all are granted, or none is decided about
	closed     bool  // to what comes next in the batch
	used       bool  // it has any
	cost       int64 // of all ops, unless it is one that may be granted in part
	count      int64
	ceiling    int64
}

// mostSummed bounds the ops of a batch that is decided by sums, and mostCoupled those of a
// request in it.
const (
	mostSummed  = 1024
	mostCoupled = 32
)

// newSums returns the part of a batch that is decided by sums; nil if that is less than
// half of it.
func newSums(ops []law.Op) *sums {
	if len(ops) > mostSummed {
		return nil
	}
	sorted := make([]int32, len(ops))
	for i := range sorted {
		sorted[i] = int32(i)
	}
	slices.SortFunc(sorted, func(a, b int32) int { return ops[a].Cell.Compare(ops[b].Cell) })
	s := &sums{ops: ops, next: make([]int32, len(ops)), cells: make([]sum, 0, len(ops))}
	place := make([]int32, len(ops)) // of the cell of each op
	for k, i := range sorted {
		if k == 0 || ops[i].Cell != ops[sorted[k-1]].Cell {
			s.cells = append(s.cells, sum{})
		}
		place[i] = int32(len(s.cells) - 1)
	}
	for i := 0; i < len(ops); {
		j := law.GroupEnd(ops, i)
		if s.takes(i, j, place) {
			s.add(i, j, place)
		} else {
			for k := i; k < j; k++ {
				s.cells[place[k]].closed = true
			}
		}
		i = j
	}
	if s.count == 0 || 2*s.count < len(ops) {
		return nil
	}
	s.cells = slices.DeleteFunc(s.cells, func(c sum) bool { return !c.used })
	return s
}

// takes reports whether the request from i to j can be decided by sums.
func (s *sums) takes(i, j int, place []int32) bool {
	if j-i > mostCoupled || law.ValidGroup(s.ops[i:j]) != nil {
		return false
	}
	anchor := s.ops[i].Params.Anchor
	if s.count > 0 {
		anchor = s.anchor
	}
	for k := i; k < j; k++ {
		op, c := &s.ops[k], &s.cells[place[k]]
		if c.closed || op.Params.Anchor != anchor || !summable(op) {
			return false
		}
		before, cost := op, int64(0) // on the same cell
		if c.used {
			before, cost = &s.ops[c.head], s.total(c)
		}
		for n := i; n < k; n++ {
			if place[n] == place[k] {
				before, cost = &s.ops[n], cost+s.ops[n].Cost*s.ops[n].Count
			}
		}
		if before != op && !addable(before, op, cost) {
			return false
		}
	}
	return true
}

// summable reports whether a charge may be one of those that are decided by sums. A new cell has
// room for it.
func summable(op *law.Op) bool {
	most, least := op.Params.Capacity, op.Cost*op.Count
	if op.Ceiling > 0 {
		most = op.Ceiling
	}
	if op.Partial {
		least = op.Cost
	}
	return op.Verb == law.Take && op.Alone() && !op.Timed() && op.Params.Plain() && op.Params.Block <= 0 &&
		least <= most
}

// addable reports whether a charge may be added to those before it on its cell, which cost
// so much.
func addable(before, op *law.Op, cost int64) bool {
	return before.Params == op.Params && before.Now == op.Now && before.Ceiling == 0 && op.Ceiling == 0 &&
		op.Cost*op.Count <= op.Params.Capacity-cost
}

// total returns what all charges of a cell cost.
func (s *sums) total(c *sum) int64 {
	if c.many {
		return c.cost
	}
	return s.ops[c.head].Cost * s.ops[c.head].Count
}

// add adds the request from i to j.
func (s *sums) add(i, j int, place []int32) {
	s.anchor = s.ops[i].Params.Anchor
	s.count += j - i
	for k := i; k < j; k++ {
		op, c := &s.ops[k], &s.cells[place[k]]
		s.coupled = s.coupled || place[k] != place[i]
		if c.used {
			c.cost, c.count, c.many = s.total(c)+op.Cost*op.Count, 1, true
			s.next[c.tail] = int32(k)
			c.tail = int32(k)
			continue
		}
		*c = sum{head: int32(k), tail: int32(k), used: true, cost: op.Cost * op.Count, count: 1}
		c.ceiling = op.Params.Capacity
		if op.Ceiling > 0 {
			c.ceiling = op.Ceiling
		}
		if op.Partial && op.Count > 1 {
			c.cost, c.count, s.partial = op.Cost, op.Count, true
		}
	}
}

// sumNumbers are the names of the numbers that the statement is given of each cell.
var sumNumbers = [...]string{"unit", "step", "drain", "cost", "count", "ceiling", "now"}

// numbers returns those of a cell.
func (s *sums) numbers(c *sum) [len(sumNumbers)]int64 {
	op := &s.ops[c.head]
	p := &op.Params
	return [...]int64{p.Unit, p.Step, max(p.Drain, 1), c.cost, c.count, c.ceiling, op.Now}
}

// sumsWidth is how many numbers the statement returns of a cell.
const sumsWidth = 7

// hear turns the answer into outcomes, and returns which ops it has decided, in their order,
// and whether it has made cells.
func (s *sums) hear(answer []int64, outs []law.Outcome) (decided []int, made bool, err error) {
	if len(answer) != len(s.cells)*sumsWidth {
		return nil, false, fmt.Errorf("the server answered about %d cells with %d numbers", len(s.cells), len(answer))
	}
	decided = make([]int, 0, s.count)
	var record law.Record
	list := []*law.Record{&record}
	for k := range s.cells {
		c, n := &s.cells[k], answer[k*sumsWidth:(k+1)*sumsWidth]
		granted, clock := n[0], n[5]
		if granted < 0 || granted == 0 && c.many {
			continue
		}
		p := &s.ops[c.head].Params
		after := law.State{
			Kind: law.Bucket, Level: n[1], At: n[2], Unit: p.Unit, Step: p.Step, EmptyAt: n[3], BlockedUntil: n[4],
		}
		record = law.Record{State: after}
		if n[6] > 0 {
			record.State, made = law.State{}, true
		} else if granted > 0 {
			record.State = p.PlainState(after.Level-granted*c.cost, after.At)
			record.State.BlockedUntil = after.BlockedUntil
		}
		for i := c.head; ; i = s.next[i] {
			law.Apply(s.ops[i:i+1], outs[i:i+1], clock, list)
			decided = append(decided, int(i))
			if i == c.tail {
				break
			}
		}
		if out := &outs[c.tail]; out.State != after || (out.Granted > 0) != (granted > 0) {
			return nil, made, fmt.Errorf("the server's answer makes no sense: %v about %+v", n, s.ops[c.tail])
		}
	}
	slices.Sort(decided)
	return decided, made, nil
}
