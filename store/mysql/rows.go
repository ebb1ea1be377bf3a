package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/internal/rows"
)

// The general way decides a batch by rows: one transaction of two texts. The first text locks and reads the rows of all
// cells, in their order, then the clock and what the laws need. Package law decides in this process. The second text
// writes the changes, and commits.
//
// The second text writes absolute values, so it must fail if the transaction has ended in between. Therefore autocommit
// is off, and the second text releases, right before its COMMIT, a savepoint that the first text has set: if the
// savepoint is gone, the release fails. Without it two writers on a Galera cluster have admitted 504 of 500.
//
// A missing row is not locked. The second text inserts it, and fails if somebody else has inserted it since; then the
// batch is decided again. A cell that was made and swept in between would go unnoticed: hence sweepSlack.
//
// A process that stops between the texts would hold its rows for ever, so on a connection that Open has made the server
// ends the session after a second.

// rowBatch is a batch that is decided by rows, on one connection. It implements rows.Reader.
type rowBatch struct {
	*rows.Batch
	ctx context.Context
	ops []law.Op
	db  querier
	// lockClause ends each read that follows the locks. In the caller's transaction it is FOR UPDATE: without it the
	// read might see an older snapshot. Else it is empty.
	lockClause string

	clock    int64
	receipts map[receiptKey]law.Receipt
	entries  map[int64]entry // by number; the zero entry if it does not count
	sums     map[law.Cell]span
	queues   map[law.Cell]*queue

	resultReaders []func(*sql.Rows) error // each reads a row of one result of the first text
	readsByID     bool                    // a resultReader reads the entries of earlier requests by their ids
}

// receiptKey identifies the receipt of a request in a cell.
type receiptKey struct {
	cell law.Cell
	id   string
}

// entry is an entry of a log that counts.
type entry struct {
	cell               law.Cell
	credits, expiresAt int64
}

// span is a range of expiry times, with the sum of the credits in it.
type span struct{ after, upto, sum int64 }

// queue has the first entries of a log that expire later than after, in the order of expiry. Freed uses it.
type queue struct {
	after    int64
	entries  []entry
	complete bool // the log has no more entries
}

// applyRows decides a batch by rows, and repeats that while it conflicts with others. After an error outs is cleared.
func (s *Store) applyRows(ctx context.Context, n *node, ops []law.Op, outs []law.Outcome) error {
	err := s.retry(ctx, n, func(n *node) error {
		for races := 0; ; races++ {
			err := s.applyRowsOnce(ctx, n, ops, outs)
			if !raced.in(err) || races == maxRaces {
				return err
			}
		}
	})
	if err == nil {
		return nil
	}
	clear(outs)
	if lockWait.in(err) {
		return s.applyFree(ctx, n, ops, outs)
	}
	return classify(fmt.Sprintf("apply %d ops", len(ops)), err)
}

// maxRaces is how often a batch is decided again without a pause after others made its cells first.
const maxRaces = 10

// applyRowsOnce makes one attempt to decide a batch by rows.
func (s *Store) applyRowsOnce(ctx context.Context, n *node, ops []law.Op, outs []law.Outcome) error {
	rb := &rowBatch{ctx: ctx, ops: ops}
	rb.Batch = rows.New(ops, rb)
	if len(rb.Cells) == 0 { // no group is valid
		return rb.Decide(outs, 0)
	}
	checksOnly := onlyChecks(ops)
	if s.tx != nil {
		return s.applyRowsInTx(rb, checksOnly, outs)
	}
	conn, err := n.db.Conn(ctx)
	if err != nil {
		return notSent.wrap(err)
	}
	defer conn.Close()
	rb.db = conn
	if checksOnly {
		return markNothingDone(s.explain(ctx, conn, rb.decide(s.beginText(checksOnly), outs)))
	}
	var before *string // the membership of the Galera cluster; nil: there is none
	if s.galera.Load() {
		if before, err = n.view.cachedOrRead(ctx, conn); err != nil {
			return notSent.wrap(err)
		}
	}
	if err = rb.decide(s.beginText(checksOnly), outs); err != nil {
		err = s.explain(ctx, conn, err)
		_, _ = rollBack(ctx, conn, s.restoreText())
		if number, _ := numberOf(err); number == errLockWait && store.PassesHeld(ctx) && len(rb.Cells) > 1 {
			return lockWait.wrap(err)
		}
		return markNothingDone(err)
	}
	text, hasChanges := rb.changes()
	if !hasChanges {
		_, _ = rollBack(ctx, conn, s.restoreText()) // only refusals, which charge nothing
		return nil
	}
	err = rb.write(outs, text+s.commitText())
	if err == nil {
		return nil
	}
	commitBegun, rollbackErr := rollBack(ctx, conn, s.restoreText())
	number, _ := numberOf(err)
	// No COMMIT fails because of a duplicate row; a Galera node may fail at the ROLLBACK after a duplicate.
	if rollbackErr == nil && !commitBegun || number == errDuplicate {
		return markWriteError(err)
	}
	if before != nil {
		viewCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
		err = n.view.markUnsure(viewCtx, n.db, before, err)
		cancel()
	}
	return err
}

// decide sends the first text, of which begin is the first part, and has package law decide.
func (rb *rowBatch) decide(begin string, outs []law.Outcome) error {
	if err := rb.read(rb.lockText(begin)); err != nil {
		return err
	}
	return rb.Decide(outs, rb.clock)
}

// applyRowsInTx decides a batch as a part of the caller's transaction.
func (s *Store) applyRowsInTx(rb *rowBatch, checksOnly bool, outs []law.Outcome) error {
	undoCtx := context.WithoutCancel(rb.ctx)
	rb.db, rb.lockClause = s.tx, " FOR UPDATE"
	err := rb.decide(s.beginText(checksOnly), outs)
	switch {
	case err != nil:
		err = undone.wrap(s.explain(rb.ctx, s.tx, err)) // the transaction has committed nothing yet
	case checksOnly:
		return nil
	default:
		text, _ := rb.changes()
		if !s.groupRepl.Load() { // fail if the transaction has ended: with autocommit, the writes would stay
			text = "RELEASE SAVEPOINT headgate;SAVEPOINT headgate;" + text
		}
		if err = rb.write(outs, text+s.commitText()); err == nil {
			return nil
		}
		err = markWriteError(err)
		if s.groupRepl.Load() { // without a savepoint, nothing else keeps the caller from committing half a batch
			_, _ = s.tx.ExecContext(undoCtx, "KILL CONNECTION_ID()")
		}
	}
	if !s.groupRepl.Load() && !checksOnly {
		_, _ = s.tx.ExecContext(undoCtx, "ROLLBACK TO SAVEPOINT headgate")
		if s.galera.Load() {
			_, _ = s.tx.ExecContext(undoCtx, "SET wsrep_retry_autocommit=@hg_again")
		}
	}
	return err
}

// markWriteError marks the error of a second text that was undone, as raced or as undone.
func markWriteError(err error) error {
	if number, _ := numberOf(err); number == errDuplicate {
		return raced.wrap(err)
	}
	return undone.wrap(err)
}

// beginText returns the statements that begin the transaction, or this store's part of the caller's transaction. Checks
// have no transaction.
//
// In a transaction of the caller, a member of a Group Replication gets no savepoint. If the group has rolled the
// transaction back in favour of another node's, any statement that reads or writes fails (1213). But SAVEPOINT begins
// another transaction without an error, and the COMMIT sends the statements of both to the other nodes. Seen on
// MySQL 9.7: 26 of 25 admitted.
//
// A Galera node may by itself repeat a statement whose transaction lost against another node's, so this is turned off.
// It may also show rows as they were before another node wrote them. A decision by such rows fails at its COMMIT, but a
// refusal has no COMMIT. So in a transaction of the driver's own a node first catches up. Without that, a request that
// another node had just admitted was unknown, and a reset found no cell.
func (s *Store) beginText(checksOnly bool) (text string) {
	if !s.ownPools {
		text = guard
	}
	switch {
	case checksOnly:
		return text
	case s.tx != nil:
		if s.snapshotIsolation.Load() {
			text = refuseStrict + text
		}
		if s.groupRepl.Load() {
			return text
		}
		if s.galera.Load() {
			text += "SET @hg_again=@@wsrep_retry_autocommit,wsrep_retry_autocommit=0;"
		}
		return text + "SAVEPOINT headgate;"
	}
	if !s.ownPools { // Open has set it on its own connections
		text += "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;"
	}
	text += "SET @hg_end=0,@hg_auto=@@autocommit,autocommit=0"
	if s.ownPools {
		text += ",@hg_idle=@@wait_timeout,wait_timeout=1,@hg_lock=@@innodb_lock_wait_timeout,innodb_lock_wait_timeout=1"
	}
	if s.galera.Load() {
		text += ",@hg_again=@@wsrep_retry_autocommit,wsrep_retry_autocommit=0," +
			"@hg_sync=@@wsrep_sync_wait,wsrep_sync_wait=1;START TRANSACTION" // SAVEPOINT and what follows do not wait
	}
	return text + ";SAVEPOINT headgate;"
}

// commitText returns the statements that end the transaction. After an error, @hg_end is 1 if the COMMIT had begun.
func (s *Store) commitText() string {
	switch {
	case s.tx == nil:
		return "RELEASE SAVEPOINT headgate;SET @hg_end=1;COMMIT;" + s.restoreText()
	case s.groupRepl.Load():
		return ""
	case s.galera.Load():
		return "RELEASE SAVEPOINT headgate;SET wsrep_retry_autocommit=@hg_again"
	}
	return "RELEASE SAVEPOINT headgate"
}

// restoreText returns the statement that restores the session's variables, which beginText has changed.
func (s *Store) restoreText() string {
	text := "SET autocommit=@hg_auto"
	if s.ownPools {
		text += ",wait_timeout=@hg_idle,innodb_lock_wait_timeout=@hg_lock"
	}
	if s.galera.Load() {
		text += ",wsrep_retry_autocommit=@hg_again,wsrep_sync_wait=@hg_sync"
	}
	return text + ";"
}

// rollBack ends a transaction that has failed or has changed nothing, and reports whether its COMMIT had
// begun. A connection that may still be in the transaction does not go back to the pool.
func rollBack(ctx context.Context, conn *sql.Conn, restore string) (commitBegun bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
	defer cancel()
	var end sql.NullInt64
	if err = conn.QueryRowContext(ctx, "ROLLBACK;"+restore+"SELECT @hg_end").Scan(&end); err != nil {
		_ = conn.Raw(func(any) error { return errBadConn })
	}
	return end.Int64 != 0, err
}

// answerTimeout is how long to wait for an answer at most, also for a caller without a deadline. If a text of several
// statements is killed between two of them (KILL QUERY), MySQL sends nothing more, though it has announced a result.
const answerTimeout = time.Minute

// onlyChecks reports whether all ops are checks.
func onlyChecks(ops []law.Op) bool {
	return !slices.ContainsFunc(ops, func(op law.Op) bool { return op.Verb != law.Check })
}
