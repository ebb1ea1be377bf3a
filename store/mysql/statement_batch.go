package mysql

import (
	"strings"
)

// site is where a batch is carried out.
type site struct {
	own       bool // a transaction of its own is begun and ended
	foreign   bool // the connection is of the caller's
	galera    bool // the server is a node of a cluster
	group     bool // the server is a member of a Group Replication
	snapshots bool // it has innodb_snapshot_isolation
	values    bool // the server knows lists of values: MariaDB
	parts     bool // requests that are settled may have been extended: see sendText
}

// saved tells whether a batch is undone to a savepoint. In a transaction of the caller's,
// a member of a Group Replication gets none. Where the group has rolled that transaction
// back in favour of another node's, any statement that reads or writes says so (1213),
// but SAVEPOINT begins another transaction without an error, and the COMMIT sends the
// statements of both to the other nodes. Seen on MySQL 9.7: 26 of 25 admitted.
func (at *site) saved() bool { return at.own || !at.group }

// text returns the batch as one text of many statements, in a transaction of its
// own or as part of the caller's.
func (p *plan) text(at site) string {
	p.parts, p.values = at.parts || !at.saved(), at.values
	var b strings.Builder
	b.Grow(8192 + 96*len(p.ops))
	p.prepare(&b, at)
	if !p.reads {
		p.begin(&b, at)
	}
	p.clock(&b)
	if p.plain != nil {
		p.decidePlain(&b)
	} else {
		for i := range p.runs {
			p.decide(&b, &p.runs[i])
			p.log(&b, &p.runs[i])
			b.WriteString("SET @hg_out = CONCAT(@hg_out, @hg_r), @hg_r = CAST('' AS BINARY);")
		}
	}
	if p.corrects() {
		p.unmake(&b)
	}
	if !p.reads {
		at.end(&b)
	}
	p.answer(&b)
	return b.String()
}

// corrects tells whether charges are corrected, or extended, which makes no cell either.
func (p *plan) corrects() bool {
	return p.has(func(s *shape) bool { return s.Return || s.Settle || s.Renew || s.Extend })
}

// prepare writes what comes before the transaction: what fails where the session will
// not do, and the variables of the laws.
//
// On a server that has innodb_snapshot_isolation, a transaction of the caller's that
// it would undo (error 1020) is refused first of all.
func (p *plan) prepare(b *strings.Builder, at site) {
	if at.snapshots && !at.own && !p.reads {
		b.WriteString(refuseStrict)
	}
	b.WriteString(variables()) // of them @hg_end tells, after an error, that the COMMIT had not begun
	if at.foreign {
		b.WriteString(guard)
	}
	if p.corrects() {
		b.WriteString(moreVariables())
	}
	if p.has(func(s *shape) bool { return s.Once || s.Settle || s.Renew || s.Extend }) {
		b.WriteString(nameVariables())
	}
}

// begin writes how the transaction begins, or a part of the caller's, and what locks the
// cells.
//
// A Galera node whose transaction lost against another node's rolls it back,
// and may then repeat the statement under way by itself, outside of any
// transaction, so that the rest of the text goes on as if nothing had been:
// measured with two writers, 11 of 10 admitted. So it is told not to, and
// autocommit is off, so that nothing is ever outside of one. Should a
// transaction end unseen, its savepoint is gone, and to release that is an
// error, which stops the text before anything is committed.
func (p *plan) begin(b *strings.Builder, at site) {
	if at.galera {
		b.WriteString("SET SESSION wsrep_retry_autocommit = 0;")
		if at.own {
			b.WriteString("SET autocommit = 0;")
		}
	}
	if at.own {
		b.WriteString("SET TRANSACTION ISOLATION LEVEL READ COMMITTED;START TRANSACTION;")
	}
	if at.saved() {
		b.WriteString("SAVEPOINT headgate;")
	}
	if p.plain == nil {
		p.lock(b)
	}
}

// end writes how the transaction ends.
func (at *site) end(b *strings.Builder) {
	if at.saved() {
		b.WriteString("RELEASE SAVEPOINT headgate;")
	}
	if at.own {
		b.WriteString("SET @hg_end = 1;COMMIT;")
	}
	if at.own && at.galera {
		b.WriteString("SET autocommit = 1;")
	}
}

// answer writes the last statement, whose result is read.
func (p *plan) answer(b *strings.Builder) {
	if p.plain != nil {
		b.WriteString("SELECT @hg_r, @hg_plain")
	} else {
		b.WriteString("SELECT @hg_out, @hg_entries")
	}
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
		literals(b, c)
		b.WriteByte(')')
	}
	b.WriteString(" ON DUPLICATE KEY UPDATE law = headgate_cells.law;")
}

// clock writes what reads the clock after the locks. The decisions about plain cells are timed by the difference to the
// local clock, so that one statement reads both.
func (p *plan) clock(b *strings.Builder) {
	b.WriteString("DO @hg_clock := " + readClock)
	if p.plain != nil {
		b.WriteString(", @hg_local := " + localClock)
	}
	b.WriteByte(';')
}

// joinCells joins cells to the list of their names that stands before it. The join is
// forced onto the key: to look at the whole table would wait for the locks of others.
const joinCells = ") o STRAIGHT_JOIN headgate_cells c FORCE INDEX (PRIMARY) ON c.limit_name = o.l AND c.cell_key = o.k "

// unmake removes those rows that hold nothing and whose charges are only
// corrected, since that makes no cell unless it charges more.
func (p *plan) unmake(b *strings.Builder) {
	cells := p.onlyCorrected()
	if len(cells) == 0 {
		return
	}
	b.WriteString("DELETE c FROM (")
	for i, c := range cells {
		openRow(b, p.values, i)
		named(b, i, quoted(c.Limit), "l")
		named(b, i, ","+quoted(c.Key), "k")
		shutRow(b, p.values, i)
	}
	b.WriteString(joinCells + "WHERE c.law = 0;")
}
