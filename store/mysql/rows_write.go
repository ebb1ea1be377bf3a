package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store/internal/rows"
)

// changes returns the statements of the second text that write all changes, and whether there are any.
func (rb *rowBatch) changes() (text string, hasChanges bool) {
	w := &rowWriter{}
	w.Grow(1024 + 160*len(rb.Cells))
	for _, c := range rb.Cells {
		w.changeExisting(c)
	}
	w.insertEntries(rb.Cells)
	w.saveReceipts(rb.Cells)
	w.saveCells(rb.Cells)
	return w.String(), w.Len() > 0
}

// rowWriter writes the statements of a second text.
type rowWriter struct{ strings.Builder }

func (w *rowWriter) printf(format string, args ...any) { fmt.Fprintf(&w.Builder, format, args...) }

// changeExisting deletes the receipts of a cell that is reset, and writes the changes of its existing entries.
func (w *rowWriter) changeExisting(c *rows.Cell) {
	if c.Forget && c.Found {
		w.WriteString("DELETE FROM headgate_admissions WHERE " + cellCondition(c.Name) + ";")
	}
	if c.Clear && c.Found {
		w.WriteString("UPDATE headgate_entries SET expires_at=0 WHERE " + cellCondition(c.Name) + " AND expires_at>0;")
	}
	for _, n := range c.Renew {
		w.printf("UPDATE headgate_entries SET expires_at=%[1]d,keep_until=GREATEST(keep_until,%[1]d) WHERE number=%[2]d;",
			n.To, n.Number)
	}
	for _, l := range c.Lower { // columns are assigned from left to right
		w.printf("UPDATE headgate_entries SET expires_at=IF(cost>%[1]d,expires_at,0),cost=cost-%[1]d WHERE number=%[2]d;",
			l.Credits, l.Number)
	}
}

// insertEntries inserts the new entries of all cells by one statement, so that their numbers follow each other at the
// server's increment.
func (w *rowWriter) insertEntries(cells []*rows.Cell) {
	n := 0
	for _, c := range cells {
		for i := range c.Add {
			e := &c.Add[i]
			beginPart(&w.Builder, &n, "INSERT INTO headgate_entries "+
				"(limit_name,cell_key,id,at,expires_at,keep_until,cost,granted) VALUES (", ",(")
			writeCellNames(&w.Builder, c.Name)
			w.WriteByte(',')
			writeLiteral(&w.Builder, e.ID)
			w.printf(",%d,%d,%d,%d,%t)", e.At, e.ExpiresAt, e.KeepUntil, e.Cost, e.Granted)
			e.Number = int64(n) // its place among the batch's entries, from 1; write replaces it
		}
	}
	if n > 0 {
		w.WriteString(";SELECT LAST_INSERT_ID(),@@auto_increment_increment;")
	}
}

// saveReceipts writes the receipts of cells.
func (w *rowWriter) saveReceipts(cells []*rows.Cell) {
	n := 0
	for _, c := range cells {
		for i := range c.Admit {
			a := &c.Admit[i]
			beginPart(&w.Builder, &n, "REPLACE INTO headgate_admissions "+
				"(limit_name,cell_key,id,print,rule,cost,outcome,settled,keep_until) VALUES (", ",(")
			writeCellNames(&w.Builder, c.Name)
			w.WriteByte(',')
			writeLiteral(&w.Builder, a.ID)
			w.printf(",%d,'%s',%d,", a.Fingerprint, a.Terms.String(), a.Cost)
			w.writeOutcome(c, a)
			w.printf(",%d,%d)", a.Settled, a.KeepUntil)
		}
	}
	if n > 0 {
		w.WriteByte(';')
	}
}

// writeOutcome writes the outcome of a receipt. If the outcome has a new entry, the server fills in its number.
func (w *rowWriter) writeOutcome(c *rows.Cell, a *law.Receipt) {
	entry := a.Outcome.EntryNumber
	if entry >= 0 {
		w.WriteString("'" + a.Charged() + "'")
		return
	}
	fields := strings.Fields(a.Charged())
	w.printf("CONCAT('%s ',LAST_INSERT_ID()+%d*@@auto_increment_increment,' %s')",
		strings.Join(fields[:entryField-1], " "), c.Add[-entry-1].Number-1, strings.Join(fields[entryField:], " "))
}

// onDuplicateReplace ends an INSERT of cells that replaces existing rows.
var onDuplicateReplace = func() string {
	var list []string
	for _, name := range strings.Split(cellColumns, ",")[2:] {
		list = append(list, name+"=VALUES("+name+")")
	}
	return " ON DUPLICATE KEY UPDATE " + strings.Join(list, ",")
}()

// saveCells writes changed cells, and deletes cells that were reset. Rows that were found are locked; the others are
// inserted, which fails if somebody else has inserted them since.
func (w *rowWriter) saveCells(cells []*rows.Cell) {
	for _, found := range []bool{true, false} {
		n := 0
		for _, c := range cells {
			if c.Found != found || !c.Dirty || c.State.Kind == 0 {
				continue
			}
			beginPart(&w.Builder, &n, "INSERT INTO headgate_cells ("+cellColumns+") VALUES (", ",(")
			writeCellNames(&w.Builder, c.Name)
			st := &c.State
			buf := make([]byte, 0, 160)
			for _, n := range [...]int64{
				int64(st.Kind), st.Level, st.Prev, st.At, st.Unit, st.Step, st.EmptyAt,
				st.BlockedUntil,
			} {
				buf = strconv.AppendInt(append(buf, ','), n, 10)
			}
			w.Write(append(buf, ','))
			writeLiteral(&w.Builder, c.Reason)
			w.WriteByte(')')
		}
		if n == 0 {
			continue
		}
		if found {
			w.WriteString(onDuplicateReplace)
		}
		w.WriteByte(';')
	}
	for _, c := range cells {
		if c.Found && c.Gone && c.State.Kind == 0 {
			w.WriteString("DELETE FROM headgate_cells WHERE " + cellCondition(c.Name) + ";")
		}
	}
}

// write sends the second text, even if the caller gives up meanwhile, and sets the numbers of new entries in the
// outcomes.
func (rb *rowBatch) write(outs []law.Outcome, text string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(rb.ctx), answerTimeout)
	defer cancel()
	var first, step int64
	if err := eachRow(ctx, rb.db, text, func(r *sql.Rows) error { return r.Scan(&first, &step) }); err != nil {
		return err
	}
	for _, c := range rb.Cells {
		for i := range c.Add {
			e := &c.Add[i]
			if first == 0 || step == 0 {
				return errors.New("the server's answer makes no sense: it has no number of an entry")
			}
			e.Number = first + (e.Number-1)*step
		}
	}
	rb.SetEntryNumbers(outs)
	return nil
}
