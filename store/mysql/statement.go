package mysql

import (
	"strconv"
	"strings"

	"github.com/headgate/headgate/law"
)

// statement decides a run. What all rows have in common stands in it as a literal.
// What differs is brought along by the rows that it attempts to insert, or is a column
// of a list o.
type statement struct {
	plan *plan
	run  *run
	head *law.Op // of the first row

	common [params]int64 // the numbers of the first row
	varies [params]bool  // other rows have others
	limits bool          // their limits differ
	keys   bool          // and their keys
	notes  bool          // and the reasons of blocks
	ids    bool          // and their IDs

	// columns are those in which rows bring along what differs, by its name; nil if
	// there is a list.
	columns map[string]string
}

// freeColumns are those in which a row may bring along a number. The cells are there,
// so none of these rows is inserted.
var freeColumns = [...]string{"level", "prev", "at", "empty_at", "blocked_until", "unit"}

// The names of texts that differ. Numbers have those of their parameters.
const (
	limitColumn = "l"
	keyColumn   = "k"
	noteColumn  = "note"
	idColumn    = "id"
)

// newStatement finds out what differs between the rows of a run, and how the statement
// gets that.
func newStatement(p *plan, r *run) *statement {
	s := &statement{plan: p, run: r, head: &p.ops[r.rows[0].op], common: p.numbers(r.rows[0])}
	for _, row := range r.rows[1:] {
		op := &p.ops[row.op]
		s.limits = s.limits || op.Cell.Limit != s.head.Cell.Limit
		s.keys = s.keys || op.Cell.Key != s.head.Cell.Key
		s.notes = s.notes || r.shape.Block && op.Reason != s.head.Reason
		s.ids = s.ids || r.shape.IDs && op.ID != s.head.ID
		for i, n := range p.numbers(row) {
			s.varies[i] = s.varies[i] || n != s.common[i]
		}
	}
	if !p.reads && p.plain == nil && !r.shape.queries() {
		s.useColumns()
	}
	return s
}

// useColumns lets rows bring along what differs, if there are columns for it.
func (s *statement) useColumns() {
	varying := 0
	for _, v := range s.varies {
		if v {
			varying++
		}
	}
	if varying > len(freeColumns) {
		return
	}
	s.columns = map[string]string{limitColumn: "limit_name", keyColumn: "cell_key", noteColumn: "reason"}
	for i, name := range paramNames {
		if s.varies[i] {
			varying--
			s.columns[name] = freeColumns[varying]
		}
	}
}

// queries tells whether there is a query within the laws: that of the return rule, and
// those for an ID or a lease. What rows bring along is not known there.
func (s shape) queries() bool { return s.Return && s.Log || s.IDs || s.Renew }

// value returns what stands for something that differs from row to row.
func (s *statement) value(name string) string {
	if s.columns != nil {
		return "VALUES(" + s.columns[name] + ")"
	}
	return "o." + name
}

// text returns what stands for a text, which is value where it does not differ.
func (s *statement) text(differs bool, name, value string) string {
	if differs {
		return s.value(name)
	}
	return quoted(value)
}

// limit and key return what stands for the names of the cell.
func (s *statement) limit() string { return s.text(s.limits, limitColumn, s.head.Cell.Limit) }
func (s *statement) key() string   { return s.text(s.keys, keyColumn, s.head.Cell.Key) }

// param returns what stands for a number, or for the ID.
func (s *statement) param(i int) string {
	switch {
	case i == pID:
		return s.text(s.ids, idColumn, s.head.ID)
	case s.varies[i]:
		return s.value(paramNames[i])
	}
	return strconv.FormatInt(s.common[i], 10)
}

// decide writes the statement that decides a run, and what makes room for its memory.
func (p *plan) decide(b *strings.Builder, r *run) {
	s := newStatement(p, r)
	if r.shape.Groups || r.shape.Once || r.shape.Extend {
		most := 0
		for _, row := range r.rows {
			most = max(most, row.size)
		}
		b.WriteString("SET @hg_undo = CAST(REPEAT('0', " + strconv.Itoa(widths["undo"]) + " * " + strconv.Itoa(most) +
			") AS BINARY);")
	}
	switch {
	case p.reads:
		s.asSelect(b)
	case s.columns != nil:
		s.asInsertValues(b)
	default:
		s.asInsertSelect(b)
	}
}

// asSelect writes the statement as one that only reads. Cells may be missing.
func (s *statement) asSelect(b *strings.Builder) {
	limit, key := s.limit(), s.key()
	b.WriteString("SELECT LENGTH(")
	s.laws(b, func(name string) string {
		switch name {
		case "limit_name":
			return limit
		case "cell_key":
			return key
		}
		return "COALESCE(c." + name + ", 0)"
	})
	b.WriteString(") FROM (")
	s.list(b)
	b.WriteString(") o LEFT JOIN headgate_cells c ON c.limit_name = " + limit + " AND c.cell_key = " + key + ";")
}

// asInsertSelect writes the statement as an attempt to insert the rows of a list.
func (s *statement) asInsertSelect(b *strings.Builder) {
	b.WriteString("INSERT INTO headgate_cells (limit_name, cell_key) SELECT " + s.limit() + ", " + s.key() + " FROM (")
	s.list(b)
	b.WriteString(") o")
	if s.plan.plain == nil {
		s.update(b, ownColumn)
		return
	}
	b.WriteString(" WHERE LOCATE(CONCAT(';', o.n, ','), @hg_plain) = 0")
	s.update(b, untouchedColumn)
}

// asInsertValues writes the statement as an attempt to insert rows that bring along,
// in columns, what differs between them.
func (s *statement) asInsertValues(b *strings.Builder) {
	b.WriteString("INSERT INTO headgate_cells (limit_name, cell_key")
	var brought []int
	for i, v := range s.varies {
		if v {
			brought = append(brought, i)
			b.WriteString(", " + s.columns[paramNames[i]])
		}
	}
	if s.notes {
		b.WriteString(", " + s.columns[noteColumn])
	}
	b.WriteString(") VALUES ")
	var buf []byte
	for i, row := range s.run.rows {
		op := &s.plan.ops[row.op]
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('(')
		literals(b, op.Cell)
		if len(brought) > 0 {
			numbers := s.plan.numbers(row)
			for _, n := range brought {
				buf = strconv.AppendInt(append(buf[:0], ','), numbers[n], 10)
				b.Write(buf)
			}
		}
		if s.notes {
			b.WriteByte(',')
			literal(b, op.Reason)
		}
		b.WriteByte(')')
	}
	s.update(b, ownColumn)
}

// ownColumn is a column of the cell.
func ownColumn(name string) string { return "headgate_cells." + name }

// untouchedColumn is a column of a cell in which rows may have brought something along,
// if no charge has touched it.
func untouchedColumn(name string) string {
	switch name {
	case "law", "limit_name", "cell_key":
		return ownColumn(name)
	}
	return "IF(headgate_cells.law = 0, 0, headgate_cells." + name + ")"
}

// update writes how the cells are written, which is where the laws are.
func (s *statement) update(b *strings.Builder, column func(string) string) {
	b.WriteString(" ON DUPLICATE KEY UPDATE law = IF(")
	s.laws(b, column)
	b.WriteString(" < 0, 0, @hg_law)," + save + "reason = ")
	reason := "IF(@hg_block <> headgate_cells.blocked_until, '', headgate_cells.reason)"
	if s.run.shape.Block {
		reason = "IF(" + s.param(pPass) + " = " + strconv.Itoa(blockPass) + ", IF(" + s.param(pTTL) + " > 0, " +
			s.text(s.notes, noteColumn, s.head.Reason) + ", ''), " + reason + ")"
	}
	b.WriteString(reason + ", blocked_until = @hg_block;")
}

// laws writes the laws, as one value.
func (s *statement) laws(b *strings.Builder, column func(string) string) {
	p, needs := s.plan, s.run.shape
	needs.Parts = p.parts && needs.Settle && (needs.Bucket || needs.Window)
	if needs.Only() {
		b.WriteString("GREATEST(0, ")
	}
	sequenceOf(needs).render(b, column, s.param)
	if needs.Only() {
		b.WriteByte(')')
	}
}

// list writes the rows as a list, each of what differs. The first names the columns.
func (s *statement) list(b *strings.Builder) {
	for i, row := range s.run.rows {
		op := &s.plan.ops[row.op]
		text := func(differs bool, name, value string) {
			if differs {
				named(b, i, ","+quoted(value), name)
			}
		}
		openRow(b, s.plan.values, i)
		named(b, i, strconv.Itoa(i), "n")
		text(s.limits, limitColumn, op.Cell.Limit)
		text(s.keys, keyColumn, op.Cell.Key)
		text(s.notes, noteColumn, op.Reason)
		text(s.ids, idColumn, op.ID)
		for n, number := range s.plan.numbers(row) {
			if s.varies[n] {
				named(b, i, ","+strconv.FormatInt(number, 10), paramNames[n])
			}
		}
		shutRow(b, s.plan.values, i)
	}
}
