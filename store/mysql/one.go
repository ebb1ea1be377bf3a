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

// A single charge is one statement on MariaDB. It inserts two rows of the same cell. The first row makes the cell if it
// is missing, and leaves an existing cell alone, so the second row always finds the cell, locks it and decides. The
// statement returns the cell after each of the two rows, which is the cell before and after the decision, and the
// clock. Each connection prepares it once for each anchor: the server takes longer to parse it than to execute it.
//
// On servers without INSERT .. RETURNING, most single charges are calls of headgate_direct, which calls from SQL use
// too. On MariaDB the statement takes half the time of a call.

//go:embed one.tmpl
var singleText string

// singleSession prepares a session of Open for statements that commit by themselves, each of which is a
// transaction. It sets all variables, since a variable that a statement sets first would be NULL in its result.
const singleSession = "SET autocommit = 1, @hg_one_turn = CONVERT('' USING latin1), @hg_one_clock = 0, " +
	"@hg_one_wait = 0, @hg_one_g = 0, @hg_one_new = 0, @hg_one_need = 0, " +
	"@hg_one_room = 0, @hg_one_unit = 0, @hg_one_step = 0, @hg_one_drain = 0, @hg_one_now = 0"

// singleReplacer replaces the numbers of a charge by the columns in which the second row carries them. It also
// completes the names of the cell's columns, which stand in brackets, and of variables.
var singleReplacer = strings.NewReplacer(
	"{second}", "VALUES(law)", "{need}", "VALUES(level)", "{room}", "VALUES(prev)", "{heal}", "VALUES(at)",
	"{unit}", "VALUES(unit)", "{step}", "VALUES(step)", "{drain}", "VALUES(empty_at)", "{now}", "VALUES(blocked_until)",
	"{turn}", "VALUES(reason)", "[", "headgate_cells.", "]", "", "@", "@hg_one_",
)

// singleTexts returns the statements for a single charge, by anchor: law.Own and law.Epoch.
var singleTexts = sync.OnceValue(func() (texts [2]string) {
	for anchor := range texts {
		texts[anchor] = singleReplacer.Replace(renderTemplate("one", sumsShape{Epoch: anchor == 1, One: true}))
	}
	return texts
})

var whiteSpace = regexp.MustCompile(`\s+`)

// renderTemplate executes a template of one.tmpl or sums.tmpl, and replaces each run of white space by a space.
func renderTemplate(name string, shape sumsShape) string {
	t := template.Must(template.Must(template.New("").Parse(singleText)).Parse(sumsText))
	var b strings.Builder
	if err := t.ExecuteTemplate(&b, name, shape); err != nil {
		panic(err) // it is embedded
	}
	return whiteSpace.ReplaceAllString(b.String(), " ")
}

// singleWidth is how many numbers the statement returns for each of the two rows: those of stateOf, and the clock.
const singleWidth = 9

// sendSingle sends the statement of a single charge, and returns the answer in the form that sumsWidth describes.
func (s *Store) sendSingle(ctx context.Context, n *node, b *sums) (answer []int64, err error) {
	op, turn := &b.ops[0], strconv.FormatInt(s.turns.Add(1), 10)
	p, cost := &op.Params, op.Cost*op.Count
	values := []driver.Value{
		op.Cell.Limit, op.Cell.Key, op.Cell.Limit, op.Cell.Key, cost, ceiling(op) - cost, p.HealAfter(), p.Unit, p.Step,
		max(p.Drain, 1), op.Now, turn,
	}
	args := make([]driver.NamedValue, len(values))
	for i, v := range values {
		args[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
	}
	err = s.retry(ctx, n, func(n *node) error {
		return execAlone(ctx, n, turn, func(c *openedConn) (err error) {
			answer, err = c.sendSingle(ctx, p.Anchor, args)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return decodeSingle(p, answer)
}

// decodeSingle converts the numbers of the two rows to the form that sumsWidth describes.
func decodeSingle(p *law.Params, numbers []int64) (answer []int64, err error) {
	if len(numbers) != 2*singleWidth {
		return nil, fmt.Errorf("the server's answer makes no sense: it has %d numbers", len(numbers))
	}
	before, after, clock := stateOf(numbers), stateOf(numbers[singleWidth:]), numbers[2*singleWidth-1]
	charged, made := int64(0), int64(0)
	if before != after {
		charged = 1
	}
	sameLimit := before.Kind == p.Kind && before.Unit == p.Unit && before.Step == p.Step
	switch {
	case sameLimit && before.Prev == 0 && before.At-clock <= p.HealAfter(): // the cell is plain
	case before == law.State{}:
		made = charged
	case charged > 0: // a retry would charge again
		return nil, fmt.Errorf("the server's answer makes no sense: %v: a cell that is not plain was decided", numbers)
	default:
		charged = -1
	}
	return []int64{charged, after.Level, after.At, after.EmptyAt, after.BlockedUntil, clock, made}, nil
}

// stateOf returns the cell in the numbers of a row.
func stateOf(n []int64) law.State {
	return law.State{
		Kind: law.Kind(n[0]), Level: n[1], Prev: n[2], At: n[3], Unit: n[4], Step: n[5],
		EmptyAt: n[6], BlockedUntil: n[7],
	}
}

// sendCall calls headgate_direct, which decides a charge up to the capacity, at the clock of the server. It sends
// nothing for other charges. The answer, in the form that sumsWidth describes, is nil if nothing was done.
func (s *Store) sendCall(ctx context.Context, n *node, b *sums) (answer []int64, err error) {
	op := &b.ops[0]
	if op.Ceiling != 0 || op.Now != 0 || s.noDirectCall.Load() {
		return nil, nil
	}
	var text strings.Builder
	text.WriteString("CALL " + s.def.withRevision("headgate_direct_N") + "(")
	writeCellNames(&text, op.Cell)
	p := &op.Params
	for _, v := range [...]int64{int64(p.Anchor), p.Unit, p.Capacity, p.Step, max(p.Drain, 1), b.cells[0].cost} {
		text.WriteString("," + strconv.FormatInt(v, 10))
	}
	text.WriteString(");SELECT @hg_g,@hg_level,@hg_at,@hg_empty,@hg_block,@hg_clk,@hg_count")
	var row [sumsWidth]sql.NullInt64 // all NULL if the session has decided nothing yet
	err = s.retry(ctx, n, func(n *node) error { return callAlone(ctx, n, text.String(), &row) })
	switch number, _ := numberOf(err); {
	case number == errNoProcedure, number == errNoRight, number == errNotImplemented:
		s.noDirectCall.Store(true) // an older schema, or a server without procedures
		return nil, nil
	case err != nil, row[sumsWidth-1].Int64 == 0: // the cell is not plain
		return nil, err
	}
	for _, v := range row[:sumsWidth-1] {
		answer = append(answer, v.Int64)
	}
	return append(answer, 0), nil
}

// callAlone sends a call that commits by itself, and reads its row. After a failure @hg_end is 1 if COMMIT had begun.
func callAlone(ctx context.Context, n *node, text string, row *[sumsWidth]sql.NullInt64) error {
	conn, err := n.db.Conn(ctx)
	if err != nil {
		return notSent.wrap(err)
	}
	defer conn.Close()
	callCtx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	to := make([]any, len(row))
	for i := range row {
		to[i] = &row[i]
	}
	if err = scanLast(callCtx, conn, text, to...); err == nil {
		return nil
	}
	if commitBegun, rollbackErr := rollBack(ctx, conn, ""); rollbackErr == nil && !commitBegun {
		err = undone.wrap(err)
	}
	return err
}

// sendSingle sends the statement of a single charge on this connection, and returns the numbers of its two rows.
func (c *openedConn) sendSingle(ctx context.Context, anchor law.Anchor, values []driver.NamedValue) ([]int64, error) {
	stmt := c.single[anchor]
	if stmt == nil {
		var err error
		if stmt, err = c.PrepareContext(ctx, singleTexts()[anchor]); err != nil {
			return nil, notSent.wrap(err)
		}
		c.single[anchor] = stmt
	}
	rows, err := stmt.(driver.StmtQueryContext).QueryContext(ctx, values)
	if number, _ := numberOf(err); number == errNotPrepared { // a proxy has switched the session
		return nil, errBadConn
	}
	if err != nil {
		return nil, err
	}
	return readNumbers(rows, singleWidth, nil)
}

// sendSums sends the statement that decides a batch by sums, and appends the numbers of its rows to answer.
func (c *openedConn) sendSums(ctx context.Context, text string, answer []int64) ([]int64, error) {
	rows, err := c.QueryContext(ctx, text, nil)
	if err != nil {
		return nil, err
	}
	return readNumbers(rows, sumsWidth, answer)
}

// readNumbers appends the first width numbers of each row to answer.
func readNumbers(rows driver.Rows, width int, answer []int64) ([]int64, error) {
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
