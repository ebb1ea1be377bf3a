package mysql

import (
	"strconv"
	"strings"
)

// decidePlain writes the statements that decide a plain batch: one for each part, and
// one for the rows that these have left, if there are any.
func (p *plan) decidePlain(b *strings.Builder) {
	n := 0
	for i := range p.plain {
		p.decidePart(b, &p.plain[i], n)
		n += len(p.plain[i].rows)
	}
	var rest strings.Builder
	p.decide(&rest, &p.runs[0])
	b.WriteString("DO @hg_clock := " + readClock + ";")
	p.unlessAllPlain(b, strings.TrimSuffix(rest.String(), ";"))
}

// unlessAllPlain writes what carries out a statement unless all rows were plain.
func (p *plan) unlessAllPlain(b *strings.Builder, statement string) {
	b.WriteString("SET @hg_s = IF(@hg_count = " + strconv.Itoa(len(p.ops)) + ", 'DO 0', '")
	b.WriteString(strings.ReplaceAll(statement, "'", "''"))
	b.WriteString("');" + executeText)
}

// decidePart writes the statement for a part, whose first row is the n-th.
func (p *plan) decidePart(b *strings.Builder, r *plainRun, n int) {
	p.insertPart(b, r, n)
	common := p.numbers(r.rows[0])
	s := p.runs[0].shape
	s.Plain = true
	b.WriteString(" ON DUPLICATE KEY UPDATE level = IF(GREATEST(0, ")
	sequenceOf(s).render(b, ownColumn, func(i int) string {
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

// insertPart writes the rows that a part attempts to insert.
func (p *plan) insertPart(b *strings.Builder, r *plainRun, n int) {
	b.WriteString("INSERT INTO headgate_cells (limit_name, cell_key, " + rowColumn)
	for _, c := range carriers {
		if r.varies[c.param] {
			b.WriteString(", " + c.column)
		}
	}
	b.WriteString(") VALUES ")
	limit := quoted(p.ops[r.rows[0].op].Cell.Limit)
	buf := make([]byte, 0, 128)
	for i, row := range r.rows {
		op := &p.ops[row.op]
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('(')
		b.WriteString(limit)
		b.WriteByte(',')
		literal(b, op.Cell.Key)
		buf = strconv.AppendInt(append(buf[:0], ','), int64(n+i), 10)
		for _, c := range carriers {
			if r.varies[c.param] {
				buf = strconv.AppendInt(append(buf, ','), c.value(op), 10)
			}
		}
		buf = append(buf, ')')
		b.Write(buf)
	}
}
