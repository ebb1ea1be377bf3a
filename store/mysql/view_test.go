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
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
)

// member is a connector to a server that answers like a node of a Galera cluster. One of its batches fails at its
// COMMIT.
type member struct {
	driver.Connector
	view string
	fail uint16 // the number of the error of the next batch; 0: none
	done bool   // the batch is committed nevertheless, and the membership changes
}

type memberConn struct {
	driver.Conn
	m *member
}

func (m *member) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := m.Connector.Connect(ctx)
	return &memberConn{c, m}, err
}

func (c *memberConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c *memberConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	ask := c.Conn.(driver.QueryerContext)
	if strings.Contains(query, "WSREP_CLUSTER_CONF_ID") {
		return ask.QueryContext(ctx, fmt.Sprintf("SELECT '%s'", c.m.view), nil)
	}
	if c.m.fail == 0 || !strings.Contains(query, "COMMIT;") {
		return ask.QueryContext(ctx, query, args)
	}
	err := &mysqldriver.MySQLError{Number: c.m.fail, Message: "at COMMIT"}
	c.m.fail = 0
	if !c.m.done {
		return nil, errors.Join(err, exhaust(ask.QueryContext(ctx, "SET @hg_end = 1; SELECT 1", nil)))
	}
	c.m.view += " and later"
	return nil, errors.Join(err, exhaust(ask.QueryContext(ctx, query, args)))
}

// exhaust reads all results of a text.
func exhaust(rows driver.Rows, err error) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	for more := rows.(driver.RowsNextResultSet); more.HasNextResultSet(); {
		if err := more.NextResultSet(); err != nil {
			return err
		}
	}
	return nil
}

// TestADeadlockOfANodeThatLosesTheCluster lets a COMMIT return a deadlock: the batch must be repeated, but not if the
// node has lost the cluster meanwhile, since the other nodes may have the batch.
func TestADeadlockOfANodeThatLosesTheCluster(t *testing.T) {
	t.Parallel()
	if !knowsReturning(t, plainDB(t, migrated.MariaDB(t))) {
		return // a server without RETURNING is in no cluster of Galera, and has none of its variables
	}
	for _, tt := range []struct {
		name   string
		number uint16
		done   bool
		want   error
	}{
		{"a deadlock", 1213, false, nil},
		{"a deadlock of a node that loses the cluster", 1213, true, store.ErrUnknownOutcome},
		{"a node that loses the cluster", 1047, true, store.ErrUnknownOutcome},
	} {
		t.Run(tt.name, func(t *testing.T) {
			url := migrated.MariaDB(t)
			openUnmigrated(t, url)
			m := &member{Connector: connector(t, url), view: "7"}
			db := sql.OpenDB(m)
			t.Cleanup(func() { db.Close() })
			s := mysql.New(db, nil)
			take := func() error {
				ops := []law.Op{{
					Verb: law.Take, Cell: law.Cell{Limit: "l", Key: "k"}, Params: neverDrains, Cost: 1, Count: 1,
				}}
				outs := make([]law.Outcome, 1)
				return errors.Join(s.Apply(t.Context(), ops, outs), outs[0].Err)
			}
			if err := take(); err != nil {
				t.Fatal(err)
			}
			mysql.AsGalera(s)
			if err := take(); err != nil {
				t.Fatal(err)
			}
			m.fail, m.done = tt.number, tt.done
			if err := take(); !errors.Is(err, tt.want) {
				t.Errorf("%v, want %v", err, tt.want)
			}
			if m.fail != 0 {
				t.Error("no batch has failed")
			}
			if got := levelOf(t, db); got != 3 {
				t.Errorf("level %d, want 3", got)
			}
		})
	}
}
