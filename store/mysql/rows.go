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

// The general way decides a batch by rows: one transaction of two texts. The first locks the rows of
// all cells, in their order, and reads them, then the clock, and what the laws will ask for. Package
// law decides here. The second text writes what has changed, and commits.
//
// The second text writes absolute values, so it must not be carried out after the transaction has
// ended in between. Therefore autocommit is off, and the second text releases, right before its
// COMMIT, a savepoint that the first has set: without that it fails. Without the savepoint two writers
// on a Galera cluster have admitted 504 of 500.
//
// A row that is missing is not locked. It is inserted by the second text, which fails if somebody else
// has inserted it since, and the batch is decided again. A cell that was made and swept in between
// would not be noticed: hence sweepSlack.
//
// A process that stops between the texts would hold its rows for ever. The server ends the session of
// a connection that Open has made after a second.

// flight is a batch that is decided by rows, on one connection. It implements rows.Reader.
type flight struct {
	*rows.Batch
	ctx   context.Context
	ops   []law.Op
	on    querier
	locks string // what a read after the locks ends with, so that it is not of an older snapshot

	clock    int64
	receipts map[admission]law.Receipt
	entries  map[int64]entry // those that count; a zero entry does not
	sums     map[law.Cell]span
	queues   map[law.Cell]*queue

	steps   []func(*sql.Rows) error // they take the rows of each result of the first text
	charged bool                    // one of them is about the entries in which requests were charged
}

// admission names what a cell remembers of a request.
type admission struct {
	cell law.Cell
	id   string
}

// entry is an entry of a log that counts.
type entry struct {
	cell               law.Cell
	credits, expiresAt int64
}

// span is a range of expiry times, with the sum.
type span struct{ after, upto, sum int64 }

// queue are the first entries of a log that expire after a time, in the order in which they do.
type queue struct {
	after   int64
	entries []entry
	all     bool
}

// applyRows decides a batch by rows.
func (s *Store) applyRows(ctx context.Context, n *node, ops []law.Op, outs []law.Outcome) error {
	err := s.retry(ctx, n, func(n *node) error {
		for tries := 0; ; tries++ {
			err := s.fly(ctx, n, ops, outs)
			if !raced.on(err) || tries == maxRaces {
				return err
			}
		}
	})
	if err == nil {
		return nil
	}
	clear(outs)
	if lockWait.on(err) {
		return s.applyFree(ctx, n, ops, outs)
	}
	return classify(fmt.Sprintf("apply %d ops", len(ops)), err)
}

// maxRaces is how often a batch is decided again at once because others made its cells first.
const maxRaces = 10

// fly decides a batch by rows once.
func (s *Store) fly(ctx context.Context, n *node, ops []law.Op, outs []law.Outcome) error {
	f := &flight{ctx: ctx, ops: ops}
	f.Batch = rows.New(ops, f)
	if len(f.Cells) == 0 { // nothing is valid
		return f.Decide(outs, 0)
	}
	only := onlyChecks(ops)
	if s.tx != nil {
		return s.flyInTx(f, only, outs)
	}
	conn, err := n.db.Conn(ctx)
	if err != nil {
		return notSent.of(err)
	}
	defer conn.Close()
	f.on = conn
	if only {
		return nothingDone(s.because(ctx, conn, f.decide(s.begin(only), outs)))
	}
	var before *string // the membership of a cluster of Galera
	if s.galera.Load() {
		if before, err = n.view.before(ctx, conn); err != nil {
			return notSent.of(err)
		}
	}
	if err = f.decide(s.begin(only), outs); err != nil {
		err = s.because(ctx, conn, err)
		_, _ = abandon(ctx, conn, s.restore())
		if number, _ := numberOf(err); number == errLockWait && store.PassesHeld(ctx) && len(f.Cells) > 1 {
			return lockWait.of(err)
		}
		return nothingDone(err)
	}
	text, wrote := f.changes()
	if !wrote {
		_, _ = abandon(ctx, conn, s.restore()) // only refusals, which charge nothing
		return nil
	}
	err = f.write(outs, text+s.commit())
	if err == nil {
		return nil
	}
	ended, undo := abandon(ctx, conn, s.restore())
	number, _ := numberOf(err)
	// No COMMIT says that a row is a duplicate; a Galera node may fail at the ROLLBACK after it.
	if undo == nil && !ended || number == errDuplicate {
		return writeError(err)
	}
	if before != nil {
		look, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		err = n.view.doubt(look, n.db, before, err)
		cancel()
	}
	return err
}

// decide sends the first text, and decides.
func (f *flight) decide(begin string, outs []law.Outcome) error {
	if err := f.read(f.lockText(begin)); err != nil {
		return err
	}
	return f.Decide(outs, f.clock)
}

// flyInTx decides a batch as part of the caller's transaction.
func (s *Store) flyInTx(f *flight, only bool, outs []law.Outcome) error {
	undo := context.WithoutCancel(f.ctx)
	f.on, f.locks = s.tx, " FOR UPDATE"
	err := f.decide(s.begin(only), outs)
	switch {
	case err != nil:
		err = undone.of(s.because(f.ctx, s.tx, err)) // of that transaction nothing is committed yet
	case only:
		return nil
	default:
		text, _ := f.changes()
		if !s.group.Load() { // autocommit may be on: what is written after the transaction has ended would stay
			text = "RELEASE SAVEPOINT headgate;SAVEPOINT headgate;" + text
		}
		if err = f.write(outs, text+s.commit()); err == nil {
			return nil
		}
		err = writeError(err)
		if s.group.Load() { // half a batch must not be committed with what is the caller's
			_, _ = s.tx.ExecContext(undo, "KILL CONNECTION_ID()")
		}
	}
	if !s.group.Load() && !only {
		_, _ = s.tx.ExecContext(undo, "ROLLBACK TO SAVEPOINT headgate")
		if s.galera.Load() {
			_, _ = s.tx.ExecContext(undo, "SET wsrep_retry_autocommit=@hg_again")
		}
	}
	return err
}

// writeError returns the error of a second text of which nothing is left.
func writeError(err error) error {
	if number, _ := numberOf(err); number == errDuplicate {
		return raced.of(err)
	}
	return undone.of(err)
}

// begin writes how the transaction begins, or a part of the caller's.
//
// In a transaction of the caller's, a member of a Group Replication gets no savepoint. Where the group
// has rolled that transaction back in favour of another node's, any statement that reads or writes says
// so (1213), but SAVEPOINT begins another transaction without an error, and the COMMIT sends the
// statements of both to the other nodes. Seen on MySQL 9.7: 26 of 25 admitted.
//
// A Galera node may repeat by itself the statement under way when its transaction lost against another
// node's, so it is set not to. It may also show rows as they were before another node wrote them. What is
// decided by these fails at its COMMIT, but a refusal has none. So a node first catches up: a request that
// another node had just admitted was taken for unknown, and a reset found no cell.
func (s *Store) begin(only bool) (text string) {
	if !s.own {
		text = guard
	}
	switch {
	case only:
		return text
	case s.tx != nil:
		if s.snapshots.Load() {
			text = refuseStrict + text
		}
		if s.group.Load() {
			return text
		}
		if s.galera.Load() {
			text += "SET @hg_again=@@wsrep_retry_autocommit,wsrep_retry_autocommit=0;"
		}
		return text + "SAVEPOINT headgate;"
	}
	if !s.own { // a connection that Open has made has it
		text += "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;"
	}
	text += "SET @hg_end=0,@hg_auto=@@autocommit,autocommit=0"
	if s.own {
		text += ",@hg_idle=@@wait_timeout,wait_timeout=1,@hg_lock=@@innodb_lock_wait_timeout,innodb_lock_wait_timeout=1"
	}
	if s.galera.Load() {
		text += ",@hg_again=@@wsrep_retry_autocommit,wsrep_retry_autocommit=0," +
			"@hg_sync=@@wsrep_sync_wait,wsrep_sync_wait=1;START TRANSACTION" // SAVEPOINT and what follows do not wait
	}
	return text + ";SAVEPOINT headgate;"
}

// commit writes how the transaction ends. By @hg_end the server says, after an error, that the COMMIT
// had not begun.
func (s *Store) commit() string {
	switch {
	case s.tx == nil:
		return "RELEASE SAVEPOINT headgate;SET @hg_end=1;COMMIT;" + s.restore()
	case s.group.Load():
		return ""
	case s.galera.Load():
		return "RELEASE SAVEPOINT headgate;SET wsrep_retry_autocommit=@hg_again"
	}
	return "RELEASE SAVEPOINT headgate"
}

// restore writes what puts the session back.
func (s *Store) restore() string {
	text := "SET autocommit=@hg_auto"
	if s.own {
		text += ",wait_timeout=@hg_idle,innodb_lock_wait_timeout=@hg_lock"
	}
	if s.galera.Load() {
		text += ",wsrep_retry_autocommit=@hg_again,wsrep_sync_wait=@hg_sync"
	}
	return text + ";"
}

// abandon ends a transaction that has failed, or was of no use, and reports whether its COMMIT had
// begun. A connection that may be left with half of it does not go back to the pool.
func abandon(ctx context.Context, conn *sql.Conn, restore string) (ended bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	var end sql.NullInt64
	if err = conn.QueryRowContext(ctx, "ROLLBACK;"+restore+"SELECT @hg_end").Scan(&end); err != nil {
		_ = conn.Raw(func(any) error { return errBadConn })
	}
	return end.Int64 != 0, err
}

// patience is how long an answer is waited for, also by a caller without a deadline. When
// a text of several statements is killed between two of them (KILL QUERY), MySQL sends
// nothing more, though it has announced a further result.
const patience = time.Minute

func onlyChecks(ops []law.Op) bool {
	return !slices.ContainsFunc(ops, func(op law.Op) bool { return op.Verb != law.Check })
}
