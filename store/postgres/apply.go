package postgres

import (
	"context"
	"fmt"
	"slices"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// modes of a cell in headgate_internal.apply, the strongest wins.
const (
	read int16 = iota
	lock
	create
)

// batch is a batch in the form that headgate_internal.apply takes.
type batch struct {
	modes []int16 // of each cell
	ops   []int64
	notes []string // nil: none has any
	index []int    // of each op, in the caller's slice
	once  bool     // some have an ID
	plain bool     // some are plain charges of buckets
}

// Apply implements store.Store.
func (s *Store) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	if store.PassesHeld(ctx) && s.pool != nil && s.def == current() {
		return s.applyPassing(ctx, ops, outs)
	}
	return s.apply(ctx, ops, outs)
}

// apply applies a batch by one of the functions.
func (s *Store) apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if len(ops) == 1 && plain(&ops[0]) && ops[0].Valid() == nil {
		return s.applyOne(ctx, &ops[0], &outs[0])
	}
	a := arrange(ops, outs)
	if len(a.index) == 0 {
		return nil
	}
	if s.pool != nil { // in the caller's transaction a second call could wait for a row out of order
		if b, ok := sum(ops, &a); ok && !s.crowd() {
			return s.applySums(ctx, &b, &a, ops, outs)
		}
	}
	return s.applyAll(ctx, &a, ops, outs)
}

// applyAll applies any batch.
func (s *Store) applyAll(ctx context.Context, a *arranged, ops []law.Op, outs []law.Outcome) error {
	b := encode(ops, a)
	limits, keys := a.names()
	statement, args := s.def.statement(`select headgate_internal.apply_N($1, $2, $3, $4, $5)`),
		[]any{limits, keys, b.modes, b.ops, b.notes}
	if b.once || b.plain {
		var prints []int64
		var parts []int32
		if b.once {
			prints, parts = b.prints(ops), b.parts(ops)
		}
		statement, args = s.def.statement(`select headgate_internal.apply_plain_N($1, $2, $3, $4, $5, $6, $7)`),
			append(args, prints, parts)
	}
	var res []int64
	err := s.retry(ctx, func() error { return s.call(ctx, statement, args, &res) })
	if err == nil && len(res) != len(b.index)*law.Width {
		err = &unreadable{fmt.Errorf("the server answered with %d numbers", len(res))}
	}
	if err != nil {
		return s.failed(len(b.index), err)
	}
	b.decode(res, outs)
	return nil
}

// arranged is the valid part of a batch.
type arranged struct {
	index []int      // its ops, in the caller's slice
	cells []law.Cell // their cells, each once, in the order in which they are locked
	cell  []int32    // of each op in the caller's slice: its cell, from 1 on as SQL counts
}

// arrange leaves out the groups that are not valid, and says so in outs.
func arrange(ops []law.Op, outs []law.Outcome) arranged {
	a := arranged{index: make([]int, 0, len(ops)), cell: make([]int32, len(ops))}
	for i := 0; i < len(ops); {
		j := law.GroupEnd(ops, i)
		err := law.ValidGroup(ops[i:j])
		for ; i < j; i++ {
			if err != nil {
				outs[i] = law.Outcome{Err: err}
				continue
			}
			a.index = append(a.index, i)
		}
	}
	sorted := slices.Clone(a.index)
	slices.SortFunc(sorted, func(i, j int) int { return ops[i].Cell.Compare(ops[j].Cell) })
	a.cells = make([]law.Cell, 0, len(sorted))
	for _, i := range sorted {
		if n := len(a.cells); n == 0 || a.cells[n-1] != ops[i].Cell {
			a.cells = append(a.cells, ops[i].Cell)
		}
		a.cell[i] = int32(len(a.cells))
	}
	return a
}

// names returns the limits and the keys of the cells.
func (a *arranged) names() (limits, keys []string) {
	both := make([]string, 2*len(a.cells))
	limits, keys = both[:len(a.cells):len(a.cells)], both[len(a.cells):]
	for i := range a.cells {
		limits[i], keys[i] = a.cells[i].Limit, a.cells[i].Key
	}
	return limits, keys
}

// encode returns ops in the form that headgate_internal.apply takes.
func encode(ops []law.Op, a *arranged) batch {
	b := batch{ops: make([]int64, 0, len(a.index)*opWidth), index: a.index, modes: make([]int16, len(a.cells))}
	group := int64(0)
	for k, i := range b.index {
		op := &ops[i]
		if k == 0 || i != b.index[k-1]+1 || op.Group != ops[i-1].Group {
			group++ // of one number, but with an invalid group between: two groups
		}
		cell := a.cell[i]
		b.modes[cell-1] = max(b.modes[cell-1], mode(op))
		at := len(b.ops)
		b.ops = opLayout.Append(b.ops, op)
		b.ops[at+opGroup], b.ops[at+opCell] = group, int64(cell)
		note := op.ID
		if op.Verb == law.Block {
			note = op.Reason
		}
		if note != "" && b.notes == nil {
			b.notes = make([]string, len(b.index))
		}
		if b.notes != nil {
			b.notes[k] = note
		}
		b.once, b.plain = b.once || named(op), b.plain || op.Plain() && op.Params.Plain()
	}
	return b
}

// mode returns what an op needs of its cell.
func mode(op *law.Op) int16 {
	switch op.Verb {
	case law.Check:
		return read
	case law.Renew, law.Reset, law.Settle, law.Extend: // a cell that is not there knows no ID
		return lock
	case law.Return:
		if op.Cost > 0 {
			return lock
		}
	}
	return create
}

// decode writes the outcomes of the batch.
func (b *batch) decode(res []int64, outs []law.Outcome) {
	for k, i := range b.index {
		outs[i] = decode(res, k)
	}
}

// decode returns the outcome of op k of those that were sent.
func decode(res []int64, k int) law.Outcome {
	n := law.Numbers(res[k*law.Width : (k+1)*law.Width])
	return n.Outcome()
}
