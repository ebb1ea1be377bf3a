package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// unconfirmedKey is the key in a connection's custom data under which OnNotice stores the message about a commit that
// the standby has not confirmed.
const unconfirmedKey = "headgate: commit was not confirmed"

// OnNotice detects a commit that the server reports as done although the wait for the synchronous standby was
// cancelled. After a failover such a charge may be lost, so the call that made it returns store.ErrUnknownOutcome. Open
// sets OnNotice. A pool given to New must have it too, or such a commit counts as done:
//
//	config.ConnConfig.OnNotice = postgres.OnNotice
func OnNotice(conn *pgconn.PgConn, n *pgconn.Notice) {
	// The message is in the server's language; the name of the source file is not.
	if n.File == "syncrep.c" || strings.Contains(n.Message, "synchronous replication") {
		conn.CustomData()[unconfirmedKey] = n.Message
	}
}

// call sends one statement that charges, and reads its one row into dest.
func (s *Store) call(ctx context.Context, statement string, args []any, dest ...any) error {
	if s.pool == nil { // the caller commits, and checks the notices of the commit
		return markUnreadable(s.db.QueryRow(ctx, statement, args...).Scan(dest...))
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return &notSentError{err}
	}
	defer conn.Release()
	return callConfirmed(ctx, conn, statement, args, dest)
}

// callConfirmed calls queryRow, and fails if the commit was not confirmed by the standby.
func callConfirmed(ctx context.Context, conn *pgxpool.Conn, statement string, args, dest []any) error {
	data := conn.Conn().PgConn().CustomData()
	delete(data, unconfirmedKey)
	err := markUnreadable(queryRow(ctx, conn, statement, args, dest))
	if notice, ok := data[unconfirmedKey]; ok && err == nil {
		return &unreadableError{fmt.Errorf("the commit was not confirmed by the standby: %v", notice)}
	}
	return err
}

// shortLockTimeout is the lock_timeout of a batch with a lockWaitMode. A transaction of Headgate holds its rows for
// less time, unless the machine is overloaded.
const shortLockTimeout = "50ms"

// lockWaitKey is the key of the context value that says how a batch waits for locks. Without a value the batch waits
// until the context ends.
type lockWaitKey struct{}

// The values of lockWaitKey.
const (
	lockGiveUp = 1 // wait for shortLockTimeout, then return a lockWaitError
	lockRetry  = 2 // wait for shortLockTimeout in one transaction after another, until the deadline
)

// lockWaitMode returns how a batch waits for locks; 0: the context has no value.
func lockWaitMode(ctx context.Context) int {
	mode, _ := ctx.Value(lockWaitKey{}).(int)
	return mode
}

// queryRow sends one statement and reads its one row. With a lockWaitMode it waits for no lock longer than
// shortLockTimeout: the same round trip carries the setting, which ends with the transaction.
func queryRow(ctx context.Context, conn *pgxpool.Conn, statement string, args, dest []any) error {
	mode := lockWaitMode(ctx)
	if mode == 0 {
		return conn.QueryRow(ctx, statement, args...).Scan(dest...)
	}
	var batch pgx.Batch
	batch.Queue(`select pg_catalog.set_config('lock_timeout', $1, true)`, shortLockTimeout)
	batch.Queue(statement, args...)
	results := conn.SendBatch(ctx, &batch)
	_, err := results.Exec()
	if err == nil {
		err = results.QueryRow().Scan(dest...)
	}
	if closeErr := results.Close(); err == nil { // Close waits for the end of the transaction
		err = closeErr
	}
	if mode == lockGiveUp && isLockTimeout(err) {
		return &lockWaitError{err}
	}
	return err
}

// markUnreadable wraps err in an unreadableError if the answer of the server has come, and cannot be decoded.
func markUnreadable(err error) error {
	var scan pgx.ScanArgError
	if errors.As(err, &scan) || errors.Is(err, pgx.ErrNoRows) {
		return &unreadableError{err}
	}
	return err
}
