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

// A batch that is decided by sums is an INSERT of one row for each cell. It returns for each
// of them what became of it, the cell after it and the clock: see sumsWidth.
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
// One: it is of a single charge. Makes: it makes cells that are not there.
type sumsShape struct{ Epoch, One, Coupled, Makes bool }

// Within gives the template madeWithin.
func (sumsShape) Within() int64 { return madeWithin.Microseconds() }

// madeWithin is how long before the lock of its row the clock of a new cell may be read. A
// sweep may have removed that cell in the meantime, but none that had become empty since:
// see sweepSlack.
const madeWithin = 50 * time.Millisecond

// sumsTexts follow the rows of a statement of each shape.
var sumsTexts = sync.OnceValue(func() map[sumsShape]string {
	texts := make(map[sumsShape]string)
	for i := range 8 {
		shape := sumsShape{Epoch: i&1 > 0, Coupled: i&2 > 0, Makes: i&4 > 0}
		texts[shape] = sumsNames.Replace(templated("sums update", shape))
	}
	return texts
})

// sumNumbers are the names of the numbers that the statement is given of each cell.
var sumNumbers = [...]string{"unit", "step", "drain", "need", "room", "now"}

// numbers returns those of a cell.
func (s *sums) numbers(c *sum) [len(sumNumbers)]int64 {
	op := &s.ops[c.head]
	p := &op.Params
	return [...]int64{p.Unit, p.Step, max(p.Drain, 1), c.cost, ceiling(op) - c.cost, op.Now}
}

// sumsNames puts variables in the places of the numbers. Rows assign those that are not what they were for the row
// before.
var sumsNames = func() *strings.Replacer {
	pairs := []string{"{heal}", strconv.Itoa(law.PlainSlack), "[", "headgate_cells.", "]", "", "@", "@hg_one_"}
	for _, name := range sumNumbers {
		pairs = append(pairs, "{"+name+"}", "@hg_one_"+name)
	}
	return strings.NewReplacer(pairs...)
}()

// briefly bounds how long a statement waits for the lock of a row. After that nothing of it
// is left.
const briefly = "SET STATEMENT innodb_lock_wait_timeout = 1 FOR "

// sumsClock reads the clock in a statement.
var sumsClock = sync.OnceValue(func() string {
	return sumsNames.Replace(strings.ReplaceAll(templated("clock", sumsShape{}), "{now}", "0"))
})

// restFrom is how many batches are not tried by sums after one of which nothing could be done:
// requests that are refused come together. makeFrom is how many are sent in the form that
// makes cells, after one that has made any.
const restFrom, makeFrom = 8, 8

// askSums sends the statement; the answer is nil if it has done nothing.
func (s *Store) askSums(ctx context.Context, n *node, b *sums) (answer []int64, err error) {
	if s.unsummed.Load() > 0 && s.unsummed.Add(-1) >= 0 {
		return nil, nil
	}
	giveWay := store.PassesHeld(ctx) && len(b.cells) > 1
	ask := func(makes bool) error {
		turn := strconv.FormatInt(s.turns.Add(1), 10)
		text := b.text(turn, makes)
		return s.retry(ctx, n, func(n *node) error {
			err := execAlone(ctx, n, turn, func(c *ownConn) (err error) {
				answer, err = c.askSums(ctx, text, answer[:0])
				return err
			})
			if number, _ := numberOf(err); number == errLockWait && giveWay { // not to be repeated
				return lockWait.of(err)
			}
			return err
		})
	}
	makes := s.makes.Load() > 0
	if err = ask(makes); !makes && needsLongText(err) {
		makes = true
		err = ask(true)
	}
	switch {
	case needsLongText(err):
		s.unsummed.Store(restFrom)
		return nil, nil
	case err != nil:
		return nil, err
	case !makes:
		return answer, nil
	}
	s.makes.Add(-1)
	for k := sumsWidth - 1; k < len(answer); k += sumsWidth {
		if answer[k] > 0 {
			s.makes.Store(makeFrom)
		}
	}
	return answer, nil
}

// text returns the statement, which assigns its turn with its last row.
func (s *sums) text(turn string, makes bool) string {
	var b strings.Builder
	b.Grow(4096 + 96*len(s.cells))
	b.WriteString(briefly + "INSERT INTO headgate_cells (limit_name, cell_key, law")
	if makes {
		b.WriteString(", level, at, unit, step, empty_at")
	}
	b.WriteString(") VALUES ")
	buf := make([]byte, 0, 128)
	var given [len(sumNumbers)]int64
	for k := range s.cells {
		if k > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('(')
		literals(&b, s.ops[s.cells[k].head].Cell)
		buf = append(buf[:0], ",0"...)
		for i, n := range s.numbers(&s.cells[k]) {
			if k == 0 || n != given[i] {
				buf = append(append(append(buf, "+0*(@hg_one_"...), sumNumbers[i]...), ":="...)
				buf = append(strconv.AppendInt(buf, n, 10), ')')
				given[i] = n
			}
		}
		if makes {
			buf = s.made(buf, k)
		}
		b.Write(append(buf, ')'))
	}
	b.WriteString(sumsTexts()[sumsShape{Epoch: s.anchor != 0, Coupled: s.coupled, Makes: makes}])
	whereCell(&b, s.ops[s.cells[len(s.cells)-1].head].Cell)
	b.WriteString(",'" + turn + "', ''))")
	return b.String()
}

// made appends the columns of the k-th cell as it is if it is new.
func (s *sums) made(buf []byte, k int) []byte {
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
