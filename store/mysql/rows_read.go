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

// lockText returns the first text: it locks and reads the rows of the cells, and reads what the laws are known to need:
// receipts, entries, the clock, and for each log the credits that have expired since its cell was written last.
func (f *flight) lockText(begin string) string {
	var b strings.Builder
	b.Grow(1024 + 160*len(f.Cells))
	b.WriteString(begin)
	b.WriteString("SELECT " + cellColumns + " FROM headgate_cells FORCE INDEX (PRIMARY) WHERE ")
	names := make([]law.Cell, len(f.Cells))
	for i, c := range f.Cells {
		names[i] = c.Name
	}
	whereCells(&b, names)
	b.WriteString(" ORDER BY limit_name,cell_key")
	if !onlyChecks(f.ops) {
		b.WriteString(" FOR UPDATE")
	}
	b.WriteByte(';')
	f.steps = append(f.steps, f.readCell)
	f.selectReceipts(&b)
	f.selectEntries(&b)
	f.steps = append(f.steps, func(r *sql.Rows) error { return r.Scan(&f.clock) })
	if sums := f.selectSums(); sums != "" {
		return b.String() + "SET @hg_clock=" + readClock + ";SELECT @hg_clock" + sums
	}
	return b.String() + "SELECT " + readClock
}

// whereCells writes the condition that a row is one of some cells, which are in order. MariaDB uses the
// primary key for it, and not for a list of pairs.
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
			literal(b, c.Limit)
			b.WriteString(" AND cell_key IN (")
		}
		literal(b, c.Key)
	}
	b.WriteByte(')')
}

// maxListed bounds a list: MariaDB makes a subquery of one of 1,000.
const maxListed = 500

// step writes a statement that reads the rows for which one of the conditions holds; take stores each of them.
func (f *flight) step(b *strings.Builder, query string, conditions []string, take func(*sql.Rows) error) {
	if len(conditions) == 0 {
		return
	}
	b.WriteString(query + "(" + strings.Join(conditions, " OR ") + ")" + f.locks + ";")
	f.steps = append(f.steps, take)
}

// selectReceipts writes the statement that reads the requests that ops name.
func (f *flight) selectReceipts(b *strings.Builder) {
	f.receipts = map[admission]law.Receipt{}
	var named []string
	for i := range f.ops {
		op := &f.ops[i]
		if op.ID != "" && op.Verb != law.Check && f.Cell(op.Cell) != nil {
			named = append(named, cellCondition(op.Cell)+" AND id="+quoted(op.ID))
		}
	}
	f.step(b, "SELECT limit_name,cell_key,id,print,rule,cost,outcome,settled,keep_until FROM "+
		"headgate_admissions FORCE INDEX (PRIMARY) WHERE ", named, f.readReceipt)
}

// selectEntries writes the statements that read the entries that ops name, and those in which requests that they name
// were charged.
func (f *flight) selectEntries(b *strings.Builder) {
	f.entries = map[int64]entry{}
	var numbered, charged []string
	for i := range f.ops {
		op := &f.ops[i]
		if op.Params.Kind != law.Log {
			continue
		}
		if op.EntryNumber > 0 {
			numbered = append(numbered, "number="+strconv.FormatInt(op.EntryNumber, 10))
			f.entries[op.EntryNumber] = entry{} // if it is not among them, it is known that it does not count
		}
		if op.ID != "" && (op.Verb == law.Settle || op.Verb == law.Extend) { // an entry that it remembers
			charged = append(charged, "a.limit_name="+quoted(op.Cell.Limit)+" AND a.cell_key="+quoted(op.Cell.Key)+
				" AND a.id="+quoted(op.ID))
		}
	}
	f.step(b, "SELECT number,limit_name,cell_key,cost,expires_at FROM headgate_entries WHERE expires_at>0 AND ",
		numbered, f.readEntry)
	f.step(b, "SELECT e.number,e.limit_name,e.cell_key,e.cost,e.expires_at FROM headgate_admissions a "+
		"FORCE INDEX (PRIMARY) STRAIGHT_JOIN headgate_entries e ON e.number="+spaced("a.outcome", entryField)+
		" WHERE e.expires_at>0 AND ", charged, f.readEntry)
	f.charged = len(charged) > 0
}

// entryField is where the number of an entry stands in an outcome that is remembered, from 1.
var entryField = 1 + slices.Index(law.NumberNames[:], "entry")

// spaced returns the nth of the numbers of a text, with spaces between them.
func spaced(text string, n int) string {
	return fmt.Sprintf("CAST(SUBSTRING_INDEX(SUBSTRING_INDEX(%s, ' ', %d), ' ', -1) AS SIGNED)", text, n)
}

// selectSums returns the statement that reads the sums of logs; "": there are none. In a transaction of the caller's it
// might read an older snapshot than the rows: there each sum is read when the laws need it.
func (f *flight) selectSums() string {
	if f.locks != "" {
		return ""
	}
	var b strings.Builder
	logs := map[law.Cell]bool{}
	for i := range f.ops {
		if op := &f.ops[i]; op.Params.Kind == law.Log {
			logs[op.Cell] = true
		}
	}
	n := 0
	for _, c := range f.Cells {
		if !logs[c.Name] {
			continue
		}
		join(&b, &n, ";(SELECT ", " UNION ALL (SELECT ")
		literals(&b, c.Name)
		b.WriteString(",COALESCE(SUM(cost),0) FROM headgate_entries FORCE INDEX (by_cell) WHERE ")
		whereCell(&b, c.Name)
		b.WriteString(" AND expires_at>(SELECT at FROM headgate_cells WHERE ")
		whereCell(&b, c.Name)
		b.WriteString(") AND expires_at<=@hg_clock)")
	}
	if n > 0 {
		f.sums = map[law.Cell]span{}
		f.steps = append(f.steps, f.readSum)
	}
	return b.String()
}

// read sends the first text and stores what the server answers.
func (f *flight) read(text string) error {
	ctx, cancel := context.WithTimeout(f.ctx, patience)
	defer cancel()
	answer, err := f.on.QueryContext(ctx, text)
	if err != nil {
		return err
	}
	defer answer.Close()
	for steps := f.steps; ; {
		columns, err := answer.Columns()
		if err != nil {
			return err
		}
		if len(columns) > 0 {
			if len(steps) == 0 {
				return errors.New("the server's answer makes no sense: it is longer than what was asked")
			}
			for answer.Next() {
				if err := steps[0](answer); err != nil {
					return err
				}
			}
			steps = steps[1:]
		}
		if !answer.NextResultSet() {
			if err := answer.Err(); err != nil {
				return err
			}
			if len(steps) > 0 {
				return errors.New("the server's answer makes no sense: it is shorter than what was asked")
			}
			return nil
		}
	}
}

func (f *flight) readCell(r *sql.Rows) error {
	var limit, key, reason sql.RawBytes
	var st law.State
	if err := r.Scan(cellFields(&limit, &key, &st, &reason)...); err != nil {
		return err
	}
	c := f.Cell(law.Cell{Limit: string(limit), Key: string(key)})
	if c == nil {
		return fmt.Errorf("the server's answer makes no sense: %q of %s was not asked for", key, limit)
	}
	c.State, c.Reason, c.Found = st, string(reason), true
	return nil
}

func (f *flight) readReceipt(r *sql.Rows) error {
	var name admission
	var a law.Receipt
	var terms, outcome string
	if err := r.Scan(&name.cell.Limit, &name.cell.Key, &name.id, &a.Fingerprint, &terms, &a.Cost, &outcome, &a.Settled,
		&a.KeepUntil); err != nil {
		return err
	}
	if err := a.SetCharged(outcome); err != nil {
		return err
	}
	var err error
	a.ID = name.id
	a.Terms, err = law.ParseTerms(terms)
	f.receipts[name] = a
	if number := a.Outcome.EntryNumber; f.charged && number > 0 {
		f.entries[number] = entry{}
	}
	return err
}

func (f *flight) readEntry(r *sql.Rows) error {
	var number int64
	var e entry
	if err := r.Scan(&number, &e.cell.Limit, &e.cell.Key, &e.credits, &e.expiresAt); err != nil {
		return err
	}
	f.entries[number] = e
	return nil
}

func (f *flight) readSum(r *sql.Rows) error {
	var cell law.Cell
	var sum int64
	if err := r.Scan(&cell.Limit, &cell.Key, &sum); err != nil {
		return err
	}
	if c := f.Cell(cell); c != nil && c.Found {
		f.sums[cell] = span{c.State.At, f.clock, sum}
	}
	return nil
}

// Receipt implements rows.Reader. All that may be requested were read.
func (f *flight) Receipt(cell law.Cell, id string) (a law.Receipt, ok bool, err error) {
	a, ok = f.receipts[admission{cell, id}]
	return a, ok, nil
}

// Sum implements rows.Reader.
func (f *flight) Sum(cell law.Cell, after, upto int64) (sum int64, err error) {
	if s, ok := f.sums[cell]; ok && s.after == after && s.upto == upto {
		return s.sum, nil
	}
	var b strings.Builder
	b.WriteString("SELECT cost FROM headgate_entries FORCE INDEX (by_cell) WHERE ")
	whereCell(&b, cell)
	fmt.Fprintf(&b, " AND expires_at>%d AND expires_at<=%d", after, upto)
	err = f.ask("SELECT COALESCE(SUM(cost),0) FROM ("+b.String()+f.locks+") e", &sum)
	return sum, err
}

// Entry implements rows.Reader.
func (f *flight) Entry(cell law.Cell, number int64) (credits, expiresAt int64, err error) {
	e, known := f.entries[number]
	if !known {
		e.cell = cell
		err = f.ask("SELECT cost,expires_at FROM headgate_entries WHERE number="+strconv.FormatInt(number, 10)+
			" AND expires_at>0 AND "+cellCondition(cell)+f.locks, &e.credits, &e.expiresAt)
	}
	if e.cell != cell {
		return 0, 0, nil
	}
	return e.credits, e.expiresAt, err
}

// ask reads a row, if there is one.
func (f *flight) ask(query string, to ...any) error {
	ctx, cancel := context.WithTimeout(f.ctx, patience)
	defer cancel()
	err := f.on.QueryRowContext(ctx, query).Scan(to...)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return err
}

// fewQueued is how many entries of a log are read first to see when enough of them will have expired.
const fewQueued = 64

// Freed implements rows.Reader.
func (f *flight) Freed(cell law.Cell, after, need int64) (int64, error) {
	q := f.queues[cell]
	if q == nil || q.after != after {
		q = &queue{after: after}
		if f.queues == nil {
			f.queues = map[law.Cell]*queue{}
		}
		f.queues[cell] = q
	}
	for most := fewQueued; ; most *= 16 {
		left := need
		for _, e := range q.entries {
			if left -= e.credits; left <= 0 {
				return e.expiresAt, nil
			}
		}
		if q.all {
			return law.Never, nil
		}
		if most > len(q.entries) {
			if err := f.fill(q, cell, most); err != nil {
				return 0, err
			}
		}
	}
}

// fill reads a queue of at most most entries.
func (f *flight) fill(q *queue, cell law.Cell, most int) (err error) {
	ctx, cancel := context.WithTimeout(f.ctx, patience)
	defer cancel()
	query := "SELECT cost,expires_at FROM headgate_entries FORCE INDEX (by_cell) WHERE " + cellCondition(cell) +
		fmt.Sprintf(" AND expires_at>%d ORDER BY expires_at LIMIT %d", q.after, most) + f.locks
	q.entries, err = readList(ctx, f.on, query, func(e *entry) []any { return []any{&e.credits, &e.expiresAt} })
	q.all = len(q.entries) < most
	return err
}

func cellCondition(c law.Cell) string {
	var b strings.Builder
	whereCell(&b, c)
	return b.String()
}
