package mysql

import (
	"slices"

	"github.com/headgate/headgate/law"
)

// Most batches are charges of buckets, each of one cell and no cell twice. Such
// a batch takes a way of its own, on which a cell is locked, read and written by
// one attempt to insert it, and not by two. It decides only about plain cells:
// those that are there, have the law and the unit of the op, have had nothing
// returned, and are not to be healed. Of these it says what they were and when, from
// which package law derives the outcome. Others it makes or locks, in their order; if
// there are any, one statement of the general way decides about them, which is
// otherwise a text that the server does not look at.

// plainRuns is how many limits a plain batch may have: each takes a statement.
const plainRuns = 4

// carriers are columns in which a new row may bring along what differs from op
// to op, by the names of the parameters: in a cell that no charge has touched,
// all columns are taken for 0.
var carriers = [...]struct {
	param  int
	column string
	value  func(*law.Op) int64
}{
	{pNow, "blocked_until", func(op *law.Op) int64 { return op.Now }},
	{pCost, "level", func(op *law.Op) int64 { return op.Cost }},
	{pCount, "prev", func(op *law.Op) int64 { return op.Count }},
	{pPartial, "at", func(op *law.Op) int64 {
		if op.Partial {
			return 1
		}
		return 0
	}},
	{pCeiling, "empty_at", func(op *law.Op) int64 { return op.Ceiling }},
}

// rowColumn brings along the number of a row.
const rowColumn = "unit"

// newPlainPlan returns a plan for a plain batch; nil if it is not one.
func newPlainPlan(ops []law.Op) *plan {
	if len(ops) == 0 || len(ops) > maxRows {
		return nil
	}
	for i := range ops {
		if !plain(&ops[i]) || i > 0 && ops[i].Group == ops[i-1].Group {
			return nil
		}
	}
	rows := make([]row, len(ops))
	for i := range rows {
		rows[i] = row{op: i, pos: 1, first: 1, size: 1}
	}
	slices.SortFunc(rows, func(a, b row) int {
		return ops[a.op].Cell.Compare(ops[b.op].Cell)
	})
	runs := splitPlain(ops, rows)
	if runs == nil || len(runs) > plainRuns {
		return nil
	}
	anchor := ops[rows[0].op].Params.Anchor
	for i := range runs {
		if ops[runs[i].rows[0].op].Params.Anchor != anchor {
			return nil
		}
		runs[i].compare(ops)
	}
	s := shape{Bucket: true, Single: true, Anchor: 1 + int(anchor)}
	return &plan{ops: ops, runs: []run{{rows: rows, shape: s}}, plain: runs}
}

// plain reports whether an op may be one of a plain batch.
func plain(op *law.Op) bool {
	return op.Verb == law.Take && !once(op) && !op.Timed() && op.Params.Plain() && op.Params.Block <= 0 &&
		op.Valid() == nil
}

// splitPlain cuts rows, which are in order of their cells, into parts with one limit. It
// returns nil if two are of the same cell, or those of one limit differ in its
// parameters.
func splitPlain(ops []law.Op, rows []row) (runs []plainRun) {
	begin := 0
	for i := 1; i < len(rows); i++ {
		op, last := &ops[rows[i].op], &ops[rows[i-1].op]
		switch {
		case op.Cell == last.Cell:
			return nil
		case op.Cell.Limit != last.Cell.Limit:
			runs = append(runs, plainRun{rows: rows[begin:i]})
			begin = i
		case op.Params != last.Params:
			return nil
		}
	}
	return append(runs, plainRun{rows: rows[begin:]})
}

// compare finds out what differs between the rows.
func (r *plainRun) compare(ops []law.Op) {
	head := &ops[r.rows[0].op]
	for _, row := range r.rows[1:] {
		for _, c := range carriers {
			r.varies[c.param] = r.varies[c.param] || c.value(&ops[row.op]) != c.value(head)
		}
	}
}
