package mysql

import (
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/law"
)

// charset is the character set that every connection has.
const charset = "utf8mb4"

// readClock reads the server's clock after earlier statements have taken their locks. UTC_TIMESTAMP is the time at
// which the statement began, and on a Galera node the time at which a text of several statements began. So readClock
// adds the time that has passed since then. Otherwise a charge that waited more than two seconds for its row would set
// the cell back in time, and the cell would forget the charges in between. SYSDATE and NOW follow daylight saving time
// and UTC_TIMESTAMP does not, hence the bounds. The added time is negative if the clock was set back meanwhile.
const (
	readClock = "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + IF(" + sinceBegun +
		" BETWEEN -1790000000 AND 1790000000, " + sinceBegun + ", 0))"
	sinceBegun = "TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6))"
)

// strictTransaction is the message about a transaction of the caller that error 1020 could undo as a whole.
// refuseStrict is the statement that fails with this message inside such a transaction.
const (
	strictTransaction = "transaction: SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED first, or " +
		"innodb_snapshot_isolation may undo all of it"

	refuseStrict = "BEGIN NOT ATOMIC IF @@innodb_snapshot_isolation AND @@tx_isolation IN ('REPEATABLE-READ', " +
		"'SERIALIZABLE') THEN " +
		"SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '" + strictTransaction + "'; END IF; END;"
)

// badModes are the sql_modes that change the meaning of a batch's text: it would charge, and give no readable answer.
var badModes = []string{"ORACLE", "EMPTY_STRING_IS_NULL", "SIMULTANEOUS_ASSIGNMENT"}

// guard is a statement that fails (errOutOfRange) if the session is wrong: the condition counts as 1, and BIGINT
// overflows. It costs a fourth of what it would cost to set the variables. (DO would not return the error.)
var guard = "SET @hg_s = 9223372036854775807 + (@@sql_mode LIKE '%" +
	strings.Join(badModes, "%' OR @@sql_mode LIKE '%") + "%' OR @@character_set_client <> '" + charset +
	"' OR @@character_set_connection <> '" + charset + "' OR @@character_set_results <> '" + charset + "');"

// writeLiteral writes a string as a hexadecimal literal. All values of the caller have this form, in statements without
// arguments, or are arguments of a statement that the protocol prepares: see sendSingle. No value is ever quoted. So
// nothing can be injected, whatever the session's character set and sql_mode and the pool's options are.
func writeLiteral(b *strings.Builder, s string) {
	const digits = "0123456789abcdef"
	b.WriteString("x'")
	for i := range len(s) {
		b.WriteByte(digits[s[i]>>4])
		b.WriteByte(digits[s[i]&15])
	}
	b.WriteByte('\'')
}

// cellColumns are the columns of a cell. cellFields returns pointers to what they are scanned into.
const cellColumns = "limit_name,cell_key,law,level,prev,at,unit,step,empty_at,blocked_until,reason"

func cellFields(limit, key any, st *law.State, reason any) []any {
	return []any{
		limit, key, &st.Kind, &st.Level, &st.Prev, &st.At, &st.Unit, &st.Step, &st.EmptyAt, &st.BlockedUntil, reason,
	}
}

// hexLiteral returns a string as a hexadecimal literal.
func hexLiteral(s string) string {
	var b strings.Builder
	b.Grow(3 + 2*len(s))
	writeLiteral(&b, s)
	return b.String()
}

// textLiteral returns a string as a literal of text. The server refuses invalid text.
func textLiteral(s string) string { return "_" + charset + " " + hexLiteral(s) }

// beginPart writes head before the first part of a list, and separator before each later part. n counts the parts.
func beginPart(b *strings.Builder, n *int, head, separator string) {
	if *n++; *n > 1 {
		head = separator
	}
	b.WriteString(head)
}

// writeCellNames writes the limit and the key of a cell as literals, with a comma between them.
func writeCellNames(b *strings.Builder, c law.Cell) {
	writeLiteral(b, c.Limit)
	b.WriteByte(',')
	writeLiteral(b, c.Key)
}

// cellCondition returns the condition that a row belongs to a cell.
func cellCondition(c law.Cell) string {
	return "limit_name = " + hexLiteral(c.Limit) + " AND cell_key = " + hexLiteral(c.Key)
}

// afterCell returns the condition that a row comes after a cell, in a form for which MariaDB uses the primary key.
func afterCell(c law.Cell) string {
	limit := hexLiteral(c.Limit)
	return "(limit_name > " + limit + " OR limit_name = " + limit + " AND cell_key > " + hexLiteral(c.Key) + ")"
}

// sweepSlack is how long a cell must be empty before a sweep removes it, or its entries. A transaction that has found
// no row inserts a row within a second, when its session would end, or when its wait for locks is over; until then the
// cell must not be made, emptied and swept by others. A batch that makes the cell again may have read the clock before,
// see madeWithin. And a batch that has locked the cell may still be about to read the entries, which it would miss.
const sweepSlack = 3 * time.Second

// clusterSlack is how long a cell must be empty before a sweep of a cluster removes its entries. A node may show a cell
// as it was before another node charged it, and the removal of an entry does not conflict with that charge: the level
// would include the entry for as long as the key is in use. A node that is further behind leaves the cluster.
const clusterSlack = time.Minute

// emptyCondition returns the condition under which a cell has been empty for longer than slack.
func emptyCondition(cell, now string, slack time.Duration) string {
	return cell + ".empty_at <= " + now + " - " + strconv.FormatInt(slack.Microseconds(), 10)
}

// deadCondition returns the condition under which a cell can be removed: it could refuse nobody, and has no entries and
// no receipts that count. It must be checked under the lock of the row.
func deadCondition(cell, now string) string {
	noRow := func(table string) string {
		return " AND NOT EXISTS (SELECT 1 FROM " + table + " r WHERE r.limit_name = " + cell +
			".limit_name AND r.cell_key = " + cell + ".cell_key"
	}
	return emptyCondition(cell, now, sweepSlack) + " AND " + cell + ".blocked_until <= " + now +
		noRow("headgate_entries") + ")" + noRow("headgate_admissions") + " AND r.keep_until > " + now + ")"
}
