package mysql

import (
	"strconv"
	"strings"

	"github.com/headgate/headgate/law"
)

const (
	intoEntries = "INSERT INTO headgate_entries (limit_name, cell_key, id, at, expires_at, keep_until, cost, " +
		"granted) "
	intoAdmissions = "REPLACE INTO headgate_admissions (limit_name, cell_key, id, print, rule, cost, outcome, " +
		"settled, keep_until) "
)

// putEntries writes what the decisions have put together. The numbers of rows
// inserted together follow each other at the server's increment.
const putEntries = "SET @hg_s = IF(@hg_wipe = '', 'DO 0', CONCAT('UPDATE headgate_entries SET expires_at = 0 WHERE " +
	"expires_at > 0 AND (', SUBSTRING(@hg_wipe, 5), ')'));" +
	executeText +
	"SET @hg_s = IF(@hg_put = '', 'DO 0', CONCAT('" + intoEntries + "VALUES ', SUBSTRING(@hg_put, 2)));" +
	executeText +
	"SET @hg_entries = CONCAT(@hg_entries, IF(@hg_put = '', 0, LAST_INSERT_ID()), ',', " +
	"@@auto_increment_increment, ','), " +
	"@hg_put = CONVERT('' USING latin1), @hg_wipe = CONVERT('' USING latin1);"

// putAdmissions writes what the decisions have put together to be remembered of IDs.
const putAdmissions = "SET @hg_s = IF(@hg_put = '', 'DO 0', CONCAT('" + intoAdmissions +
	"VALUES ', SUBSTRING(@hg_put, 2)));" +
	executeText + "SET @hg_put = CONVERT('' USING latin1);"

// log writes what a run leaves in the logs of its cells, and what is remembered of its
// IDs.
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
	if r.shape.Mark {
		p.putSettled(b, r)
	}
	answers := map[int]int{} // of an op: the number of its answer among the records
	last := 0                // the number of the row's last record
	for i := range r.rows {
		row := &r.rows[i]
		last += row.records()
		if row.records() == 2 {
			answers[row.op] = last - 1
		}
		switch row.pass {
		case firstPass, onceFirst, settleFirst, extendFirst: // the second row of the op writes
		case onceSecond, settleSecond, extendSecond:
			op := &p.ops[row.op]
			if r.shape.Admit && gathered(op) || r.shape.Mark && row.pass == settleSecond && marked(op) {
				continue
			}
			p.remember(b, row, last)
		default:
			logOp(b, &p.ops[row.op], answers[row.op], last)
		}
	}
}

// putSettled writes that those of the requests were settled that @hg_marks says so of.
func (p *plan) putSettled(b *strings.Builder, r *run) {
	b.WriteString("UPDATE (")
	mark, n := 0, 0
	for i := range r.rows {
		op := &p.ops[r.rows[i].op]
		if r.rows[i].pass != settleSecond {
			continue
		}
		if mark++; !marked(op) {
			continue
		}
		openRow(b, p.values, n)
		named(b, n, quoted(op.Cell.Limit), "l")
		named(b, n, ","+quoted(op.Cell.Key), "k")
		named(b, n, ","+quoted(op.ID), "i")
		named(b, n, ","+strconv.FormatInt(op.Cost, 10), "c")
		named(b, n, ","+strconv.Itoa(mark), "m")
		shutRow(b, p.values, n)
		n++
	}
	b.WriteString(") o STRAIGHT_JOIN headgate_admissions a FORCE INDEX (PRIMARY) ON a.limit_name = o.l AND " +
		"a.cell_key = o.k AND a.id = o.i SET a.settled = o.c WHERE SUBSTRING(@hg_marks, o.m, 1) = '1';" +
		"SET @hg_marks = CAST('' AS BINARY);")
}

// logOp writes what an op leaves in its log. Two records of @hg_r are its answer and the
// state of its cell.
func logOp(b *strings.Builder, op *law.Op, answer, state int) {
	log := op.Params.Kind == law.Log
	switch {
	case op.Verb == law.Reset:
		b.WriteString("UPDATE headgate_entries SET expires_at = 0 WHERE ")
		ofCell(b, op.Cell)
		b.WriteString(" AND expires_at > 0;DELETE FROM headgate_admissions WHERE ")
		ofCell(b, op.Cell)
		b.WriteByte(';')
	case op.Verb == law.Take && log:
		b.WriteString("SET @hg_g = " + field(answer, aGranted) + ", @hg_now = " + field(answer, aNow) +
			", @hg_done = " + field(state, sDone) +
			", @hg_clear = " + field(answer, aClear) + ", @hg_carry = " + field(answer, aCarry) + ", @hg_ends = " +
			field(answer, aEnds) + ";")
		enter(b, op, charged(op))
	case op.Verb == law.Return && log:
		b.WriteString("SET @hg_g = " + field(answer, aGranted) + ";")
		lower(b, op, strconv.FormatInt(op.EntryNumber, 10))
	case op.Verb == law.Renew:
		renew(b, op, answer)
	}
}

// charged is what an op that takes has charged, or would have.
func charged(op *law.Op) string {
	return "IF(@hg_done, @hg_g, " + strconv.FormatInt(op.Count, 10) + ") * " + strconv.FormatInt(op.Cost, 10)
}

// enter writes the log of one op, whose answer is in variables. cost is what it has charged, or would have.
func enter(b *strings.Builder, op *law.Op, cost string) {
	step, keep := strconv.FormatInt(op.Params.Step, 10), strconv.FormatInt(op.Params.History, 10)
	b.WriteString("UPDATE headgate_entries SET expires_at = 0 WHERE @hg_clear AND @hg_done <> 2 AND ")
	ofCell(b, op.Cell)
	b.WriteString(" AND expires_at > 0;" + intoEntries + "SELECT ")
	literals(b, op.Cell)
	b.WriteString(",'" + law.Carried + "', @hg_now, @hg_ends, @hg_now + GREATEST(" + step + "," + keep +
		"), @hg_carry, 1 FROM DUAL WHERE @hg_carry > 0 AND @hg_done <> 2;")
	b.WriteString(intoEntries + "SELECT ")
	literals(b, op.Cell)
	b.WriteByte(',')
	literal(b, op.ID)
	b.WriteString(", @hg_now, IF(@hg_done, @hg_now + " + step + ", 0), @hg_now + GREATEST(" + keep + ", IF(@hg_done, " +
		step + ", 0)), " + cost + ", @hg_done FROM DUAL WHERE ")
	wrote := "@hg_done = 1"
	if op.Params.History > 0 {
		wrote = "@hg_done <> 2"
	}
	b.WriteString(wrote + ";SET @hg_entries = CONCAT(@hg_entries, IF(" + wrote + ", LAST_INSERT_ID(), 0), ',');")
}

// lower takes what an op has given back, which is in @hg_g, from the entry that it
// was charged in. One with nothing left counts no more.
func lower(b *strings.Builder, op *law.Op, entry string) {
	b.WriteString("UPDATE headgate_entries SET expires_at = IF(cost > @hg_g, expires_at, 0), cost = cost - @hg_g " +
		"WHERE number = " +
		entry + " AND @hg_g <> 0 AND ")
	ofCell(b, op.Cell)
	b.WriteByte(';')
}

// renew lets the entry of an op, whose answer is a record of @hg_r, count on.
func renew(b *strings.Builder, op *law.Op, answer int) {
	until := "@hg_now + " + strconv.FormatInt(op.Params.Step, 10)
	b.WriteString("SET @hg_g = " + field(answer, aGranted) + ", @hg_now = " + field(answer, aNow) +
		";UPDATE headgate_entries SET expires_at = GREATEST(expires_at, " + until +
		"), keep_until = GREATEST(keep_until, " + until + ") WHERE number = " +
		strconv.FormatInt(op.EntryNumber, 10) + " AND @hg_g = 1 AND ")
	ofCell(b, op.Cell)
	b.WriteByte(';')
}

// remember writes what became of an op whose second row answered a record of
// @hg_r: its log, and what is remembered of its ID.
func (p *plan) remember(b *strings.Builder, r *row, record int) {
	op := &p.ops[r.op]
	if op.ID == "" { // it only may start late, so it has no log
		return
	}
	b.WriteString("SET @hg_o = " + recordOf(record) + ";") // taken out once: @hg_r may be long
	switch op.Verb {
	case law.Settle:
		rememberSettled(b, op)
		return
	case law.Extend:
		rememberExtended(b, op)
		return
	}
	entry := "0"
	if op.Params.Kind == law.Log {
		takeAnswer(b)
		enter(b, op, charged(op))
		entry = "LAST_INSERT_ID()" // one that was admitted has an entry
	}
	b.WriteString(intoAdmissions + "SELECT ")
	literals(b, op.Cell)
	b.WriteByte(',')
	literal(b, op.ID)
	b.WriteString("," + strconv.FormatInt(r.print, 10) + ",'" + op.Params.Terms().String() + "'," +
		strconv.FormatInt(op.Cost*op.Count, 10) +
		", CONCAT_WS(' ', REPLACE(SUBSTRING_INDEX(@hg_o, ',', " + strconv.Itoa(fEntry-1) + "), ',', ' '), " + entry +
		", 0, " + answered(fWhen) + ", " + answered(fStep) + "), -1, " +
		"GREATEST(" + answered(fTold) + ", " + answered(fWhen) + ") + " + strconv.FormatInt(op.TTL, 10) +
		" FROM DUAL WHERE " + answered(fDone) + " = 1;")
}

// takeAnswer puts into variables what enter needs of the record in @hg_o.
func takeAnswer(b *strings.Builder) {
	b.WriteString("SET @hg_g = " + answered(fGranted) + ", @hg_now = " + answered(fNow) + ", @hg_done = " +
		answered(fDone) +
		", @hg_clear = " + answered(fClear) + ", @hg_carry = " + answered(fCarry) + ", @hg_ends = " +
		answered(fEnds) + ";")
}

// rememberSettled writes that a request was settled, and lowers its entry.
func rememberSettled(b *strings.Builder, op *law.Op) {
	b.WriteString("UPDATE headgate_admissions SET settled = " + strconv.FormatInt(op.Cost, 10) + " WHERE " +
		answered(fDone) + " = 1 AND ")
	ofCell(b, op.Cell)
	b.WriteString(" AND id = ")
	literal(b, op.ID)
	b.WriteByte(';')
	if op.Params.Kind == law.Log {
		b.WriteString("SET @hg_g = " + answered(fGranted) + ", @hg_now = " + answered(fNow) + ";")
		lower(b, op, "@hg_now")
	}
}

// rememberExtended writes that a request was extended, whose second row answered the record
// in @hg_o: see extend in law/extend.go.
func rememberExtended(b *strings.Builder, op *law.Op) {
	b.WriteString("SET @hg_more = " + answered(fMore) + ";")
	p := &op.Params
	outcome := extendedOutcome(p.Kind == law.Bucket && (p.Anchor == law.Calendar || p.Drain == law.Max))
	if p.Kind == law.Log {
		takeAnswer(b)
		enter(b, op, "@hg_more")
		moveEntry(b, op)
		outcome = movedOutcome("@hg_entry")
	}
	b.WriteString("UPDATE headgate_admissions SET ")
	extendAdmission(b, op, outcome)
	b.WriteString(" WHERE " + answered(fAdmitted) + " = 1 AND ")
	ofCell(b, op.Cell)
	b.WriteString(" AND id = ")
	literal(b, op.ID)
	b.WriteByte(';')
}

// extendAdmission writes what becomes of the row of an admission. Each column is assigned
// before those that it is computed from.
func extendAdmission(b *strings.Builder, op *law.Op, outcome string) {
	b.WriteString("outcome = IF(@hg_more > 0, " + outcome + ", outcome), " +
		"rule = IF(@hg_more > 0 AND rule <> '" + op.Params.Terms().String() + "', '" + law.Terms{}.String() +
		"', rule), " +
		"cost = cost + @hg_more, keep_until = GREATEST(keep_until, " + answered(fTold) + " + " +
		strconv.FormatInt(op.TTL, 10) + ")")
}

// moveEntry moves what the entry of an admission still has to the entry of its extension,
// and leaves the number of that in @hg_entry.
func moveEntry(b *strings.Builder, op *law.Op) {
	b.WriteString("SET @hg_entry = IF(@hg_done = 1, LAST_INSERT_ID(), 0), @hg_had_entry = (SELECT " +
		spaced("outcome", entryField) + " FROM headgate_admissions WHERE ")
	ofCell(b, op.Cell)
	b.WriteString(" AND id = ")
	literal(b, op.ID)
	b.WriteString(");SET @hg_g = COALESCE((SELECT cost FROM headgate_entries WHERE @hg_done = 1 AND number = " +
		"@hg_had_entry AND granted = 1 AND expires_at > @hg_now AND ")
	ofCell(b, op.Cell)
	b.WriteString("), 0);")
	lower(b, op, "@hg_had_entry")
	b.WriteString("UPDATE headgate_entries SET cost = cost + @hg_g WHERE number = @hg_entry AND @hg_g <> 0 AND ")
	ofCell(b, op.Cell)
	b.WriteByte(';')
}
