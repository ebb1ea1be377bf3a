package mysql

import (
	"strconv"
	"strings"

	"github.com/headgate/headgate/law"
)

// admission names what a cell remembers of a request.
type admission struct {
	cell law.Cell
	id   string
}

// once tells whether an op is one of a request with an ID, or of one that may
// start late: see admission.tmpl.
func once(op *law.Op) bool { return op.ID != "" || op.Deferred }

// What the second row of an op in admission.tmpl answers is an outcome, in the
// order of law.Numbers, and then what is needed to write the log. Fields are
// counted from 1.
const (
	fGranted = 1
	fTold    = 10 // the time of the decision
	fWhen    = 14 // it may start
	fStep    = 15
	fNow     = 16 // Settle: the number of the entry
	fDone    = 17
	fClear   = 18
	fCarry   = 19
	fEnds    = 20 // when what is carried over expires

	moreFields = fEnds - law.Width
)

// fewAdmissions is up to how many are put in one by one: a statement that has to
// be prepared takes as long as these.
const fewAdmissions = 4

// gathered tells whether what is remembered of an op can be put in together with
// that of others: it needs no number of an entry.
func gathered(op *law.Op) bool {
	return op.Verb == law.Take && op.ID != "" && op.Params.Kind != law.Log
}

// gathers tells whether rows have so many of these that it is worth it.
func (p *plan) gathers(rows []row) bool {
	n := 0
	for i := range rows {
		if rows[i].pass == onceSecond && gathered(&p.ops[rows[i].op]) {
			n++
		}
	}
	return n > fewAdmissions
}

// putAdmissions writes what the decisions have put together.
const putAdmissions = "SET @hg_s = IF(@hg_put = '', 'DO 0', CONCAT('" + intoAdmissions + "VALUES ', SUBSTRING(@hg_put, 2)));" +
	executeText + "SET @hg_put = CONVERT('' USING latin1);"

const intoAdmissions = "REPLACE INTO headgate_admissions (limit_name, cell_key, id, print, rule, cost, outcome, settled, keep_until) "

// remember writes what became of an op whose second row answered a record of
// @hg_r: its log, and what is remembered of its ID.
func (p *plan) remember(b *strings.Builder, r *row, record int) {
	op := &p.ops[r.op]
	if op.ID == "" { // it only may start late, so it has no log
		return
	}
	log := op.Params.Kind == law.Log
	field := func(n int) string { return fieldOf("@hg_o", n) }
	b.WriteString("SET @hg_o = " + recordOf(record) + ";") // taken out once: @hg_r may be long
	switch {
	case op.Verb == law.Settle:
		b.WriteString("UPDATE headgate_admissions SET settled = " + strconv.FormatInt(op.Cost, 10) + " WHERE " + field(fDone) + " = 1 AND ")
		entryOf(b, op.Cell)
		b.WriteString(" AND id = ")
		literal(b, op.ID)
		b.WriteByte(';')
		if log {
			b.WriteString("SET @hg_g = " + field(fGranted) + ", @hg_now = " + field(fNow) + ";")
			lower(b, op, "@hg_now")
		}
		return
	case log:
		b.WriteString("SET @hg_g = " + field(fGranted) + ", @hg_now = " + field(fNow) + ", @hg_done = " + field(fDone) +
			", @hg_clear = " + field(fClear) + ", @hg_carry = " + field(fCarry) + ", @hg_ends = " + field(fEnds) + ";")
		enter(b, op)
	}
	b.WriteString(intoAdmissions + "SELECT ")
	literal(b, op.Cell.Limit)
	b.WriteByte(',')
	literal(b, op.Cell.Key)
	b.WriteByte(',')
	literal(b, op.ID)
	entry := "0"
	if log {
		entry = "LAST_INSERT_ID()" // one that was admitted has an entry
	}
	b.WriteString("," + strconv.FormatInt(r.print, 10) + ",'" + op.Params.Terms().String() + "'," + strconv.FormatInt(op.Cost*op.Count, 10) +
		", CONCAT_WS(' ', REPLACE(SUBSTRING_INDEX(@hg_o, ',', 11), ',', ' '), " + entry + ", 0, " + field(fWhen) + ", " + field(fStep) + "), -1, " +
		"GREATEST(" + field(fTold) + ", " + field(fWhen) + ") + " + strconv.FormatInt(op.TTL, 10) + " FROM DUAL WHERE " + field(fDone) + " = 1;")
}

// renew lets the entry of an op, whose answer is a record of @hg_r, count on.
func renew(b *strings.Builder, op *law.Op, answer int) {
	until := "@hg_now + " + strconv.FormatInt(op.Params.Step, 10)
	b.WriteString("SET @hg_g = " + field(answer, 1) + ", @hg_now = " + field(answer, 6) +
		";UPDATE headgate_entries SET expires_at = " + until + ", keep_until = GREATEST(keep_until, " + until + ") WHERE number = " +
		strconv.FormatInt(op.EntryNumber, 10) + " AND @hg_g = 1 AND ")
	entryOf(b, op.Cell)
	b.WriteByte(';')
}
