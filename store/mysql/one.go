package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"text/template"

	"github.com/headgate/headgate/law"
)

// A single charge is one statement on MariaDB. It inserts two rows of the same cell. The first makes the cell if it
// is missing, and leaves it alone if it is there; so the second always finds it, has locked it, and decides. The
// statement returns the cell after each of the two, which is the cell before and after the decision, and the clock.
// It is prepared once on each connection, since to read its text takes longer than to carry it out.
//
// Where an INSERT returns no rows, a single charge is a call of headgate_direct, which calls from SQL use too. On
// MariaDB the statement takes half the time of a call.

//go:embed one.tmpl
var oneText string

// oneSession makes a session of Open's ready for statements that commit by themselves: each is a
// transaction. A variable that is not known before a statement would be NULL in what it
// returns.
const oneSession = "SET autocommit = 1, @hg_one_turn = CONVERT('' USING latin1), @hg_one_clock = 0, " +
	"@hg_one_wait = 0, @hg_one_g = 0, @hg_one_new = 0, @hg_one_need = 0, " +
	"@hg_one_room = 0, @hg_one_unit = 0, @hg_one_step = 0, @hg_one_drain = 0, @hg_one_now = 0"

// oneNames are the columns in which the second row brings along the numbers of the charge.
var oneNames = strings.NewReplacer(
	"{second}", "VALUES(law)", "{need}", "VALUES(level)", "{room}", "VALUES(prev)", "{heal}", "VALUES(at)",
	"{unit}", "VALUES(unit)", "{step}", "VALUES(step)", "{drain}", "VALUES(empty_at)", "{now}", "VALUES(blocked_until)",
	"{turn}", "VALUES(reason)", "[", "headgate_cells.", "]", "", "@", "@hg_one_",
)

// oneTexts are the statements for each anchor.
var oneTexts = sync.OnceValue(func() (texts [2]string) {
	for anchor := range texts {
		texts[anchor] = oneNames.Replace(templated("one", sumsShape{Epoch: anchor == 1, One: true}))
	}
	return texts
})

var whiteSpace = regexp.MustCompile(`\s+`)

// templated executes a template of the statements that commit by themselves. It leaves one space wherever there is
// white space.
func templated(name string, shape sumsShape) string {
	t := template.Must(template.Must(template.New("").Parse(oneText)).Parse(sumsText))
	var b strings.Builder
	if err := t.ExecuteTemplate(&b, name, shape); err != nil {
		panic(err) // it is embedded
	}
	return whiteSpace.ReplaceAllString(b.String(), " ")
}

// oneWidth is how many numbers the statement returns of each of the two rows: the cell, and the clock.
const oneWidth = 9

// askOne sends the statement.
func (s *Store) askOne(ctx context.Context, n *node, b *sums) (answer []int64, err error) {
	op, turn := &b.ops[0], strconv.FormatInt(s.turns.Add(1), 10)
	p, cost := &op.Params, op.Cost*op.Count
	values := []driver.Value{
		op.Cell.Limit, op.Cell.Key, op.Cell.Limit, op.Cell.Key, cost, ceiling(op) - cost, p.HealAfter(), p.Unit, p.Step,
		max(p.Drain, 1), op.Now, turn,
	}
	named := make([]driver.NamedValue, len(values))
	for i, v := range values {
		named[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
	}
	err = s.retry(ctx, n, func(n *node) error {
		return execAlone(ctx, n, turn, func(c *ownConn) (err error) {
			answer, err = c.askOne(ctx, p.Anchor, named)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return decodeOne(p, answer)
}

// decodeOne makes an answer about sums of the numbers of two rows.
func decodeOne(p *law.Params, n []int64) (answer []int64, err error) {
	if len(n) != 2*oneWidth {
		return nil, fmt.Errorf("the server's answer makes no sense: it has %d numbers", len(n))
	}
	before, after, clock := cellOf(n), cellOf(n[oneWidth:]), n[2*oneWidth-1]
	charged, made := int64(0), int64(0)
	if before != after {
		charged = 1
	}
	same := before.Kind == p.Kind && before.Unit == p.Unit && before.Step == p.Step
	switch {
	case same && before.Prev == 0 && before.At-clock <= p.HealAfter(): // it is plain
	case before == law.State{}:
		made = charged
	case charged > 0: // to ask again would charge again
		return nil, fmt.Errorf("the server's answer makes no sense: %v: a cell that is not plain was decided", n)
	default:
		charged = -1
	}
	return []int64{charged, after.Level, after.At, after.EmptyAt, after.BlockedUntil, clock, made}, nil
}

func cellOf(n []int64) law.State {
	return law.State{
		Kind: law.Kind(n[0]), Level: n[1], Prev: n[2], At: n[3], Unit: n[4], Step: n[5],
		EmptyAt: n[6], BlockedUntil: n[7],
	}
}

// askCall calls headgate_direct for a charge up to the capacity, at the clock of the server. The answer is nil if that
// has done nothing.
func (s *Store) askCall(ctx context.Context, n *node, b *sums) (answer []int64, err error) {
	op := &b.ops[0]
	if op.Ceiling != 0 || op.Now != 0 || s.uncalled.Load() {
		return nil, nil
	}
	var text strings.Builder
	text.WriteString("CALL " + s.def.numbered("headgate_direct_N") + "(")
	literals(&text, op.Cell)
	p := &op.Params
	for _, v := range [...]int64{int64(p.Anchor), p.Unit, p.Capacity, p.Step, max(p.Drain, 1), b.cells[0].cost} {
		text.WriteString("," + strconv.FormatInt(v, 10))
	}
	text.WriteString(");SELECT @hg_g,@hg_level,@hg_at,@hg_empty,@hg_block,@hg_clk,@hg_count")
	var row [sumsWidth]sql.NullInt64 // NULL: the session has decided nothing yet
	err = s.retry(ctx, n, func(n *node) error { return callAlone(ctx, n, text.String(), &row) })
	switch number, _ := numberOf(err); {
	case number == errNoProcedure, number == errNoRight, number == errNotImplemented:
		s.uncalled.Store(true) // an older schema, or a server without procedures
		return nil, nil
	case err != nil, row[sumsWidth-1].Int64 == 0: // the cell is not plain
		return nil, err
	}
	for _, v := range row[:sumsWidth-1] {
		answer = append(answer, v.Int64)
	}
	return append(answer, 0), nil
}

// callAlone sends the text of a call and reads its row. When it fails, @hg_end says whether it had begun to
// commit.
func callAlone(ctx context.Context, n *node, text string, row *[sumsWidth]sql.NullInt64) error {
	conn, err := n.db.Conn(ctx)
	if err != nil {
		return notSent.of(err)
	}
	defer conn.Close()
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	to := make([]any, len(row))
	for i := range row {
		to[i] = &row[i]
	}
	if err = scanLast(within, conn, text, to...); err == nil {
		return nil
	}
	if ended, undo := abandon(ctx, conn, ""); undo == nil && !ended {
		err = undone.of(err)
	}
	return err
}

// askOne sends the statement of a single charge and returns the numbers of its rows.
func (c *ownConn) askOne(ctx context.Context, anchor law.Anchor, values []driver.NamedValue) ([]int64, error) {
	stmt := c.one[anchor]
	if stmt == nil {
		var err error
		if stmt, err = c.PrepareContext(ctx, oneTexts()[anchor]); err != nil {
			return nil, notSent.of(err)
		}
		c.one[anchor] = stmt
	}
	rows, err := stmt.(driver.StmtQueryContext).QueryContext(ctx, values)
	if number, _ := numberOf(err); number == errNotPrepared { // a proxy has changed the session
		return nil, errBadConn
	}
	if err != nil {
		return nil, err
	}
	return numbersOf(rows, oneWidth, nil)
}

// askSums sends the statement that decides a batch by sums, and adds the numbers of its rows to answer.
func (c *ownConn) askSums(ctx context.Context, text string, answer []int64) ([]int64, error) {
	rows, err := c.QueryContext(ctx, text, nil)
	if err != nil {
		return nil, err
	}
	return numbersOf(rows, sumsWidth, answer)
}

// numbersOf adds the first numbers of each row to answer.
func numbersOf(rows driver.Rows, width int, answer []int64) ([]int64, error) {
	defer func() { _ = rows.Close() }()
	values := make([]driver.Value, len(rows.Columns()))
	for {
		if err := rows.Next(values); errors.Is(err, io.EOF) {
			return answer, nil
		} else if err != nil {
			return nil, err
		}
		for _, v := range values[:width] {
			n, ok := v.(int64)
			if b, is := v.([]byte); is {
				var err error
				n, err = strconv.ParseInt(string(b), 10, 64)
				ok = err == nil
			}
			if !ok {
				return nil, fmt.Errorf("the server's answer makes no sense: %v", values)
			}
			answer = append(answer, n)
		}
	}
}
