package mysql

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/law"
)

// Most batches are charges of buckets, each of one cell and no cell twice. Such
// a batch takes a way of its own, on which a cell is locked, read and written by
// one attempt to insert it, and not by two. It decides only about plain cells:
// those that are there, have the law and the unit of the op, have had nothing
// returned, and are not to be healed. Of these it says what they were and when, from which package law
// derives the outcome. Others it makes or locks, in their order; if there are
// any, one statement of the general way decides about them, which is otherwise
// a text that the server does not look at.

// plainRun is a part of a plain batch with one limit.
type plainRun struct {
	rows   []row
	varies [params]bool
}

// plainRuns is how many limits a plain batch may have: each takes a statement.
const plainRuns = 4

// carriers are columns in which a new row may bring along what differs from op
// to op, by the names of the parameters: in a cell that no charge has touched,
// all columns are taken for 0.
var carriers = [...]struct {
	param  int
	column string
}{{pNow, "blocked_until"}, {pCost, "level"}, {pCount, "prev"}, {pPartial, "at"}, {pCeiling, "empty_at"}}

// rowColumn brings along the number of a row.
const rowColumn = "unit"

// newPlainPlan returns a plan for a plain batch; nil if it is not one.
func newPlainPlan(ops []law.Op) *plan {
	if len(ops) == 0 || len(ops) > maxRows {
		return nil
	}
	for i := range ops {
		op := &ops[i]
		if op.Verb != law.Take || once(op) || !op.Params.Plain() || op.Params.Block > 0 || i > 0 && op.Group == ops[i-1].Group || op.Valid() != nil {
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
	p := &plan{ops: ops, runs: []run{{rows: rows, shape: shape{Bucket: true, Single: true}}}}
	begin := 0
	for i := range rows {
		op := &ops[rows[i].op]
		if i > 0 {
			last := &ops[rows[i-1].op]
			switch {
			case op.Cell == last.Cell:
				return nil
			case op.Cell.Limit != last.Cell.Limit:
				p.plain = append(p.plain, plainRun{rows: rows[begin:i]})
				begin = i
			case op.Params != last.Params:
				return nil
			}
		}
	}
	p.plain = append(p.plain, plainRun{rows: rows[begin:]})
	if len(p.plain) > plainRuns {
		return nil
	}
	anchor := ops[rows[0].op].Params.Anchor
	for i := range p.plain {
		r := &p.plain[i]
		head := &ops[r.rows[0].op]
		if head.Params.Anchor != anchor {
			return nil
		}
		for _, row := range r.rows[1:] {
			op := &ops[row.op]
			r.varies[pNow] = r.varies[pNow] || op.Now != head.Now
			r.varies[pCost] = r.varies[pCost] || op.Cost != head.Cost
			r.varies[pCount] = r.varies[pCount] || op.Count != head.Count
			r.varies[pPartial] = r.varies[pPartial] || op.Partial != head.Partial
			r.varies[pCeiling] = r.varies[pCeiling] || op.Ceiling != head.Ceiling
		}
	}
	p.runs[0].shape.Anchor = 1 + int(anchor)
	return p
}

// localClock is what SYSDATE gives by the time zone of the session, at the time
// of the statement.
const localClock = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', NOW(6))"

// decidePlain writes the statements that decide a plain batch.
func (p *plan) decidePlain(b *strings.Builder) {
	n := 0
	for i := range p.plain {
		p.plainRun(b, &p.plain[i], n)
		n += len(p.plain[i].rows)
	}
	var rest strings.Builder
	p.decide(&rest, &p.runs[0])
	b.WriteString("DO @hg_clock := " + readClock + ";SET @hg_s = IF(@hg_count = " + strconv.Itoa(len(p.ops)) + ", 'DO 0', '")
	b.WriteString(strings.ReplaceAll(strings.TrimSuffix(rest.String(), ";"), "'", "''"))
	b.WriteString("');" + executeText)
}

// plainRun writes the statement for a part, whose first row is the n-th.
func (p *plan) plainRun(b *strings.Builder, r *plainRun, n int) {
	head := &p.ops[r.rows[0].op]
	common := p.numbers(r.rows[0])
	b.WriteString("INSERT INTO headgate_cells (limit_name, cell_key, " + rowColumn)
	for _, c := range carriers {
		if r.varies[c.param] {
			b.WriteString(", " + c.column)
		}
	}
	b.WriteString(") VALUES ")
	var limit strings.Builder
	literal(&limit, head.Cell.Limit)
	buf := make([]byte, 0, 128)
	for i, row := range r.rows {
		op := &p.ops[row.op]
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('(')
		b.WriteString(limit.String())
		b.WriteByte(',')
		literal(b, op.Cell.Key)
		buf = strconv.AppendInt(append(buf[:0], ','), int64(n+i), 10)
		for _, c := range carriers {
			if r.varies[c.param] {
				buf = strconv.AppendInt(append(buf, ','), brought(op, c.param), 10)
			}
		}
		buf = append(buf, ')')
		b.Write(buf)
	}
	b.WriteString(" ON DUPLICATE KEY UPDATE level = IF(GREATEST(0, ")
	s := p.runs[0].shape
	s.Plain = true
	sequenceOf(s).render(b, func(name string) string { return "headgate_cells." + name }, func(i int) string {
		if i == pRow {
			return "VALUES(" + rowColumn + ")"
		}
		if r.varies[i] {
			for _, c := range carriers {
				if c.param == i {
					return "VALUES(" + c.column + ")"
				}
			}
		}
		return strconv.FormatInt(common[i], 10)
	})
	b.WriteString(") < 0, 0, @hg_level), at = @hg_at, empty_at = @hg_empty;")
}

// brought returns what an op brings along.
func brought(op *law.Op, param int) int64 {
	switch param {
	case pNow:
		return op.Now
	case pCost:
		return op.Cost
	case pCount:
		return op.Count
	case pCeiling:
		return op.Ceiling
	case pPartial:
		if op.Partial {
			return 1
		}
	}
	return 0
}

// decodePlain turns the records of plain cells into outcomes, and reads the
// other rows' as those of any batch.
func (p *plan) decodePlain(records, plain []byte, outs []law.Outcome) error {
	d := decoder{records: bytes.TrimPrefix(plain, []byte{';'})}
	r := &p.runs[0]
	rest := make([]row, 0, 8)
	next := 0
	var record law.Record
	list := []*law.Record{&record}
	for len(d.records) > 0 {
		n := int(d.next())
		clock := d.next()
		st := law.State{Level: d.next(), Prev: d.next(), At: d.next(), EmptyAt: d.next(), BlockedUntil: d.next()}
		if d.err != nil || n < next || n >= len(r.rows) {
			return errNoSense(plain, d.err)
		}
		rest = append(rest, r.rows[next:n]...)
		next = n + 1
		i := r.rows[n].op
		op := &p.ops[i]
		st.Kind, st.Unit, st.Step = op.Params.Kind, op.Params.Unit, op.Params.Step
		record = law.Record{State: st}
		law.Apply(p.ops[i:i+1], outs[i:i+1], clock, list)
	}
	rest = append(rest, r.rows[next:]...)
	if len(rest) == 0 {
		if len(records) > 0 {
			return errNoSense(records, errors.New("nothing was left to decide"))
		}
		return nil
	}
	others := &plan{ops: p.ops, runs: []run{{rows: rest, shape: r.shape}}}
	return others.decode(records, nil, outs)
}
