package mysql

import (
	"context"
	"database/sql"
	"sync/atomic"
)

// A node of a Galera cluster whose transaction loses against another's says so by a deadlock
// at its COMMIT, and then nothing is done. It says the same, or that it is not prepared for
// use, when it loses the cluster while it waits for its COMMIT: and then the other nodes may
// have the transaction, and it too, once it is back. So such an answer is believed only if the
// membership of the cluster is what it was before the text was sent.

// readView reads which membership of the cluster a node knows, and whether that has a quorum.
const readView = `SELECT GROUP_CONCAT(VARIABLE_VALUE ORDER BY VARIABLE_NAME) FROM INFORMATION_SCHEMA.GLOBAL_STATUS
	WHERE VARIABLE_NAME IN ('WSREP_CLUSTER_CONF_ID', 'WSREP_CLUSTER_STATUS', 'WSREP_CLUSTER_STATE_UUID')`

// view is the membership of the cluster that a node was seen to have last. The zero value has seen none.
type view struct{ last atomic.Pointer[string] }

// before returns the membership for a text that is to be sent to the node. It asks once; later texts
// get what was seen last, which may be of a while ago: then one deadlock is taken for more than it is.
func (v *view) before(ctx context.Context, conn *sql.Conn) (*string, error) {
	if known := v.last.Load(); known != nil {
		return known, nil
	}
	return v.see(ctx, conn)
}

// see reads the membership and keeps it.
func (v *view) see(ctx context.Context, conn querier) (*string, error) {
	var now sql.NullString
	if err := conn.QueryRowContext(ctx, readView).Scan(&now); err != nil {
		return nil, err
	}
	v.last.Store(&now.String)
	return &now.String, nil
}

// doubt returns an error of a COMMIT, marked if it may have been done: if the membership is not what it
// was before the text was sent, or cannot be read. It is read by a connection of the pool: the one that got the
// error may report the same deadlock once more.
func (v *view) doubt(ctx context.Context, pool *sql.DB, before *string, err error) error {
	if now, failed := v.see(ctx, pool); failed != nil || *now != *before {
		return unsure.of(err)
	}
	return err
}
