package mysql

import (
	"fmt"
	"slices"

	"github.com/headgate/headgate/law"
)

// Plain charges are decided by sums: each cell is charged the sum of its charges in a batch, or nothing. If the sum
// fits, all its charges would be granted one after another too: see TakePlain of package law. If it does not fit, the
// cell is unchanged. If package law refuses all of its charges, that decides them; otherwise applyRows decides them. If
// a request charges several cells, all cells of the batch must have room for their sums: else nothing of it is done.
//
// On MariaDB a batch is an INSERT: see sums_text.go. A single charge has a statement of its own: see one.go.

// sums is the part of a batch that is decided by sums. It leaves out other verbs and laws, and later ops on the cells
// of these.
type sums struct {
	ops     []law.Op
	cells   []cellSum // in the order in which they are locked
	coupled bool      // a request has charges on several cells
	anchor  law.Anchor
	count   int     // how many ops are decided by sums
	next    []int32 // for each op, the next op on its cell; 0: none
}

// cellSum has the charges of a batch on one cell.
type cellSum struct {
	head, tail int32 // the indices of the first and the last op
	closed     bool  // the cell takes no more charges of the batch
	used       bool  // the cell has charges
	cost       int64 // the cost of all its charges
}

// A batch of more than maxSummed ops is not decided by sums, nor is a request of more than maxCoupled ops.
const (
	maxSummed  = 1024
	maxCoupled = 32
)

// newSums returns the part of a batch that is decided by sums; nil if that is less than half, or the batch is too long.
func newSums(ops []law.Op) *sums {
	if len(ops) > maxSummed {
		return nil
	}
	sorted := make([]int32, len(ops))
	for i := range sorted {
		sorted[i] = int32(i)
	}
	slices.SortFunc(sorted, func(a, b int32) int { return ops[a].Cell.Compare(ops[b].Cell) })
	s := &sums{ops: ops, next: make([]int32, len(ops)), cells: make([]cellSum, 0, len(ops))}
	place := make([]int32, len(ops)) // for each op, the index of its cell in s.cells
	for k, i := range sorted {
		if k == 0 || ops[i].Cell != ops[sorted[k-1]].Cell {
			s.cells = append(s.cells, cellSum{})
		}
		place[i] = int32(len(s.cells) - 1)
	}
	for i := 0; i < len(ops); {
		j := law.GroupEnd(ops, i)
		if s.canAdd(i, j, place) {
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
	s.cells = slices.DeleteFunc(s.cells, func(c cellSum) bool { return !c.used })
	return s
}

// canAdd reports whether sums can decide the request of the ops from i to before j. It must charge no cell twice.
func (s *sums) canAdd(i, j int, place []int32) bool {
	if j-i > maxCoupled || law.ValidGroup(s.ops[i:j]) != nil {
		return false
	}
	anchor := s.ops[i].Params.Anchor
	if s.count > 0 {
		anchor = s.anchor
	}
	for k := i; k < j; k++ {
		op, c := &s.ops[k], &s.cells[place[k]]
		if c.closed || op.Params.Anchor != anchor || !isSummable(op) ||
			c.used && !isAddable(&s.ops[c.head], op, c.cost) || slices.Contains(place[i:k], place[k]) {
			return false
		}
	}
	return true
}

// isSummable reports whether sums can decide a charge. They cannot if not even an empty cell has room for it.
func isSummable(op *law.Op) bool {
	return op.Verb == law.Take && op.Alone() && !op.Timed() && op.Params.Plain() && op.Params.Block <= 0 &&
		op.Cost*op.Count <= ceiling(op)
}

// ceiling returns the level up to which a charge is granted, in credits.
func ceiling(op *law.Op) int64 {
	if op.Ceiling > 0 {
		return op.Ceiling
	}
	return op.Params.Capacity
}

// isAddable reports whether op may be added to earlier charges of its cell: head is the first, cost their total cost.
func isAddable(head, op *law.Op, cost int64) bool {
	return head.Params == op.Params && head.Now == op.Now && head.Ceiling == 0 && op.Ceiling == 0 &&
		op.Cost*op.Count <= op.Params.Capacity-cost
}

// add adds the charges of the request of the ops from i to before j to their cells.
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

// sumsWidth is how many numbers an answer has for each cell. They are the result (1: charged, 0: no room or blocked,
// -1: not decided), Level, At, EmptyAt and BlockedUntil afterwards, the clock, and 1 if the statement made the cell.
const sumsWidth = 7

// decode sets the outcomes of the ops that an answer decides, and returns the sorted indices of these ops.
func (s *sums) decode(answer []int64, outs []law.Outcome) (decided []int, err error) {
	if len(answer) != len(s.cells)*sumsWidth {
		return nil, fmt.Errorf("the server answered about %d cells with %d numbers", len(s.cells), len(answer))
	}
	decided = make([]int, 0, s.count)
	var record law.Record
	list := []*law.Record{&record}
	for k := range s.cells {
		c, row := &s.cells[k], answer[k*sumsWidth:(k+1)*sumsWidth]
		charged, clock := row[0] > 0, row[5]
		if row[0] < 0 {
			continue
		}
		p := &s.ops[c.head].Params
		after := law.State{
			Kind: law.Bucket, Level: row[1], At: row[2], Unit: p.Unit, Step: p.Step, EmptyAt: row[3],
			BlockedUntil: row[4],
		}
		record = law.Record{State: after}
		if row[6] > 0 {
			record.State = law.State{}
		} else if charged {
			record.State = p.PlainState(after.Level-c.cost, after.At)
			record.State.BlockedUntil = after.BlockedUntil
		}
		before := len(decided)
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
			return nil, fmt.Errorf("the server's answer makes no sense: %v about %+v", row, s.ops[c.tail])
		default: // the sum does not fit, but some of the charges do
			decided = decided[:before]
		}
	}
	slices.Sort(decided)
	return decided, nil
}
