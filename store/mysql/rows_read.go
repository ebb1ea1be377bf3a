package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/law"
)

// lockText returns the first text, and sets resultReaders for its results. The text reads the rows of the cells, and
// locks them unless all ops are checks. It also reads what the laws are known to need: receipts, entries, the clock,
// and for each log the credits that have expired since its cell was last written.
func (rb *rowBatch) lockText(begin string) string {
	var b strings.Builder
	b.Grow(1024 + 160*len(rb.Cells))
	b.WriteString(begin)
	b.WriteString("SELECT " + cellColumns + " FROM headgate_cells FORCE INDEX (PRIMARY) WHERE ")
	names := make([]law.Cell, len(rb.Cells))
	for i, c := range rb.Cells {
		names[i] = c.Name
	}
	whereCells(&b, names)
	b.WriteString(" ORDER BY limit_name,cell_key")
	if !onlyChecks(rb.ops) {
		b.WriteString(" FOR UPDATE")
	}
	b.WriteByte(';')
	rb.resultReaders = append(rb.resultReaders, rb.readCell)
	rb.selectReceipts(&b)
	rb.selectEntries(&b)
	rb.resultReaders = append(rb.resultReaders, func(r *sql.Rows) error { return r.Scan(&rb.clock) })
	if sums := rb.selectSums(); sums != "" {
		return b.String() + "SET @hg_clock=" + readClock + ";SELECT @hg_clock" + sums
	}
	return b.String() + "SELECT " + readClock
}

// whereCells writes the condition that a row belongs to one of the cells, which are in order. MariaDB uses the primary
// key for this form, and not for a list of pairs.
func whereCells(b *strings.Builder, cells []law.Cell) {
	for i, c := range cells {
		switch {
		case i > 0 && c.Limit == cells[i-1].Limit && i%maxListed > 0:
			b.WriteByte(',')
		default:
			if i > 0 {
				b.WriteString(") OR ")
			}
			b.WriteString("limit_name=")
			writeLiteral(b, c.Limit)
			b.WriteString(" AND cell_key IN (")
		}
		writeLiteral(b, c.Key)
	}
	b.WriteByte(')')
}

// maxListed bounds the keys in a list: MariaDB makes a subquery of a list of 1,000.
const maxListed = 500

// addRead writes a statement that selects the rows for which one of the conditions holds; none if there are no
// conditions. readRow stores each row.
func (rb *rowBatch) addRead(b *strings.Builder, query string, conditions []string, readRow func(*sql.Rows) error) {
	if len(conditions) == 0 {
		return
	}
	b.WriteString(query + "(" + strings.Join(conditions, " OR ") + ")" + rb.lockClause + ";")
	rb.resultReaders = append(rb.resultReaders, readRow)
}

// selectReceipts writes the statement that reads the receipts of the ids in ops; checks need none.
func (rb *rowBatch) selectReceipts(b *strings.Builder) {
	rb.receipts = map[receiptKey]law.Receipt{}
	var conditions []string
	for i := range rb.ops {
		op := &rb.ops[i]
		if op.ID != "" && op.Verb != law.Check && rb.Cell(op.Cell) != nil {
			conditions = append(conditions, cellCondition(op.Cell)+" AND id="+hexLiteral(op.ID))
		}
	}
	rb.addRead(b, "SELECT limit_name,cell_key,id,print,rule,cost,outcome,settled,keep_until FROM "+
		"headgate_admissions FORCE INDEX (PRIMARY) WHERE ", conditions, rb.readReceipt)
}

// selectEntries writes the statements that read the entries whose numbers ops have, and the entries in which requests
// with the ids of ops were charged.
func (rb *rowBatch) selectEntries(b *strings.Builder) {
	rb.entries = map[int64]entry{}
	var byNumber, byID []string
	for i := range rb.ops {
		op := &rb.ops[i]
		if op.Params.Kind != law.Log {
			continue
		}
		if op.EntryNumber > 0 {
			byNumber = append(byNumber, "number="+strconv.FormatInt(op.EntryNumber, 10))
			rb.entries[op.EntryNumber] = entry{} // it does not count unless readEntry finds it
		}
		if op.ID != "" && (op.Verb == law.Settle || op.Verb == law.Extend) { // the entry in the receipt
			byID = append(byID, "a.limit_name="+hexLiteral(op.Cell.Limit)+" AND a.cell_key="+hexLiteral(op.Cell.Key)+
				" AND a.id="+hexLiteral(op.ID))
		}
	}
	rb.addRead(b, "SELECT number,limit_name,cell_key,cost,expires_at FROM headgate_entries WHERE expires_at>0 AND ",
		byNumber, rb.readEntry)
	rb.addRead(b, "SELECT e.number,e.limit_name,e.cell_key,e.cost,e.expires_at FROM headgate_admissions a "+
		"FORCE INDEX (PRIMARY) STRAIGHT_JOIN headgate_entries e ON e.number="+nthNumber("a.outcome", entryField)+
		" WHERE e.expires_at>0 AND ", byID, rb.readEntry)
	rb.readsByID = len(byID) > 0
}

// entryField is the place of the number of an entry in the outcome of a receipt, from 1.
var entryField = 1 + slices.Index(law.NumberNames[:], "entry")

// nthNumber returns the SQL for the nth number of a text that separates numbers by spaces.
func nthNumber(text string, n int) string {
	return fmt.Sprintf("CAST(SUBSTRING_INDEX(SUBSTRING_INDEX(%s, ' ', %d), ' ', -1) AS SIGNED)", text, n)
}

// selectSums returns the statement that reads the sums of logs, after a semicolon; empty if there are no logs. In a
// transaction of the caller it might see an older snapshot than the rows, so there Sum reads a sum when a law needs it.
func (rb *rowBatch) selectSums() string {
	if rb.lockClause != "" {
		return ""
	}
	var b strings.Builder
	logs := map[law.Cell]bool{}
	for i := range rb.ops {
		if op := &rb.ops[i]; op.Params.Kind == law.Log {
			logs[op.Cell] = true
		}
	}
	n := 0
	for _, c := range rb.Cells {
		if !logs[c.Name] {
			continue
		}
		beginPart(&b, &n, ";(SELECT ", " UNION ALL (SELECT ")
		writeCellNames(&b, c.Name)
		condition := cellCondition(c.Name)
		b.WriteString(",COALESCE(SUM(cost),0) FROM headgate_entries FORCE INDEX (by_cell) WHERE " + condition +
			" AND expires_at>(SELECT at FROM headgate_cells WHERE " + condition + ") AND expires_at<=@hg_clock)")
	}
	if n > 0 {
		rb.sums = map[law.Cell]span{}
		rb.resultReaders = append(rb.resultReaders, rb.readSum)
	}
	return b.String()
}

// read sends the first text and stores the server's answer.
func (rb *rowBatch) read(text string) error {
	ctx, cancel := context.WithTimeout(rb.ctx, answerTimeout)
	defer cancel()
	answer, err := rb.db.QueryContext(ctx, text)
	if err != nil {
		return err
	}
	defer answer.Close()
	for readers := rb.resultReaders; ; {
		columns, err := answer.Columns()
		if err != nil {
			return err
		}
		if len(columns) > 0 {
			if len(readers) == 0 {
				return errors.New("the server's answer makes no sense: it is longer than what was asked")
			}
			for answer.Next() {
				if err := readers[0](answer); err != nil {
					return err
				}
			}
			readers = readers[1:]
		}
		if !answer.NextResultSet() {
			if err := answer.Err(); err != nil {
				return err
			}
			if len(readers) > 0 {
				return errors.New("the server's answer makes no sense: it is shorter than what was asked")
			}
			return nil
		}
	}
}

// readCell stores the row of a cell.
func (rb *rowBatch) readCell(r *sql.Rows) error {
	var limit, key, reason sql.RawBytes
	var st law.State
	if err := r.Scan(cellFields(&limit, &key, &st, &reason)...); err != nil {
		return err
	}
	c := rb.Cell(law.Cell{Limit: string(limit), Key: string(key)})
	if c == nil {
		return fmt.Errorf("the server's answer makes no sense: %q of %s was not asked for", key, limit)
	}
	c.State, c.Reason, c.Found = st, string(reason), true
	return nil
}

// readReceipt stores the row of a receipt. Its entry does not count unless readEntry finds it later.
func (rb *rowBatch) readReceipt(r *sql.Rows) error {
	var key receiptKey
	var receipt law.Receipt
	var terms, outcome string
	if err := r.Scan(&key.cell.Limit, &key.cell.Key, &key.id, &receipt.Fingerprint, &terms, &receipt.Cost, &outcome,
		&receipt.Settled, &receipt.KeepUntil); err != nil {
		return err
	}
	if err := receipt.SetCharged(outcome); err != nil {
		return err
	}
	var err error
	receipt.ID = key.id
	receipt.Terms, err = law.ParseTerms(terms)
	rb.receipts[key] = receipt
	if number := receipt.Outcome.EntryNumber; rb.readsByID && number > 0 {
		rb.entries[number] = entry{}
	}
	return err
}

func (rb *rowBatch) readEntry(r *sql.Rows) error {
	var number int64
	var e entry
	if err := r.Scan(&number, &e.cell.Limit, &e.cell.Key, &e.credits, &e.expiresAt); err != nil {
		return err
	}
	rb.entries[number] = e
	return nil
}

func (rb *rowBatch) readSum(r *sql.Rows) error {
	var cell law.Cell
	var sum int64
	if err := r.Scan(&cell.Limit, &cell.Key, &sum); err != nil {
		return err
	}
	if c := rb.Cell(cell); c != nil && c.Found {
		rb.sums[cell] = span{c.State.At, rb.clock, sum}
	}
	return nil
}

// Receipt implements rows.Reader. The first text has read all receipts that a law may need.
func (rb *rowBatch) Receipt(cell law.Cell, id string) (a law.Receipt, ok bool, err error) {
	a, ok = rb.receipts[receiptKey{cell, id}]
	return a, ok, nil
}

// Sum implements rows.Reader.
func (rb *rowBatch) Sum(cell law.Cell, after, upto int64) (sum int64, err error) {
	if s, ok := rb.sums[cell]; ok && s.after == after && s.upto == upto {
		return s.sum, nil
	}
	err = rb.queryRow(fmt.Sprintf("SELECT COALESCE(SUM(cost),0) FROM (SELECT cost FROM headgate_entries FORCE INDEX "+
		"(by_cell) WHERE %s AND expires_at>%d AND expires_at<=%d%s) e", cellCondition(cell), after, upto, rb.lockClause),
		&sum)
	return sum, err
}

// Entry implements rows.Reader.
func (rb *rowBatch) Entry(cell law.Cell, number int64) (credits, expiresAt int64, err error) {
	e, found := rb.entries[number]
	if !found {
		e.cell = cell
		err = rb.queryRow("SELECT cost,expires_at FROM headgate_entries WHERE number="+strconv.FormatInt(number, 10)+
			" AND expires_at>0 AND "+cellCondition(cell)+rb.lockClause, &e.credits, &e.expiresAt)
	}
	if e.cell != cell {
		return 0, 0, nil
	}
	return e.credits, e.expiresAt, err
}

// queryRow reads a row. If the query has none, it leaves to unchanged.
func (rb *rowBatch) queryRow(query string, to ...any) error {
	ctx, cancel := context.WithTimeout(rb.ctx, answerTimeout)
	defer cancel()
	err := rb.db.QueryRowContext(ctx, query).Scan(to...)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return err
}

// firstQueued is how many entries Freed reads at first, to see when enough of them will have expired.
const firstQueued = 64

// Freed implements rows.Reader.
func (rb *rowBatch) Freed(cell law.Cell, after, need int64) (int64, error) {
	q := rb.queues[cell]
	if q == nil || q.after != after {
		q = &queue{after: after}
		if rb.queues == nil {
			rb.queues = map[law.Cell]*queue{}
		}
		rb.queues[cell] = q
	}
	for limit := firstQueued; ; limit *= 16 {
		missing := need
		for _, e := range q.entries {
			if missing -= e.credits; missing <= 0 {
				return e.expiresAt, nil
			}
		}
		if q.complete {
			return law.Never, nil
		}
		if limit > len(q.entries) {
			if err := rb.fillQueue(q, cell, limit); err != nil {
				return 0, err
			}
		}
	}
}

// fillQueue refills a queue with its first entries, up to a limit.
func (rb *rowBatch) fillQueue(q *queue, cell law.Cell, limit int) (err error) {
	ctx, cancel := context.WithTimeout(rb.ctx, answerTimeout)
	defer cancel()
	query := "SELECT cost,expires_at FROM headgate_entries FORCE INDEX (by_cell) WHERE " + cellCondition(cell) +
		fmt.Sprintf(" AND expires_at>%d ORDER BY expires_at LIMIT %d", q.after, limit) + rb.lockClause
	q.entries, err = readList(ctx, rb.db, query, func(e *entry) []any { return []any{&e.credits, &e.expiresAt} })
	q.complete = len(q.entries) < limit
	return err
}
