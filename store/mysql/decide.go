package mysql

import (
	"strconv"
	"strings"
)

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
		b.WriteString("SET @hg_undo = CAST(REPEAT('0', " + strconv.Itoa(widths["undo"]) + " * " + strconv.Itoa(most) + ") AS BINARY);")
	}
	laws := r.shape
	laws.Rooms, laws.Guard = p.rooms, !p.rooms && (p.reads || p.plain != nil)
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
