package mysql

import (
	_ "embed"
	"strconv"
	"strings"
	"sync"
	"text/template"
)

// A batch that is decided by sums is an INSERT of one row for each cell. It returns for each
// of them what became of it, the cell after it and the clock. The cell before it follows from
// the cell after it and what was granted; from that package law derives the outcomes, and
// their last state must be the cell after it.
//
// It returns 9223372036854775807 + 1, and so fails, for a cell that is not there, and where a
// request has charges on several cells also for one that has no room for its sum. To look
// whether a limit shares, and so make cells here too, needs a second row for each cell: that
// took as long as the general way.

//go:embed sums.tmpl
var sumsText string

// sumsShape says which parts the statement needs.
type sumsShape struct{ Epoch, Coupled, Partial bool }

var sumsTexts sync.Map // sumsShape -> sequence

// sumsOf returns what follows the rows of a statement of a shape.
func sumsOf(s sumsShape) sequence {
	if known, ok := sumsTexts.Load(s); ok {
		return known.(sequence)
	}
	t := template.Must(template.New("").Parse(oneText))
	template.Must(t.Parse(sumsText))
	var b strings.Builder
	if err := t.ExecuteTemplate(&b, "sums update", s); err != nil {
		panic(err) // it is embedded
	}
	cut := cut(strings.ReplaceAll(b.String(), "@", "@one_"))
	sumsTexts.Store(s, cut)
	return cut
}

// briefly bounds how long a statement waits for the lock of a row. After that nothing of it
// is left.
const briefly = "SET STATEMENT innodb_lock_wait_timeout = 1 FOR "

// free returns the statement that selects those of the cells that nobody holds. Like the
// batch it is forced onto the key.
func (s *sums) free() string {
	var b strings.Builder
	b.WriteString("SELECT limit_name, cell_key FROM headgate_cells FORCE INDEX (PRIMARY) WHERE ")
	limit := ""
	for k := range s.cells {
		switch cell := s.ops[s.cells[k].head].Cell; {
		case k > 0 && cell.Limit == limit:
			b.WriteByte(',')
			literal(&b, cell.Key)
		default:
			if k > 0 {
				b.WriteString(") OR ")
			}
			limit = cell.Limit
			b.WriteString("limit_name = ")
			literal(&b, limit)
			b.WriteString(" AND cell_key IN (")
			literal(&b, cell.Key)
		}
	}
	b.WriteString(") FOR UPDATE SKIP LOCKED")
	return b.String()
}

// text returns the statement, which assigns its turn with its last row.
func (s *sums) text(turn string) string {
	var b strings.Builder
	b.Grow(4096 + 64*len(s.cells))
	b.WriteString(briefly + "INSERT INTO headgate_cells (limit_name, cell_key")
	for _, c := range brought {
		if s.varies[c.param] {
			b.WriteString(", " + c.column)
		}
	}
	b.WriteString(") VALUES ")
	buf := make([]byte, 0, 32)
	for k := range s.cells {
		if k > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('(')
		literals(&b, s.ops[s.cells[k].head].Cell)
		for _, c := range brought {
			if s.varies[c.param] {
				buf = strconv.AppendInt(append(buf[:0], ','), s.number(&s.cells[k], c.param), 10)
				b.Write(buf)
			}
		}
		b.WriteByte(')')
	}
	shape := sumsShape{Epoch: s.anchor != 0, Coupled: s.coupled, Partial: s.partial}
	sumsOf(shape).render(&b, ownColumn, func(param int) string {
		if s.varies[param] {
			for _, c := range brought {
				if c.param == param {
					return "VALUES(" + c.column + ")"
				}
			}
		}
		return strconv.FormatInt(s.number(&s.cells[0], param), 10)
	})
	literal(&b, s.ops[s.cells[len(s.cells)-1].head].Cell.Key)
	b.WriteString(",'" + turn + "',''))")
	return b.String()
}
