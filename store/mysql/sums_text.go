package mysql

import (
	"context"
	_ "embed"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// A batch that is decided by sums is an INSERT of one row for each cell. For each row it returns the result, the cell
// after it and the clock: see sumsWidth.
//
// The statement has two forms. In the form that makes cells, a row is a new cell with its charges. In the short form
// the rows have only the numbers of the charges. The store tries the short form first, unless one of the last batches
// has made a cell: new keys come together.
//
// The statement returns 9223372036854775807 + 1, and so fails (errOutOfRange), for a cell that no charge has touched,
// for a new cell in the short form, and, if a request charges several cells, for any cell that it cannot charge.

//go:embed sums.tmpl
var sumsText string

// sumsShape selects the parts of a statement. Epoch: the anchor is law.Epoch. One: it decides a single charge, see
// one.go. Coupled: a request has charges on several cells. Makes: it makes missing cells.
type sumsShape struct{ Epoch, One, Coupled, Makes bool }

// Within returns madeWithin to the template, in microseconds.
func (sumsShape) Within() int64 { return madeWithin.Microseconds() }

// madeWithin is how long before a new cell's row is locked its clock may be read, or the statement fails. In between a
// sweep may have removed an old cell of the same key, but none that became empty since: see sweepSlack.
const madeWithin = 50 * time.Millisecond

// sumsTexts returns the part of the statement after its rows, up to the turn, by shape.
var sumsTexts = sync.OnceValue(func() map[sumsShape]string {
	texts := make(map[sumsShape]string)
	for i := range 8 { // all combinations of three bits
		shape := sumsShape{Epoch: i&1 > 0, Coupled: i&2 > 0, Makes: i&4 > 0}
		texts[shape] = sumsReplacer.Replace(renderTemplate("sums update", shape))
	}
	return texts
})

// sumNumbers are the names of the numbers that the statement gets for each cell. need is the sum of its charges, room
// the highest level at which the sum fits, now the test time.
var sumNumbers = [...]string{"unit", "step", "drain", "need", "room", "now"}

// numbers returns the numbers of sumNumbers for a cell.
func (s *sums) numbers(c *cellSum) [len(sumNumbers)]int64 {
	op := &s.ops[c.head]
	p := &op.Params
	return [...]int64{p.Unit, p.Step, max(p.Drain, 1), c.cost, ceiling(op) - c.cost, op.Now}
}

// sumsReplacer replaces the numbers by variables: a row assigns those that differ from the row before. Like
// singleReplacer, it completes the names of columns and variables.
var sumsReplacer = func() *strings.Replacer {
	pairs := []string{"{heal}", strconv.Itoa(law.PlainSlack), "[", "headgate_cells.", "]", "", "@", "@hg_one_"}
	for _, name := range sumNumbers {
		pairs = append(pairs, "{"+name+"}", "@hg_one_"+name)
	}
	return strings.NewReplacer(pairs...)
}()

// withShortLockWait begins a statement that fails, and is undone, if it waits for the lock of a row for a second.
const withShortLockWait = "SET STATEMENT innodb_lock_wait_timeout = 1 FOR "

// sumsClock returns the SQL that reads the server's clock in a statement.
var sumsClock = sync.OnceValue(func() string {
	return sumsReplacer.Replace(strings.ReplaceAll(renderTemplate("clock", sumsShape{}), "{now}", "0"))
})

// skipAfterFailure is how many batches do not use sums after the form that makes cells has failed: refused requests
// come together. makeAfterNewCell is how many batches begin with that form after a batch has made a cell.
const skipAfterFailure, makeAfterNewCell = 8, 8

// sendSums sends the statement, in one form or in both; the answer is nil if nothing was done.
func (s *Store) sendSums(ctx context.Context, n *node, b *sums) (answer []int64, err error) {
	if s.skipSums.Load() > 0 && s.skipSums.Add(-1) >= 0 {
		return nil, nil
	}
	passHeld := store.PassesHeld(ctx) && len(b.cells) > 1
	send := func(makesCells bool) error {
		turn := strconv.FormatInt(s.turns.Add(1), 10)
		text := b.text(turn, makesCells)
		return s.retry(ctx, n, func(n *node) error {
			err := execAlone(ctx, n, turn, func(c *openedConn) (err error) {
				answer, err = c.sendSums(ctx, text, answer[:0])
				return err
			})
			if number, _ := numberOf(err); number == errLockWait && passHeld { // it must not be repeated
				return lockWait.wrap(err)
			}
			return err
		})
	}
	makesCells := s.makeBatches.Load() > 0
	if err = send(makesCells); !makesCells && isOverflow(err) {
		makesCells = true
		err = send(true)
	}
	switch {
	case isOverflow(err):
		s.skipSums.Store(skipAfterFailure)
		return nil, nil
	case err != nil:
		return nil, err
	case !makesCells:
		return answer, nil
	}
	s.makeBatches.Add(-1)
	for k := sumsWidth - 1; k < len(answer); k += sumsWidth {
		if answer[k] > 0 {
			s.makeBatches.Store(makeAfterNewCell)
		}
	}
	return answer, nil
}

// text returns the statement. Once its last row is locked, it assigns the turn: see mayBeComplete.
func (s *sums) text(turn string, makesCells bool) string {
	var b strings.Builder
	b.Grow(4096 + 96*len(s.cells))
	b.WriteString(withShortLockWait + "INSERT INTO headgate_cells (limit_name, cell_key, law")
	if makesCells {
		b.WriteString(", level, at, unit, step, empty_at")
	}
	b.WriteString(") VALUES ")
	buf := make([]byte, 0, 128)
	var assigned [len(sumNumbers)]int64 // the present values of the variables
	for k := range s.cells {
		if k > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('(')
		writeCellNames(&b, s.ops[s.cells[k].head].Cell)
		buf = append(buf[:0], ",0"...)
		for i, n := range s.numbers(&s.cells[k]) {
			if k == 0 || n != assigned[i] {
				buf = append(append(append(buf, "+0*(@hg_one_"...), sumNumbers[i]...), ":="...)
				buf = append(strconv.AppendInt(buf, n, 10), ')')
				assigned[i] = n
			}
		}
		if makesCells {
			buf = s.appendNewCell(buf, k)
		}
		b.Write(append(buf, ')'))
	}
	b.WriteString(sumsTexts()[sumsShape{Epoch: s.anchor != 0, Coupled: s.coupled, Makes: makesCells}])
	b.WriteString(cellCondition(s.ops[s.cells[len(s.cells)-1].head].Cell) + ",'" + turn + "', ''))")
	return b.String()
}

// appendNewCell appends the values of the columns that the k-th cell has if it is new.
func (s *sums) appendNewCell(buf []byte, k int) []byte {
	c := &s.cells[k]
	op := &s.ops[c.head]
	p := &op.Params
	clock := "@hg_one_clock"
	switch {
	case k > 0 && s.ops[s.cells[k-1].head].Now == op.Now:
	case op.Now != 0:
		clock = "(@hg_one_clock:=" + strconv.FormatInt(op.Now, 10) + ")"
	default:
		clock = "(@hg_one_clock:=" + sumsClock() + ")"
	}
	phase := ""
	if s.anchor == law.Epoch {
		phase = "-@hg_one_clock MOD " + strconv.FormatInt(p.Step, 10)
	}
	buf = strconv.AppendInt(append(buf, "+(@hg_one_new:=1),"...), c.cost, 10)
	buf = append(append(append(buf, ','), clock...), phase...)
	buf = strconv.AppendInt(append(buf, ','), p.Unit, 10)
	buf = strconv.AppendInt(append(buf, ','), p.Step, 10)
	buf = append(buf, ",LEAST(9007199254740991,@hg_one_clock+"...)
	buf = strconv.AppendInt(buf, p.PlainEmptyAt(c.cost, 0), 10)
	return append(append(buf, phase...), ')')
}
