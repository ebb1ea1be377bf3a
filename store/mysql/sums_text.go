package mysql

import (
	_ "embed"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/template"
	"time"

	"github.com/headgate/headgate/law"
)

// A batch that is decided by sums is an INSERT of one row for each cell. It returns for each
// of them what became of it, the cell after it and the clock. The cell before it follows from
// the cell after it and what was granted; from that package law derives the outcomes, and
// their last state must be the cell after it.
//
// There are two forms. In the one that makes cells, a row is the cell as its charges leave it
// if it is not there. The rows of the other have only what differs, and it is tried first
// unless one of the last batches has made a cell: new keys come together.
//
// The statement returns 9223372036854775807 + 1, and so fails, for a cell that no charge has
// touched, for new cells in the form that makes none, and where a
// request has charges on several cells also for one that has no room for its sum.

//go:embed sums.tmpl
var sumsText string

// sumsShape says which parts the statement needs.
// Makes: it makes cells that are not there.
type sumsShape struct{ Epoch, Coupled, Partial, Makes bool }

// Within is madeWithin, for the template.
func (sumsShape) Within() int64 { return madeWithin.Microseconds() }

// madeWithin is how long before the lock of its row the clock of a new cell may be read. A
// sweep may have removed that cell in the meantime, but none that had become empty since:
// see sweepSlack.
const madeWithin = 50 * time.Millisecond

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

// ownColumn is a column of the cell.
func ownColumn(name string) string { return "headgate_cells." + name }

// sumsClock reads the clock in a statement.
var sumsClock = sync.OnceValue(func() string {
	return strings.ReplaceAll(sumsPart("clock"), "{now}", "0")
})

// sumsPart returns a part of the statement that has no places.
func sumsPart(name string) string {
	t := template.Must(template.New("").Parse(oneText))
	template.Must(t.Parse(sumsText))
	var b strings.Builder
	if err := t.ExecuteTemplate(&b, name, sumsShape{}); err != nil {
		panic(err) // it is embedded
	}
	return strings.ReplaceAll(oneSpace(b.String()), "@", "@hg_one_")
}

// text returns the statement, which assigns its turn with its last row.
func (s *sums) text(turn string, makes bool) string {
	var b strings.Builder
	b.Grow(4096 + 96*len(s.cells))
	b.WriteString(briefly + "INSERT INTO headgate_cells (limit_name, cell_key")
	if makes {
		b.WriteString(", law, level, at, unit, step, empty_at")
	} else {
		s.columns(&b)
	}
	b.WriteString(") VALUES ")
	buf := make([]byte, 0, 128)
	for k := range s.cells {
		if k > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('(')
		literals(&b, s.ops[s.cells[k].head].Cell)
		if makes {
			buf = s.cell(buf[:0], k)
		} else {
			buf = s.row(buf[:0], k)
		}
		b.Write(append(buf, ')'))
	}
	shape := sumsShape{Epoch: s.anchor != 0, Coupled: s.coupled, Partial: s.partial, Makes: makes}
	sumsOf(shape).render(&b, ownColumn, func(param int) string {
		if s.varies[param] {
			return s.place(param)
		}
		return strconv.FormatInt(s.number(&s.cells[0], param), 10)
	})
	last := s.ops[s.cells[len(s.cells)-1].head].Cell
	b.WriteString("limit_name = ")
	literal(&b, last.Limit)
	b.WriteString(" AND cell_key = ")
	literal(&b, last.Key)
	b.WriteString(",'" + turn + "', ''))")
	return b.String()
}

// place returns where the statement finds a number that differs between the cells: in a
// column of the row, or in a variable.
func (s *sums) place(param int) string {
	switch {
	case param == pUnit:
		return "VALUES(unit)"
	case param == pStep:
		return "VALUES(step)"
	case param == pCost && !s.partial:
		return "VALUES(level)"
	}
	return sumVariable(param)
}

func sumVariable(param int) string { return "@hg_one_" + paramNames[param] }

// inVariables are the numbers that variables hold where they differ. A row assigns those that
// are not what they were for the row before.
var inVariables = [...]int{pCost, pCount, pCeiling, pDrain, pNow}

// assign appends the assignments of a row, each added to a number.
func (s *sums) assign(buf []byte, k int) []byte {
	for _, param := range inVariables {
		n := s.number(&s.cells[k], param)
		if !s.assigned(param) || k > 0 && s.number(&s.cells[k-1], param) == n {
			continue
		}
		buf = append(append(append(buf, "+0*("...), sumVariable(param)...), ":="...)
		buf = append(strconv.AppendInt(buf, n, 10), ')')
	}
	return buf
}

// assigned reports whether variables hold a number.
func (s *sums) assigned(param int) bool { return s.varies[param] && (param != pCost || s.partial) }

// columns writes those in which rows that make no cells bring along what differs.
func (s *sums) columns(b *strings.Builder) {
	if slices.ContainsFunc(inVariables[:], s.assigned) {
		b.WriteString(", law")
	}
	for _, c := range sumColumns {
		if s.varies[c.param] {
			b.WriteString(", " + c.name)
		}
	}
}

// sumColumns are the columns that stand for numbers of the cell.
var sumColumns = [...]struct {
	param int
	name  string
}{{pCost, "level"}, {pUnit, "unit"}, {pStep, "step"}}

// row appends what columns says of the k-th cell.
func (s *sums) row(buf []byte, k int) []byte {
	if slices.ContainsFunc(inVariables[:], s.assigned) {
		buf = s.assign(append(buf, ",0"...), k)
	}
	for _, c := range sumColumns {
		if s.varies[c.param] {
			buf = strconv.AppendInt(append(buf, ','), s.number(&s.cells[k], c.param), 10)
		}
	}
	return buf
}

// cell appends the columns of the k-th cell after its names: as it is if it is new.
func (s *sums) cell(buf []byte, k int) []byte {
	c := &s.cells[k]
	op := &s.ops[c.head]
	p := &op.Params
	buf = append(buf, ",(@hg_one_new:=1)"...)
	if k == 0 {
		buf = append(buf, "+0*(@hg_one_made:=0)"...)
	}
	buf = s.assign(buf, k)
	level := c.cost * min(c.count, c.ceiling/c.cost)
	buf = strconv.AppendInt(append(buf, ','), level, 10)
	if op.Now != 0 {
		_, _, at, _, _ := law.TakePlain(p, 0, 0, 0, op.Now) // a ceiling may be above the capacity
		buf = strconv.AppendInt(append(buf, ','), at, 10)
		buf = strconv.AppendInt(append(buf, ','), p.Unit, 10)
		buf = strconv.AppendInt(append(buf, ','), p.Step, 10)
		return strconv.AppendInt(append(buf, ','), p.PlainEmptyAt(level, at), 10)
	}
	clock := "@hg_one_clock"
	if k == 0 || s.ops[s.cells[k-1].head].Now != 0 {
		clock = "(@hg_one_clock:=" + sumsClock() + ")"
	}
	buf = append(append(buf, ','), clock...)
	if s.anchor == law.Epoch {
		buf = append(buf, "-@hg_one_clock MOD "...)
		buf = strconv.AppendInt(buf, p.Step, 10)
	}
	buf = strconv.AppendInt(append(buf, ','), p.Unit, 10)
	buf = strconv.AppendInt(append(buf, ','), p.Step, 10)
	buf = append(buf, ",LEAST(9007199254740991,@hg_one_clock+"...)
	buf = strconv.AppendInt(buf, p.PlainEmptyAt(level, 0), 10)
	if s.anchor == law.Epoch {
		buf = append(buf, "-@hg_one_clock MOD "...)
		buf = strconv.AppendInt(buf, p.Step, 10)
	}
	return append(buf, ')')
}
