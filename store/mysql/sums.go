package mysql

import (
	"fmt"
	"slices"

	"github.com/headgate/headgate/law"
)

// Plain charges are charged by sums: each cell with all that a batch asks of it, or with nothing. Where a sum fits,
// its charges are granted one after another too: see TakePlain of package law. Where it does not, the cell is as it
// was, so package law tells whether all of them are refused; if some are not, they are decided by rows. A request on
// several cells is admitted if each of them has room for its sum; otherwise nothing of the batch is done.
//
// On MariaDB a batch is an INSERT: see sums_text.go. A single charge has a statement of its own: see one.go.

// sums is a batch, as far as it is decided by sums. What is not: other verbs and laws, and all that comes after them on
// their cells.
type sums struct {
	ops     []law.Op
	cells   []sum // in the order in which they are locked
	coupled bool  // a request has charges on several cells
	anchor  law.Anchor
	count   int     // of the ops that are decided by sums
	next    []int32 // after each op: the next one on its cell; 0: none
}

// sum has the charges of a cell.
type sum struct {
	head, tail int32 // its first op and its last one
	closed     bool  // to what comes next in the batch
	used       bool  // it has any
	cost       int64 // of all ops
}

// maxSummed bounds the ops of a batch that is decided by sums, and maxCoupled those of a
// request in it.
const (
	maxSummed  = 1024
	maxCoupled = 32
)

// newSums returns the part of a batch that is decided by sums; nil if that is less than
// half of it.
func newSums(ops []law.Op) *sums {
	if len(ops) > maxSummed {
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

// takes reports whether the request from i to j can be decided by sums. It charges no cell twice.
func (s *sums) takes(i, j int, place []int32) bool {
	if j-i > maxCoupled || law.ValidGroup(s.ops[i:j]) != nil {
		return false
	}
	anchor := s.ops[i].Params.Anchor
	if s.count > 0 {
		anchor = s.anchor
	}
	for k := i; k < j; k++ {
		op, c := &s.ops[k], &s.cells[place[k]]
		if c.closed || op.Params.Anchor != anchor || !summable(op) || c.used && !addable(&s.ops[c.head], op, c.cost) ||
			slices.Contains(place[i:k], place[k]) {
			return false
		}
	}
	return true
}

// summable reports whether a charge may be one of those that are decided by sums. A new cell has
// room for it.
func summable(op *law.Op) bool {
	return op.Verb == law.Take && op.Alone() && !op.Timed() && op.Params.Plain() && op.Params.Block <= 0 &&
		op.Cost*op.Count <= ceiling(op)
}

// ceiling returns how many credits may be in use once a charge is granted.
func ceiling(op *law.Op) int64 {
	if op.Ceiling > 0 {
		return op.Ceiling
	}
	return op.Params.Capacity
}

// addable reports whether a charge may be added to those before it on its cell, which cost
// so much.
func addable(before, op *law.Op, cost int64) bool {
	return before.Params == op.Params && before.Now == op.Now && before.Ceiling == 0 && op.Ceiling == 0 &&
		op.Cost*op.Count <= op.Params.Capacity-cost
}

// add adds the request from i to j.
func (s *sums) add(i, j int, place []int32) {
	s.anchor = s.ops[i].Params.Anchor
	s.count += j - i
	for k := i; k < j; k++ {
		c := &s.cells[place[k]]
		s.coupled = s.coupled || place[k] != place[i]
		if c.used {
			s.next[c.tail] = int32(k)
		} else {
			c.head, c.used = int32(k), true
		}
		c.tail = int32(k)
		c.cost += s.ops[k].Cost * s.ops[k].Count
	}
}

// sumsWidth is how many numbers an answer has of each cell: 1 if it was charged, 0 if it has no room, -1 if it is not
// decided about here; the level, time, end and block that it has then; the clock; and 1 if it was made.
const sumsWidth = 7

// read turns an answer into outcomes, and returns which ops it has decided, in their order.
func (s *sums) read(answer []int64, outs []law.Outcome) (decided []int, err error) {
	if len(answer) != len(s.cells)*sumsWidth {
		return nil, fmt.Errorf("the server answered about %d cells with %d numbers", len(s.cells), len(answer))
	}
	decided = make([]int, 0, s.count)
	var record law.Record
	list := []*law.Record{&record}
	for k := range s.cells {
		c, n := &s.cells[k], answer[k*sumsWidth:(k+1)*sumsWidth]
		charged, clock := n[0] > 0, n[5]
		if n[0] < 0 {
			continue
		}
		p := &s.ops[c.head].Params
		after := law.State{
			Kind: law.Bucket, Level: n[1], At: n[2], Unit: p.Unit, Step: p.Step, EmptyAt: n[3], BlockedUntil: n[4],
		}
		record = law.Record{State: after}
		if n[6] > 0 {
			record.State = law.State{}
		} else if charged {
			record.State = p.PlainState(after.Level-c.cost, after.At)
			record.State.BlockedUntil = after.BlockedUntil
		}
		known := len(decided)
		for i := c.head; ; i = s.next[i] {
			law.Apply(s.ops[i:i+1], outs[i:i+1], clock, list)
			decided = append(decided, int(i))
			if i == c.tail {
				break
			}
		}
		switch {
		case outs[c.tail].State == after:
		case charged:
			return nil, fmt.Errorf("the server's answer makes no sense: %v about %+v", n, s.ops[c.tail])
		default: // there is room for some of them
			decided = decided[:known]
		}
	}
	slices.Sort(decided)
	return decided, nil
}
