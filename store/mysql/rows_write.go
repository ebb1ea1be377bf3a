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

// changes returns the text that writes what has changed, and whether that is anything.
func (f *flight) changes() (text string, any bool) {
	w := &rowWriter{}
	w.Grow(1024 + 160*len(f.Cells))
	for _, c := range f.Cells {
		w.forget(c)
	}
	for _, c := range f.Cells {
		w.change(c)
	}
	w.enter(f.Cells)
	w.admit(f.Cells)
	w.save(f.Cells)
	return w.String(), w.Len() > 0
}

// rowWriter writes the statements of a second text.
type rowWriter struct{ strings.Builder }

func (w *rowWriter) printf(format string, args ...any) { fmt.Fprintf(&w.Builder, format, args...) }

// forget writes what a cell no longer remembers.
func (w *rowWriter) forget(c *rows.Cell) {
	if c.Forget && c.Found {
		w.WriteString("DELETE FROM headgate_admissions WHERE " + cellCondition(c.Name) + ";")
	}
}

// change writes what becomes of entries that are there.
func (w *rowWriter) change(c *rows.Cell) {
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

// enter writes new entries, all by one statement: their numbers follow each other at the server's
// increment.
func (w *rowWriter) enter(cells []*rows.Cell) {
	n := 0
	for _, c := range cells {
		for i := range c.Add {
			e := &c.Add[i]
			join(&w.Builder, &n, "INSERT INTO headgate_entries "+
				"(limit_name,cell_key,id,at,expires_at,keep_until,cost,granted) VALUES (", ",(")
			literals(&w.Builder, c.Name)
			w.WriteByte(',')
			literal(&w.Builder, e.ID)
			granted := 0
			if e.Granted {
				granted = 1
			}
			w.printf(",%d,%d,%d,%d,%d)", e.At, e.ExpiresAt, e.KeepUntil, e.Cost, granted)
			e.Number = int64(n) // among those of the batch: see numbered
		}
	}
	if n > 0 {
		w.WriteString(";SELECT LAST_INSERT_ID(),@@auto_increment_increment;")
	}
}

// admit writes what cells remember of requests.
func (w *rowWriter) admit(cells []*rows.Cell) {
	n := 0
	for _, c := range cells {
		for i := range c.Admit {
			a := &c.Admit[i]
			join(&w.Builder, &n, "REPLACE INTO headgate_admissions "+
				"(limit_name,cell_key,id,print,rule,cost,outcome,settled,keep_until) VALUES (", ",(")
			literals(&w.Builder, c.Name)
			w.WriteByte(',')
			literal(&w.Builder, a.ID)
			w.printf(",%d,'%s',%d,", a.Fingerprint, a.Terms.String(), a.Cost)
			w.outcome(c, a)
			w.printf(",%d,%d)", a.Settled, a.KeepUntil)
		}
	}
	if n > 0 {
		w.WriteByte(';')
	}
}

// outcome writes the outcome that is remembered. Where it has an entry of this batch, the server puts
// the number of that into it.
func (w *rowWriter) outcome(c *rows.Cell, a *law.Receipt) {
	entry := a.Outcome.EntryNumber
	if entry >= 0 {
		w.WriteString("'" + a.Charged() + "'")
		return
	}
	fields := strings.Fields(a.Charged())
	w.printf("CONCAT('%s ',LAST_INSERT_ID()+%d*@@auto_increment_increment,' %s')",
		strings.Join(fields[:entryField-1], " "), c.Add[-entry-1].Number-1, strings.Join(fields[entryField:], " "))
}

// overwrite has a row take the place of the one that is there.
var overwrite = func() string {
	var list []string
	for _, name := range strings.Split(cellColumns, ",")[2:] {
		list = append(list, name+"=VALUES("+name+")")
	}
	return " ON DUPLICATE KEY UPDATE " + strings.Join(list, ",")
}()

// save writes the cells. Those that are there are locked; those that are not must not have been made
// by others since.
func (w *rowWriter) save(cells []*rows.Cell) {
	for _, found := range []bool{true, false} {
		n := 0
		for _, c := range cells {
			if c.Found != found || !c.Dirty || c.State.Kind == 0 {
				continue
			}
			join(&w.Builder, &n, "INSERT INTO headgate_cells ("+cellColumns+") VALUES (", ",(")
			literals(&w.Builder, c.Name)
			st := &c.State
			buf := make([]byte, 0, 160)
			for _, n := range [...]int64{
				int64(st.Kind), st.Level, st.Prev, st.At, st.Unit, st.Step, st.EmptyAt,
				st.BlockedUntil,
			} {
				buf = strconv.AppendInt(append(buf, ','), n, 10)
			}
			w.Write(append(buf, ','))
			literal(&w.Builder, c.Reason)
			w.WriteByte(')')
		}
		if n == 0 {
			continue
		}
		if found {
			w.WriteString(overwrite)
		}
		w.WriteByte(';')
	}
	for _, c := range cells {
		if c.Found && c.Gone && c.State.Kind == 0 {
			w.WriteString("DELETE FROM headgate_cells WHERE " + cellCondition(c.Name) + ";")
		}
	}
}

// write sends the second text, whatever the caller does meanwhile, and gives the outcomes the numbers
// of their entries.
func (f *flight) write(outs []law.Outcome, text string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(f.ctx), patience)
	defer cancel()
	var first, step int64
	if err := eachRow(ctx, f.on, text, func(r *sql.Rows) error { return r.Scan(&first, &step) }); err != nil {
		return err
	}
	for _, c := range f.Cells {
		for i := range c.Add {
			e := &c.Add[i]
			if first == 0 || step == 0 {
				return errors.New("the server's answer makes no sense: it has no number of an entry")
			}
			e.Number = first + (e.Number-1)*step
		}
	}
	f.Number(outs)
	return nil
}
