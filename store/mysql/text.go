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
	group     bool // the server is a member of a Group Replication
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
// In a transaction of the caller's, a member of a Group Replication gets no savepoint.
// Where the group has rolled that transaction back in favour of another node's, any
// statement that reads or writes says so (1213), but SAVEPOINT begins another
// transaction without an error, and the COMMIT sends the statements of both to the
// other nodes. Seen on MySQL 9.7: 26 of 25 admitted.
//
// Keys are written as hexadecimal literals: see session.go.
//
// On a server that has innodb_snapshot_isolation, a transaction of the caller's that
// it would undo (error 1020) is refused first of all.
func (p *plan) text(at site) string {
	own, galera, saved := at.own, at.galera, at.own || !at.group
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
		if saved {
			b.WriteString("SAVEPOINT headgate;")
		}
		if p.plain == nil {
			p.lock(&b)
		}
	}
	locked := !p.reads && p.plain == nil
	b.WriteString("DO ")
	if locked && !p.rooms {
		b.WriteString("@hg_made := ROW_COUNT(), ")
	}
	b.WriteString("@hg_clock := " + readClock)
	if p.plain != nil { // by one statement, since the decisions are timed by the difference
		b.WriteString(", @hg_local := " + localClock)
	}
	b.WriteByte(';')
	if locked && !p.rooms {
		b.WriteString(guardRooms)
	}
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
		if saved {
			b.WriteString("RELEASE SAVEPOINT headgate;")
		}
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

// guardRooms fails where a row was made while a limit shares. There is nothing to read
// where none was, and no row that it would change: the sum is out of range.
const guardRooms = "UPDATE headgate_rooms FORCE INDEX (by_sharing) SET since = 9223372036854775807 + sharing WHERE @hg_made > 0 AND sharing = 1;"

// anySharing selects something if a limit shares a cell.
const anySharing = "SELECT 1 FROM headgate_rooms FORCE INDEX (by_sharing) WHERE sharing = 1"

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
