package postgres

import (
	"context"
	"fmt"
	"slices"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// The modes say what headgate_internal.apply does with a cell. The greatest mode of a cell's ops counts.
const (
	readCell int16 = iota
	lockCell
	createCell
)

// batch is a batch in the form that headgate_internal.apply takes.
type batch struct {
	modes        []int16  // for each cell: readCell, lockCell or createCell
	ops          []int64  // the numbers of all ops, in the order of opLayout
	notes        []string // for each op: its ID, or the reason of a Block; nil: all are empty
	indexes      []int    // for each op: its index in the caller's slice
	withReceipts bool     // some ops read or write the receipt of an ID
	withPlain    bool     // some ops are plain charges of buckets
}

// Apply implements store.Store.
func (s *Store) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	if store.PassesHeld(ctx) && s.pool != nil && s.def == postgresDefinition() {
		return s.applyPassHeld(ctx, ops, outs)
	}
	return s.apply(ctx, ops, outs)
}

// apply applies a batch by the fastest function that can decide it. It does not look at store.PassHeld.
func (s *Store) apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if len(ops) == 1 && isPlain(&ops[0]) && ops[0].Valid() == nil {
		return s.applyOne(ctx, &ops[0], &outs[0])
	}
	valid := arrange(ops, outs)
	if len(valid.indexes) == 0 {
		return nil
	}
	if s.pool != nil { // in the caller's transaction a second call could wait for a row out of order
		b, ok := sumUp(ops, &valid)
		if skip := &s.skipSumsBatches; ok && (skip.Load() <= 0 || skip.Add(-1) < 0) {
			return s.applySums(ctx, &b, &valid, ops, outs)
		}
	}
	return s.applyAll(ctx, &valid, ops, outs)
}

// applyAll applies any batch by headgate_internal.apply or apply_plain.
func (s *Store) applyAll(ctx context.Context, valid *validBatch, ops []law.Op, outs []law.Outcome) error {
	b := encode(ops, valid)
	limits, keys := valid.names()
	statement, args := s.def.statement(`select headgate_internal.apply_N($1, $2, $3, $4, $5)`),
		[]any{limits, keys, b.modes, b.ops, b.notes}
	if b.withReceipts || b.withPlain {
		var prints []int64
		var parts []int32
		if b.withReceipts {
			prints, parts = b.fingerprints(ops), b.parts(ops)
		}
		statement, args = s.def.statement(`select headgate_internal.apply_plain_N($1, $2, $3, $4, $5, $6, $7)`),
			append(args, prints, parts)
	}
	var res []int64
	err := s.retry(ctx, func() error { return s.call(ctx, statement, args, &res) })
	if err == nil && len(res) != len(b.indexes)*law.Width {
		err = &unreadableError{fmt.Errorf("the server answered with %d numbers", len(res))}
	}
	if err != nil {
		return s.batchError(len(b.indexes), err)
	}
	for k, i := range b.indexes {
		outs[i] = decodeOutcome(res, k)
	}
	return nil
}

// validBatch is the valid part of a batch.
type validBatch struct {
	indexes     []int      // the indexes of its ops in the caller's slice
	cells       []law.Cell // the distinct cells of the ops, in the order in which they are locked
	cellNumbers []int32    // for each op of the caller's slice: the number of its cell, from 1 as SQL counts
}

// arrange returns the valid part of a batch, and sets Err in the outcomes of invalid groups.
func arrange(ops []law.Op, outs []law.Outcome) validBatch {
	valid := validBatch{indexes: make([]int, 0, len(ops)), cellNumbers: make([]int32, len(ops))}
	for i := 0; i < len(ops); {
		j := law.GroupEnd(ops, i)
		err := law.ValidGroup(ops[i:j])
		for ; i < j; i++ {
			if err != nil {
				outs[i] = law.Outcome{Err: err}
				continue
			}
			valid.indexes = append(valid.indexes, i)
		}
	}
	sortedIndexes := slices.Clone(valid.indexes)
	slices.SortFunc(sortedIndexes, func(i, j int) int { return ops[i].Cell.Compare(ops[j].Cell) })
	valid.cells = make([]law.Cell, 0, len(sortedIndexes))
	for _, i := range sortedIndexes {
		if n := len(valid.cells); n == 0 || valid.cells[n-1] != ops[i].Cell {
			valid.cells = append(valid.cells, ops[i].Cell)
		}
		valid.cellNumbers[i] = int32(len(valid.cells))
	}
	return valid
}

// names returns the limits and the keys of the cells.
func (v *validBatch) names() (limits, keys []string) {
	texts := make([]string, 2*len(v.cells)) // one allocation for both lists
	limits, keys = texts[:len(v.cells):len(v.cells)], texts[len(v.cells):]
	for i := range v.cells {
		limits[i], keys[i] = v.cells[i].Limit, v.cells[i].Key
	}
	return limits, keys
}

// encode returns the valid ops in the form that headgate_internal.apply takes.
func encode(ops []law.Op, valid *validBatch) batch {
	b := batch{indexes: valid.indexes, modes: make([]int16, len(valid.cells))}
	b.ops = make([]int64, 0, len(b.indexes)*opWidth)
	group := int64(0)
	for k, i := range b.indexes {
		op := &ops[i]
		if k == 0 || i != b.indexes[k-1]+1 || op.Group != ops[i-1].Group {
			group++ // also if an invalid group stands between two groups of one number
		}
		cell := valid.cellNumbers[i]
		b.modes[cell-1] = max(b.modes[cell-1], modeOf(op))
		start := len(b.ops)
		b.ops = opLayout.Append(b.ops, op)
		b.ops[start+opGroup], b.ops[start+opCell] = group, int64(cell)
		note := op.ID
		if op.Verb == law.Block {
			note = op.Reason
		}
		if note != "" && b.notes == nil {
			b.notes = make([]string, len(b.indexes))
		}
		if b.notes != nil {
			b.notes[k] = note
		}
		b.withReceipts, b.withPlain = b.withReceipts || needsReceipt(op), b.withPlain || op.Plain() && op.Params.Plain()
	}
	return b
}

// modeOf returns the mode in which an op uses its cell.
func modeOf(op *law.Op) int16 {
	switch op.Verb {
	case law.Check:
		return readCell
	case law.Renew, law.Reset, law.Settle, law.Extend: // nothing to do for a missing cell
		return lockCell
	case law.Return:
		if op.Cost > 0 { // a cost below 0 is a charge
			return lockCell
		}
	}
	return createCell
}

// decodeOutcome returns the outcome of the op that was sent as number k.
func decodeOutcome(res []int64, k int) law.Outcome {
	n := law.Numbers(res[k*law.Width : (k+1)*law.Width])
	return n.Outcome()
}
