package mysql

import (
	"context"
	"database/sql"
)

// A node of a Galera cluster whose transaction loses against another's says so by a deadlock
// at its COMMIT, and then nothing is done. It says the same, or that it is not prepared for
// use, when it loses the cluster while it waits for its COMMIT: and then the other nodes may
// have the transaction, and it too, once it is back. So such an answer is believed only if the
// membership of the cluster is what it was before the text was sent.

// unsure marks an error of a COMMIT that may have been done, whatever the error says.
type unsure struct{ err error }

func (e *unsure) Error() string { return e.err.Error() }
func (e *unsure) Unwrap() error { return e.err }

// readView reads which membership of the cluster a node knows, and whether that has a quorum.
const readView = `SELECT GROUP_CONCAT(VARIABLE_VALUE ORDER BY VARIABLE_NAME) FROM INFORMATION_SCHEMA.GLOBAL_STATUS
	WHERE VARIABLE_NAME IN ('WSREP_CLUSTER_CONF_ID', 'WSREP_CLUSTER_STATUS', 'WSREP_CLUSTER_STATE_UUID')`

// viewOf returns the membership of the cluster that a node was known to have, for a text that
// is to be sent there. It asks the node once; later ones get what was seen last, which may be
// of a while ago: then one deadlock is taken for more than it is.
func (s *transport) viewOf(ctx context.Context, n *node, conn *sql.Conn) (*string, error) {
	if !s.galera.Load() {
		return nil, nil
	}
	if known := n.view.Load(); known != nil {
		return known, nil
	}
	return n.see(ctx, conn)
}

// see reads the membership of the cluster and keeps it.
func (n *node) see(ctx context.Context, conn *sql.Conn) (*string, error) {
	var view sql.NullString
	if err := conn.QueryRowContext(ctx, readView).Scan(&view); err != nil {
		return nil, err
	}
	n.view.Store(&view.String)
	return &view.String, nil
}

// doubt returns an error of a COMMIT on a node of Galera, marked if it may have been done.
func (n *node) doubt(ctx context.Context, conn *sql.Conn, before *string, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if now, failed := n.see(ctx, conn); failed != nil || *now != *before {
		return &unsure{err}
	}
	return err
}
