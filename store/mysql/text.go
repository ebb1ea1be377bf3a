package mysql

import (
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/law"
)

// readClock reads the server's clock in a statement of its own, so that it is
// read after the locks of the statements before it. UTC_TIMESTAMP knows no
// daylight saving, as SYSDATE and NOW do.
const readClock = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"

// site is where a batch is carried out.
type site struct {
	own       bool // a transaction of its own is begun and ended
	foreign   bool // the connection is of the caller's
	galera    bool // the server is a node of a cluster
	snapshots bool // it has innodb_snapshot_isolation
	full      bool // some limit may be: see room.go
}

// text returns the batch as one text of many statements, in a transaction of its
// own or as part of the caller's.
//
// A Galera node whose transaction lost against another node's rolls it back,
// and may then repeat the statement under way by itself, outside of any
// transaction, so that the rest of the text goes on as if nothing had been:
// measured with two writers, 11 of 10 admitted. So it is told not to, and
// autocommit is off, so that nothing is ever outside of one. Should a
// transaction end unseen, its savepoint is gone, and to release that is an
// error, which stops the text before anything is committed.
//
// Keys are written as hexadecimal literals: see session.go.
//
// On a server that has innodb_snapshot_isolation, a transaction of the caller's that
// it would undo (error 1020) is refused first of all.
func (p *plan) text(at site) string {
	own, galera := at.own, at.galera
	var b strings.Builder
	b.Grow(8192 + 96*len(p.ops))
	if at.snapshots && !own && !p.reads {
		b.WriteString(refuseStrict)
	}
	b.WriteString(variables()) // of them @hg_end tells, after an error, that the COMMIT had not begun
	if at.foreign {
		b.WriteString(guard)
	}
	if p.rooms = at.full; p.rooms {
		b.WriteString(roomVariables)
	}
	named := p.has(func(s *shape) bool { return s.Once || s.Settle || s.Renew })
	corrected := p.has(func(s *shape) bool { return s.Return || s.Settle || s.Renew })
	if corrected {
		b.WriteString(moreVariables())
	}
	if named {
		b.WriteString(nameVariables())
	}
	if !p.reads {
		if galera {
			b.WriteString("SET SESSION wsrep_retry_autocommit = 0;")
			if own {
				b.WriteString("SET autocommit = 0;")
			}
		}
		if own {
			b.WriteString("SET TRANSACTION ISOLATION LEVEL READ COMMITTED;START TRANSACTION;")
		}
		b.WriteString("SAVEPOINT headgate;")
		if p.plain == nil {
			p.lock(&b)
		}
	}
	b.WriteString("DO @hg_clock := " + readClock)
	if p.plain != nil { // by one statement, since the decisions are timed by the difference
		b.WriteString(", @hg_local := " + localClock)
	}
	b.WriteByte(';')
	answer := "@hg_out, @hg_entries"
	if p.plain != nil {
		answer = "@hg_r, @hg_plain"
		p.decidePlain(&b)
	} else {
		for i := range p.runs {
			p.decide(&b, &p.runs[i])
			p.log(&b, &p.runs[i])
			b.WriteString("SET @hg_out = CONCAT(@hg_out, @hg_r), @hg_r = CAST('' AS BINARY);")
		}
	}
	if corrected {
		p.unmake(&b)
	}
	if p.rooms && !p.reads {
		p.forget(&b)
	}
	if !p.reads {
		b.WriteString("RELEASE SAVEPOINT headgate;")
		if own {
			b.WriteString("SET @hg_end = 1;COMMIT;")
		}
		if own && galera {
			b.WriteString("SET autocommit = 1;")
		}
	}
	b.WriteString("SELECT " + answer)
	if p.rooms {
		b.WriteString(", EXISTS(" + anySharing + ")")
	}
	return b.String()
}

// anySharing selects something if a limit shares a cell.
const anySharing = "SELECT 1 FROM headgate_rooms WHERE sharing = 1"

// forget removes the rows of cells that were missing and are not to be made, since
// their limit shares, and those of shared cells whose period is over.
func (p *plan) forget(b *strings.Builder) {
	cells := p.cells
	if p.plain != nil {
		for _, row := range p.runs[0].rows {
			cells = append(cells, p.ops[row.op].Cell)
		}
	}
	var d strings.Builder
	d.WriteString("DELETE c FROM (")
	for i, c := range cells {
		if i > 0 {
			d.WriteString(" UNION ALL ")
		}
		d.WriteString("SELECT ")
		literal(&d, c.Limit)
		d.WriteString(" AS l,")
		literal(&d, c.Key)
		d.WriteString(" AS k," + strconv.FormatInt(law.Generation(c), 10) + " AS g")
	}
	d.WriteString(") o STRAIGHT_JOIN headgate_cells c FORCE INDEX (PRIMARY) ON c.limit_name = o.l AND c.cell_key = o.k LEFT JOIN headgate_rooms r ON r.limit_name = o.l " +
		"WHERE c.law = 0 AND IF(o.g = 0, COALESCE(r.sharing, 0) = 1, r.sharing IS NULL OR r.sharing = 0 OR r.generation <> o.g)")
	if p.plain == nil {
		b.WriteString(d.String() + ";")
		return
	}
	b.WriteString("SET @hg_s = IF(@hg_count = " + strconv.Itoa(len(p.ops)) + ", 'DO 0', '" + strings.ReplaceAll(d.String(), "'", "''") + "');" + executeText)
}

// lock locks the cells in order, and makes those that are missing. A row that
// is there is locked by the attempt to insert it; a SELECT .. FOR UPDATE would
// find nothing to lock on the first use of a key.
func (p *plan) lock(b *strings.Builder) {
	b.WriteString("INSERT INTO headgate_cells (limit_name, cell_key) VALUES ")
	for i, c := range p.cells {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('(')
		literal(b, c.Limit)
		b.WriteByte(',')
		literal(b, c.Key)
		b.WriteByte(')')
	}
	b.WriteString(" ON DUPLICATE KEY UPDATE law = headgate_cells.law;")
}

// unmake removes those rows that hold nothing and whose charges are only
// corrected, since that makes no cell unless it charges more. The join is forced
// onto the key: to look at the whole table would wait for the locks of others.
func (p *plan) unmake(b *strings.Builder) {
	cells := slices.DeleteFunc(p.onlyCorrected(), law.IsShared)
	if len(cells) == 0 {
		return
	}
	b.WriteString("DELETE c FROM (")
	for i, c := range cells {
		if i > 0 {
			b.WriteString(" UNION ALL ")
		}
		b.WriteString("SELECT ")
		literal(b, c.Limit)
		b.WriteString(" AS l,")
		literal(b, c.Key)
		b.WriteString(" AS k")
	}
	b.WriteString(") o STRAIGHT_JOIN headgate_cells c FORCE INDEX (PRIMARY) ON c.limit_name = o.l AND c.cell_key = o.k WHERE c.law = 0;")
}

// decide writes the statement that decides a run. What all rows have in common
// stands in it as a literal. What differs is brought along by the rows that it
// attempts to insert, or is a column of a list o.
func (p *plan) decide(b *strings.Builder, r *run) {
	var common, each [params]int64
	var varies [params]bool
	var limits, keys, notes, ids bool
	head := &p.ops[r.rows[0].op]
	common = p.numbers(r.rows[0])
	for _, row := range r.rows[1:] {
		op := &p.ops[row.op]
		limits = limits || op.Cell.Limit != head.Cell.Limit
		keys = keys || op.Cell.Key != head.Cell.Key
		notes = notes || r.shape.Block && op.Reason != head.Reason
		ids = ids || (r.shape.Put || r.shape.IDs) && op.ID != head.ID
		each = p.numbers(row)
		for i := range each {
			varies[i] = varies[i] || each[i] != common[i]
		}
	}
	varying := 0
	for _, v := range varies {
		if v {
			varying++
		}
	}
	// The cells are there, so none of these rows is inserted. What they bring
	// along is not known in a query within the laws: that of the return rule, and
	// those for an ID or a lease.
	var brings map[string]string
	free := [...]string{"level", "prev", "at", "empty_at", "blocked_until", "unit"}
	queried := r.shape.Return && r.shape.Log || r.shape.IDs || r.shape.Renew
	if !p.reads && p.plain == nil && varying <= len(free) && (!notes || !ids) && !queried {
		brings = map[string]string{"l": "limit_name", "k": "cell_key", "note": "reason", "id": "reason"}
		for i, name := range paramNames {
			if varies[i] {
				varying--
				brings[name] = free[varying]
			}
		}
	}
	differing := func(name string) string {
		if brings != nil {
			return "VALUES(" + brings[name] + ")"
		}
		return "o." + name
	}
	text := func(differs bool, name, value string) string {
		if differs {
			return differing(name)
		}
		var t strings.Builder
		literal(&t, value)
		return t.String()
	}
	limit, key := text(limits, "l", head.Cell.Limit), text(keys, "k", head.Cell.Key)
	param := func(i int) string {
		switch {
		case i == pID:
			return text(ids, "id", head.ID)
		case varies[i]:
			return differing(paramNames[i])
		}
		return strconv.FormatInt(common[i], 10)
	}
	list := func() {
		for i, row := range r.rows {
			op, sep := &p.ops[row.op], "SELECT "
			if i > 0 {
				sep = " UNION ALL SELECT "
			}
			name := func(s string) {
				if i == 0 {
					b.WriteString(" AS " + s)
				}
				sep = ","
			}
			field := func(differs bool, s, value string) {
				if differs {
					b.WriteString(sep)
					literal(b, value)
					name(s)
				}
			}
			b.WriteString(sep)
			b.WriteString(strconv.Itoa(i))
			name("n")
			field(limits, "l", op.Cell.Limit)
			field(keys, "k", op.Cell.Key)
			field(notes, "note", op.Reason)
			field(ids, "id", op.ID)
			numbers := p.numbers(row)
			for n := range numbers {
				if varies[n] {
					b.WriteString(sep)
					b.WriteString(strconv.FormatInt(numbers[n], 10))
					name(paramNames[n])
				}
			}
		}
	}
	if r.shape.Groups || r.shape.Once {
		most := 0
		for _, row := range r.rows {
			most = max(most, row.size)
		}
		b.WriteString("SET @hg_undo = CAST(REPEAT('0', 289 * " + strconv.Itoa(most) + ") AS BINARY);")
	}
	laws := r.shape
	laws.Rooms = p.rooms
	seq := sequenceOf(laws)
	assign := func(column func(string) string) {
		if r.shape.Only() {
			b.WriteString("GREATEST(0, ")
		}
		seq.render(b, column, param)
		if r.shape.Only() {
			b.WriteByte(')')
		}
	}
	if p.reads {
		b.WriteString("SELECT LENGTH(")
		assign(func(name string) string {
			switch name {
			case "limit_name":
				return limit
			case "cell_key":
				return key
			}
			return "COALESCE(c." + name + ", 0)"
		})
		b.WriteString(") FROM (")
		list()
		b.WriteString(") o LEFT JOIN headgate_cells c ON c.limit_name = " + limit + " AND c.cell_key = " + key + ";")
		return
	}
	if brings != nil {
		p.values(b, r, brings, &varies, notes, ids)
	} else {
		b.WriteString("INSERT INTO headgate_cells (limit_name, cell_key) SELECT " + limit + ", " + key + " FROM (")
		list()
		b.WriteString(") o")
	}
	column := func(name string) string { return "headgate_cells." + name }
	if p.plain != nil {
		b.WriteString(" WHERE LOCATE(CONCAT(';', o.n, ','), @hg_plain) = 0")
		column = func(name string) string {
			switch name {
			case "law", "limit_name", "cell_key":
				return "headgate_cells." + name
			}
			return "IF(headgate_cells.law = 0, 0, headgate_cells." + name + ")"
		}
	}
	b.WriteString(" ON DUPLICATE KEY UPDATE law = IF(")
	assign(column)
	b.WriteString(" < 0, 0, @hg_law)," + save + "reason = ")
	if r.shape.Block {
		b.WriteString("IF(" + param(pPass) + " = 5, IF(" + param(pTTL) + " > 0, " + text(notes, "note", head.Reason) + ", ''), IF(@hg_block <> headgate_cells.blocked_until, '', headgate_cells.reason))")
	} else {
		b.WriteString("IF(@hg_block <> headgate_cells.blocked_until, '', headgate_cells.reason)")
	}
	b.WriteString(", blocked_until = @hg_block;")
}

// values writes the head of a statement whose rows bring along, in columns, what
// differs between them.
func (p *plan) values(b *strings.Builder, r *run, brings map[string]string, varies *[params]bool, notes, ids bool) {
	b.WriteString("INSERT INTO headgate_cells (limit_name, cell_key")
	var brought []int
	for i, v := range varies {
		if v {
			brought = append(brought, i)
			b.WriteString(", " + brings[paramNames[i]])
		}
	}
	if notes || ids {
		b.WriteString(", reason")
	}
	b.WriteString(") VALUES ")
	var buf []byte
	for i, row := range r.rows {
		op := &p.ops[row.op]
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('(')
		literal(b, op.Cell.Limit)
		b.WriteByte(',')
		literal(b, op.Cell.Key)
		if len(brought) > 0 {
			numbers := p.numbers(row)
			for _, n := range brought {
				buf = strconv.AppendInt(append(buf[:0], ','), numbers[n], 10)
				b.Write(buf)
			}
		}
		switch {
		case notes:
			b.WriteByte(',')
			literal(b, op.Reason)
		case ids:
			b.WriteByte(',')
			literal(b, op.ID)
		}
		b.WriteByte(')')
	}
}

// save are the columns after law, which has done the work, and before the
// reason of a block, which goes when the block changes.
const save = " level = @hg_level, prev = @hg_prev, at = @hg_at, unit = @hg_unit, step = @hg_step, empty_at = @hg_empty, "

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
			lower(b, op, strconv.FormatInt(op.Entry, 10))
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
