package mysql

import (
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/law"
)

// charset is the character set that every connection has.
const charset = "utf8mb4"

// readClock reads the server's clock after earlier statements have taken their locks. UTC_TIMESTAMP
// is the time at which the statement began. On a Galera node it is the time at which a text of
// several statements began, so readClock adds the time that has passed since then. Without that, a
// charge that waited more than two seconds for its row would set the cell back in time, and the cell
// would forget what was charged in between. SYSDATE and NOW follow daylight saving time and
// UTC_TIMESTAMP does not, hence the bounds. The time is negative if the clock was set back meanwhile.
const (
	readClock = "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + IF(" + sinceBegun +
		" BETWEEN -1790000000 AND 1790000000, " + sinceBegun + ", 0))"
	sinceBegun = "TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6))"
)

// strictTransaction is set in a transaction in which error 1020 would undo
// all of it. refuseStrict is the statement that reports it.
const (
	strictTransaction = "transaction: SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED first, or " +
		"innodb_snapshot_isolation may undo all of it"

	refuseStrict = "BEGIN NOT ATOMIC IF @@innodb_snapshot_isolation AND @@tx_isolation IN ('REPEATABLE-READ', " +
		"'SERIALIZABLE') THEN " +
		"SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '" + strictTransaction + "'; END IF; END;"
)

// modes are those that give the text of a batch another meaning: it would charge,
// and its answer could not be read.
var modes = []string{"ORACLE", "EMPTY_STRING_IS_NULL", "SIMULTANEOUS_ASSIGNMENT"}

// guard is a statement that fails (errOutOfRange) where the session will not do: BIGINT
// overflows where the condition holds. It costs a fourth of what setting the variables
// of the laws does. (DO would not say that it failed.)
var guard = func() string {
	var b strings.Builder
	b.WriteString("SET @hg_s = 9223372036854775807 + (")
	for _, mode := range modes {
		b.WriteString("@@sql_mode LIKE '%" + mode + "%' OR ")
	}
	b.WriteString("@@character_set_client <> '" + charset + "' OR @@character_set_connection <> '" + charset +
		"' OR @@character_set_results <> '" + charset + "');")
	return b.String()
}()

// literal writes a string as a hexadecimal literal. No value is ever quoted: what is
// the caller's is written in this form, and a statement has no arguments; or it is
// an argument of a statement that is prepared by the protocol: see askOne. So nothing
// can be injected, whatever the session's character set and sql_mode are, and whatever
// options the pool has.
func literal(b *strings.Builder, s string) {
	const digits = "0123456789abcdef"
	b.WriteString("x'")
	for i := range len(s) {
		b.WriteByte(digits[s[i]>>4])
		b.WriteByte(digits[s[i]&15])
	}
	b.WriteByte('\'')
}

// cellColumns are a cell's, and cellFields where to read them to.
const cellColumns = "limit_name,cell_key,law,level,prev,at,unit,step,empty_at,blocked_until,reason"

func cellFields(limit, key any, st *law.State, reason any) []any {
	return []any{
		limit, key, &st.Kind, &st.Level, &st.Prev, &st.At, &st.Unit, &st.Step, &st.EmptyAt, &st.BlockedUntil, reason,
	}
}

// quoted returns a string as a hexadecimal literal.
func quoted(s string) string {
	var b strings.Builder
	b.Grow(3 + 2*len(s))
	literal(&b, s)
	return b.String()
}

// quotedText returns a string as a literal of text. The server refuses one that is
// not valid.
func quotedText(s string) string { return "_" + charset + " " + quoted(s) }

// join writes head before the first part of a list, and between before each other one. n counts the parts.
func join(b *strings.Builder, n *int, head, between string) {
	if *n++; *n > 1 {
		head = between
	}
	b.WriteString(head)
}

// literals writes the names of a cell, with a comma between them.
func literals(b *strings.Builder, c law.Cell) {
	literal(b, c.Limit)
	b.WriteByte(',')
	literal(b, c.Key)
}

// whereCell writes the condition that a row is one of a cell.
func whereCell(b *strings.Builder, c law.Cell) {
	b.WriteString("limit_name = ")
	literal(b, c.Limit)
	b.WriteString(" AND cell_key = ")
	literal(b, c.Key)
}

// afterCell compares (limit_name, cell_key) with the names of a cell, in a form for which MariaDB uses the primary key.
func afterCell(c law.Cell) string {
	limit := quoted(c.Limit)
	return "(limit_name > " + limit + " OR limit_name = " + limit + " AND cell_key > " + quoted(c.Key) + ")"
}

// sweepSlack is how long a cell has been empty when a sweep removes it, or its entries. A transaction that has
// found no row inserts one within a second, when its session would end, or as long as it waits for others; by
// then nobody may have made, emptied and swept the cell. A batch that
// makes the cell again may have read the clock before, see madeWithin; and one that has the cell
// locked may still be about to read the entries, which it would miss.
const sweepSlack = 3 * time.Second

// clusterSlack is how long the cell has been empty when a sweep of a cluster removes its entries. A node may show
// a cell as it was before another one charged it, and an entry that it removes is in no conflict with that
// charge: the entry would count for as long as the key is in use. A node that is further behind is out of the
// cluster.
const clusterSlack = time.Minute

// emptied returns the condition under which a cell has been empty for long enough for a sweep.
func emptied(cell, now string, slack time.Duration) string {
	return cell + ".empty_at <= " + now + " - " + strconv.FormatInt(slack.Microseconds(), 10)
}

// isDead returns the condition under which a cell can be removed: it could refuse nobody, has no entries, and nothing
// is remembered of it. Its row is looked at under its lock.
func isDead(cell, now string) string {
	of := func(table string) string {
		return " AND NOT EXISTS (SELECT 1 FROM " + table + " r WHERE r.limit_name = " + cell +
			".limit_name AND r.cell_key = " + cell + ".cell_key"
	}
	return emptied(cell, now, sweepSlack) + " AND " + cell + ".blocked_until <= " + now +
		of("headgate_entries") + ")" + of("headgate_admissions") + " AND r.keep_until > " + now + ")"
}
