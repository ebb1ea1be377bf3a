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

// unconfirmed is where OnNotice leaves its message for the call under way, in
// what pgconn keeps for a connection.
const unconfirmed = "headgate: commit was not confirmed"

// OnNotice takes notice of a commit that the server reports as done although it gave
// up waiting for its synchronous standby (somebody cancelled the wait): after a
// failover what it has charged may be gone, so the call that made it answers with
// store.ErrUnknownOutcome. Open sets it. A pool given to New must have it too, or
// such a commit counts as done:
//
//	config.ConnConfig.OnNotice = postgres.OnNotice
func OnNotice(conn *pgconn.PgConn, n *pgconn.Notice) {
	// The text is in the server's language; the name of its source file is not.
	if n.File == "syncrep.c" || strings.Contains(n.Message, "synchronous replication") {
		conn.CustomData()[unconfirmed] = n.Message
	}
}

// call sends one statement that charges, and reads its one row.
func (s *Store) call(ctx context.Context, statement string, args []any, to ...any) error {
	if s.pool == nil { // the caller commits, and sees what the server says of that
		return readable(s.db.QueryRow(ctx, statement, args...).Scan(to...))
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return &notSent{err}
	}
	defer conn.Release()
	return confirmed(ctx, conn, statement, args, to)
}

func confirmed(ctx context.Context, conn *pgxpool.Conn, statement string, args, to []any) error {
	said := conn.Conn().PgConn().CustomData()
	delete(said, unconfirmed)
	err := readable(queryRow(ctx, conn, statement, args, to))
	if notice, ok := said[unconfirmed]; ok && err == nil {
		return &unreadable{fmt.Errorf("the commit was not confirmed by the standby: %v", notice)}
	}
	return err
}

// briefly is how long a batch that gives way waits for a lock, in the server's notation. A
// transaction of Headgate's holds its rows for less, unless the machine is overloaded.
const briefly = "50ms"

// impatience is the key of a context's value that says how a batch waits for locks. Without
// one it waits for as long as the context lets it.
type impatience struct{}

const (
	givesWay = 1 // briefly, then its error is a lockWait
	returns  = 2 // briefly, again and again
)

// impatient returns how a batch waits, 0 if the context does not say.
func impatient(ctx context.Context) int {
	how, _ := ctx.Value(impatience{}).(int)
	return how
}

// queryRow sends one statement and reads its one row. Where the context says so, it waits for no
// lock longer than briefly: the setting is sent along, in the same round trip, and ends with
// the transaction.
func queryRow(ctx context.Context, conn *pgxpool.Conn, statement string, args, to []any) error {
	how := impatient(ctx)
	if how == 0 {
		return conn.QueryRow(ctx, statement, args...).Scan(to...)
	}
	var batch pgx.Batch
	batch.Queue(`select pg_catalog.set_config('lock_timeout', $1, true)`, briefly)
	batch.Queue(statement, args...)
	results := conn.SendBatch(ctx, &batch)
	_, err := results.Exec()
	if err == nil {
		err = results.QueryRow().Scan(to...)
	}
	if ended := results.Close(); err == nil { // the transaction has ended by then
		err = ended
	}
	if how == givesWay && inTheWay(err) {
		return &lockWait{err}
	}
	return err
}

// readable marks the errors over an answer that came and cannot be read.
func readable(err error) error {
	var scan pgx.ScanArgError
	if errors.As(err, &scan) || errors.Is(err, pgx.ErrNoRows) {
		return &unreadable{err}
	}
	return err
}
