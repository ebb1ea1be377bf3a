package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store/internal/overflow"
)

// modes of a cell in headgate.apply, the strongest wins.
const (
	read int16 = iota
	lock
	create
	sharedRead int16 = 4 // of a cell that keys share, which no op makes
	sharedLock int16 = 5
)

// batch is the valid part of a batch, in the form that headgate.apply takes.
type batch struct {
	limits, keys []string // the distinct cells, in the order in which they are locked
	modes        []int16
	ops          []int64
	notes        []string // nil: none has any
	index        []int    // of each op, in the caller's slice
	once         bool     // some have an ID, or settle: it is for headgate.apply_once
}

// Apply implements store.Store.
func (s *Store) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	apply, failed := s.apply, error(nil)
	if s.pool == nil {
		// What fails inside a transaction of the caller's undoes all of it.
		apply = func(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
			failed = s.apply(ctx, ops, outs)
			return failed
		}
	}
	if err := cmp.Or(overflow.Apply(ctx, ops, outs, apply, &s.counter.shared), failed); err != nil {
		return err
	}
	s.saw(ops, outs)
	return nil
}

// apply is Apply but for keys that share a cell: their outcomes say Full.
func (s *Store) apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	if b, ok := plainly(ops); ok {
		return s.applyPlain(ctx, &b, ops, outs)
	}
	b := encode(ops, outs)
	if len(b.index) == 0 {
		return nil
	}
	statement, args := s.def.statement(`select headgate.apply_N($1, $2, $3, $4, $5)`),
		[]any{b.limits, b.keys, b.modes, b.ops, b.notes}
	if b.once {
		statement, args = s.def.statement(`select headgate.apply_once_N($1, $2, $3, $4, $5, $6, $7)`),
			append(args, b.prints(ops), b.parts(ops))
	}
	var res []int64
	err := s.retry(ctx, func() error { return s.call(ctx, statement, args, &res) })
	if err == nil && len(res) != len(b.index)*law.Width {
		err = &unreadable{fmt.Errorf("the server answered with %d numbers", len(res))}
	}
	if err != nil {
		return s.failed(len(b.index), err)
	}
	for k, i := range b.index {
		outs[i] = decode(res, k)
	}
	return nil
}

// encode leaves out the groups that are not valid, and says so in outs.
func encode(ops []law.Op, outs []law.Outcome) batch {
	b := batch{ops: make([]int64, 0, len(ops)*opWidth), index: make([]int, 0, len(ops))}
	var cells []law.Cell
	for i := 0; i < len(ops); {
		j := law.GroupEnd(ops, i)
		err := law.ValidGroup(ops[i:j])
		for ; i < j; i++ {
			if err != nil {
				outs[i] = law.Outcome{Err: err}
				continue
			}
			b.index = append(b.index, i)
			cells = append(cells, ops[i].Cell)
		}
	}
	slices.SortFunc(cells, law.Cell.Compare)
	cells = slices.Compact(cells)
	b.limits, b.keys, b.modes = make([]string, len(cells)), make([]string, len(cells)), make([]int16, len(cells))
	for i, c := range cells {
		b.limits[i], b.keys[i] = c.Limit, c.Key
	}
	group := int64(0)
	for k, i := range b.index {
		op := &ops[i]
		if k == 0 || i != b.index[k-1]+1 || op.Group != ops[i-1].Group {
			group++ // of one number, but with an invalid group between: two groups
		}
		cell, _ := slices.BinarySearchFunc(cells, op.Cell, law.Cell.Compare)
		b.modes[cell] = max(b.modes[cell], mode(op))
		at := len(b.ops)
		b.ops = opLayout.Append(b.ops, op)
		b.ops[at+opGroup], b.ops[at+opCell] = group, int64(cell+1)
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
		b.once = b.once || named(op)
	}
	return b
}

// mode returns what an op needs of its cell.
func mode(op *law.Op) int16 {
	shared := law.IsShared(op.Cell)
	switch {
	case shared && op.Verb == law.Check:
		return sharedRead
	case shared:
		return sharedLock
	}
	switch op.Verb {
	case law.Check:
		return read
	case law.Renew, law.Reset, law.Settle:
		return lock
	case law.Return:
		if op.Cost > 0 {
			return lock
		}
	}
	return create
}

// decode returns the outcome of op k of those that were sent.
func decode(res []int64, k int) law.Outcome {
	n := law.Numbers(res[k*law.Width : (k+1)*law.Width])
	return n.Outcome()
}
