package mysql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"testing"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
)

// galeraConnector is a connector to a server that tells a membership like a node of a Galera cluster. One of its
// batches fails at its COMMIT.
type galeraConnector struct {
	driver.Connector
	view      string // the membership of the cluster
	failure   uint16 // the number of the error of the next batch; 0: none
	committed bool   // the failing batch is committed nevertheless, and the membership changes
}

// galeraConn is a connection of a galeraConnector.
type galeraConn struct {
	driver.Conn
	connector *galeraConnector
}

func (g *galeraConnector) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := g.Connector.Connect(ctx)
	return &galeraConn{c, g}, err
}

func (c *galeraConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c *galeraConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	g, conn := c.connector, c.Conn.(driver.QueryerContext)
	if strings.Contains(query, "WSREP_CLUSTER_CONF_ID") {
		return conn.QueryContext(ctx, fmt.Sprintf("SELECT '%s'", g.view), nil)
	}
	if g.failure == 0 || !strings.Contains(query, "COMMIT;") {
		return conn.QueryContext(ctx, query, args)
	}
	err := &mysqldriver.MySQLError{Number: g.failure, Message: "at COMMIT"}
	g.failure = 0
	if !g.committed {
		return nil, errors.Join(err, exhaust(conn.QueryContext(ctx, "SET @hg_end = 1; SELECT 1", nil)))
	}
	g.view += " and later"
	return nil, errors.Join(err, exhaust(conn.QueryContext(ctx, query, args)))
}

// exhaust reads all results of a text, which QueryContext has returned, and closes them.
func exhaust(rows driver.Rows, err error) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	for results := rows.(driver.RowsNextResultSet); results.HasNextResultSet(); {
		if err := results.NextResultSet(); err != nil {
			return err
		}
	}
	return nil
}

// TestDeadlockAtCommitIsUnknownIfTheNodeLosesTheCluster checks that a batch whose COMMIT returns a deadlock is
// repeated, but has an unknown outcome if the node has lost the cluster meanwhile, since the other nodes may have the
// batch.
func TestDeadlockAtCommitIsUnknownIfTheNodeLosesTheCluster(t *testing.T) {
	t.Parallel()
	if !hasReturning(t, openPlainDB(t, migrated.MariaDB(t))) {
		return // a server without RETURNING is in no cluster of Galera, and has none of its variables
	}
	for _, tt := range []struct {
		name      string
		failure   uint16
		committed bool
		want      error
	}{
		{"a deadlock", 1213, false, nil},
		{"a deadlock of a node that loses the cluster", 1213, true, store.ErrUnknownOutcome},
		{"a node that loses the cluster", 1047, true, store.ErrUnknownOutcome},
	} {
		t.Run(tt.name, func(t *testing.T) {
			url := migrated.MariaDB(t)
			openStore(t, url)
			g := &galeraConnector{Connector: newConnector(t, url), view: "7"}
			db := sql.OpenDB(g)
			t.Cleanup(func() { db.Close() })
			s := mysql.New(db, nil)
			if _, err := takeSingle(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			mysql.AsGalera(s)
			if _, err := takeSingle(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			g.failure, g.committed = tt.failure, tt.committed
			if _, err := takeSingle(t.Context(), s); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			if g.failure != 0 {
				t.Error("no batch has failed")
			}
			if got := levelOf(t, db); got != 3 {
				t.Errorf("got level %d, want 3", got)
			}
		})
	}
}
