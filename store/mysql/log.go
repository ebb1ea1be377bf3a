package mysql

import (
	"strconv"
	"strings"

	"github.com/headgate/headgate/law"
)

// log writes what a run leaves in the logs of its cells.
func (p *plan) log(b *strings.Builder, r *run) {
	if p.reads || !r.shape.Log && !r.shape.Reset && !r.shape.IDs && !r.shape.Renew {
		return
	}
	if r.shape.Put {
		b.WriteString(putEntries)
		return
	}
	if r.shape.Admit {
		b.WriteString(putAdmissions) // first: a cell may be reset by what follows
	}
	answer := map[int]int{} // of the op: the number of its record in @hg_r
	record := 0
	for _, row := range r.rows {
		op := &p.ops[row.op]
		record += row.records()
		if row.records() == 2 {
			answer[row.op] = record - 1
		}
		switch row.pass {
		case firstPass, onceFirst, settleFirst:
			continue
		case onceSecond, settleSecond:
			if !r.shape.Admit || !gathered(op) {
				p.remember(b, &row, record)
			}
			continue
		}
		switch {
		case op.Verb == law.Reset:
			b.WriteString("UPDATE headgate_entries SET expires_at = 0 WHERE ")
			entryOf(b, op.Cell)
			b.WriteString(" AND expires_at > 0;DELETE FROM headgate_admissions WHERE ")
			entryOf(b, op.Cell)
			b.WriteByte(';')
		case op.Verb == law.Take && op.Params.Kind == law.Log:
			n := answer[row.op]
			b.WriteString("SET @hg_g = " + field(n, 1) + ", @hg_now = " + field(n, 6) + ", @hg_done = " + field(record, 1) +
				", @hg_clear = " + field(n, 7) + ", @hg_carry = " + field(n, 8) + ", @hg_ends = " + field(n, 9) + ";")
			enter(b, op)
		case op.Verb == law.Return && op.Params.Kind == law.Log:
			b.WriteString("SET @hg_g = " + field(answer[row.op], 1) + ";")
			lower(b, op, strconv.FormatInt(op.EntryNumber, 10))
		case op.Verb == law.Renew:
			renew(b, op, answer[row.op])
		}
	}
}

func entryOf(b *strings.Builder, c law.Cell) {
	b.WriteString("limit_name = ")
	literal(b, c.Limit)
	b.WriteString(" AND cell_key = ")
	literal(b, c.Key)
}

// enter writes the log of one op, whose answer is in variables.
func enter(b *strings.Builder, op *law.Op) {
	step, keep := strconv.FormatInt(op.Params.Step, 10), strconv.FormatInt(op.Params.History, 10)
	cell := func() {
		literal(b, op.Cell.Limit)
		b.WriteByte(',')
		literal(b, op.Cell.Key)
		b.WriteByte(',')
	}
	b.WriteString("UPDATE headgate_entries SET expires_at = 0 WHERE @hg_clear AND @hg_done <> 2 AND ")
	entryOf(b, op.Cell)
	b.WriteString(" AND expires_at > 0;")
	b.WriteString(insertEntry)
	cell()
	b.WriteString("'" + law.Carried + "', @hg_now, @hg_ends, @hg_now + GREATEST(" + step + "," + keep + "), @hg_carry, 1 FROM DUAL WHERE @hg_carry > 0 AND @hg_done <> 2;")
	b.WriteString(insertEntry)
	cell()
	literal(b, op.ID)
	b.WriteString(", @hg_now, IF(@hg_done, @hg_now + " + step + ", 0), @hg_now + GREATEST(" + keep + ", IF(@hg_done, " + step + ", 0)), IF(@hg_done, @hg_g, " +
		strconv.FormatInt(op.Count, 10) + ") * " + strconv.FormatInt(op.Cost, 10) + ", @hg_done FROM DUAL WHERE ")
	wrote := "@hg_done = 1"
	if op.Params.History > 0 {
		wrote = "@hg_done <> 2"
	}
	b.WriteString(wrote + ";SET @hg_entries = CONCAT(@hg_entries, IF(" + wrote + ", LAST_INSERT_ID(), 0), ',');")
}

// field is a number of a record of @hg_r, both counted from 1.
func field(record, n int) string { return fieldOf(recordOf(record), n) }

func recordOf(record int) string {
	return "SUBSTRING_INDEX(SUBSTRING_INDEX(@hg_r, ';', " + strconv.Itoa(record) + "), ';', -1)"
}

func fieldOf(record string, n int) string {
	return "CAST(SUBSTRING_INDEX(SUBSTRING_INDEX(" + record + ", ',', " + strconv.Itoa(n) + "), ',', -1) AS SIGNED)"
}

// lower takes what an op has given back, which is in @hg_g, from the entry that it
// was charged in. One with nothing left counts no more.
func lower(b *strings.Builder, op *law.Op, entry string) {
	b.WriteString("UPDATE headgate_entries SET expires_at = IF(cost > @hg_g, expires_at, 0), cost = cost - @hg_g WHERE number = " +
		entry + " AND @hg_g <> 0 AND ")
	entryOf(b, op.Cell)
	b.WriteByte(';')
}

// putEntries writes what the decisions have put together. The numbers of rows
// inserted together follow each other at the server's increment.
const putEntries = "SET @hg_s = IF(@hg_wipe = '', 'DO 0', CONCAT('UPDATE headgate_entries SET expires_at = 0 WHERE expires_at > 0 AND (', SUBSTRING(@hg_wipe, 5), ')'));" +
	executeText +
	"SET @hg_s = IF(@hg_put = '', 'DO 0', CONCAT('INSERT INTO headgate_entries (limit_name, cell_key, id, at, expires_at, keep_until, cost, granted) VALUES ', SUBSTRING(@hg_put, 2)));" +
	executeText +
	"SET @hg_entries = CONCAT(@hg_entries, IF(@hg_put = '', 0, LAST_INSERT_ID()), ',', @@auto_increment_increment, ','), @hg_put = CONVERT('' USING latin1), @hg_wipe = CONVERT('' USING latin1);"

// executeText carries out the statement in @hg_s, which may be none.
const executeText = "PREPARE headgate FROM @hg_s;EXECUTE headgate;DEALLOCATE PREPARE headgate;"

const insertEntry = "INSERT INTO headgate_entries (limit_name, cell_key, id, at, expires_at, keep_until, cost, granted) SELECT "
