package mysql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/headgate/headgate/store"
)

// The caller's values are literals in the text of a batch, or arguments: see writeLiteral. The meaning of the text
// depends on the session, too. A number that becomes text has the character set of the connection, and the answer has
// the character set of the results: under gbk the laws fail with an illegal mix of collations, and under utf16 nobody
// could read the answer after the COMMIT. Some sql_modes change the meaning of the text. So all connections have to be
// utf8mb4 and without those modes. Open sets and checks its connections once, when it makes them: nobody else can
// change them. A pool of the caller is checked at its first use, and each batch fails before it has done anything if
// its session is wrong: see guard.

// session has the variables on which the text of a batch depends.
type session struct{ mode, client, connection, results string }

// sessionColumns selects a session. character_set_results may be NULL, which means that nothing is converted.
const sessionColumns = "@@sql_mode, @@character_set_client, @@character_set_connection, " +
	"COALESCE(@@character_set_results, '" + charset + "')"

// check returns why a session will not do, or nil.
func (s *session) check() error {
	for name := range strings.SplitSeq(s.mode, ",") {
		if slices.Contains(badModes, name) {
			return fmt.Errorf("%w: sql_mode has %s, under which the statements of a batch mean something else: "+
				"connect without it", store.ErrSetup, name)
		}
	}
	for _, v := range []struct{ name, value string }{
		{"character_set_client", s.client},
		{"character_set_connection", s.connection},
		{"character_set_results", s.results},
	} {
		if v.value != charset {
			return fmt.Errorf("%w: %s is %s: connect with charset=%s", store.ErrSetup, v.name, v.value, charset)
		}
	}
	return nil
}

// connector makes connections for Open. In one round trip for each connection it sets up the session, after all that
// the URL sets, and checks it: a server may be configured to ignore the character set of the handshake.
type connector struct {
	driver.Connector
	name      string        // of the server
	collation string        // of utf8mb4; empty: the server's default
	timeout   time.Duration // for the dial and the round trip
}

// badVariableErrors are the errors of the server about options of a URL, which become variables of the session: an
// unknown variable, a wrong value, a wrong type, a variable that a session cannot set.
var badVariableErrors = []uint16{1193, 1231, 1232, 1238}

// Connect implements driver.Connector. Its timeout covers what follows the dial too: else the client would wait for
// ever for a server that accepts a connection and sends nothing.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	conn, err := c.Connector.Connect(ctx)
	if my, ok := errors.AsType[*mysqldriver.MySQLError](err); ok && slices.Contains(badVariableErrors, my.Number) {
		return nil, fmt.Errorf("%s: %w: an option of the URL: %s", c.name, store.ErrSetup, my.Message)
	}
	if err != nil {
		return nil, err
	}
	if err := c.prepare(ctx, conn); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return &openedConn{driverConn: conn.(driverConn)}, nil
}

// driverConn has the methods of the driver's connections that database/sql and openedConn call.
type driverConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
}

// openedConn is a connection that Open has made, with its prepared statements of single charges.
type openedConn struct {
	driverConn
	single [2]driver.Stmt // by anchor
}

// prepare sets the character set, the isolation level and the variables of a session, and checks the session.
func (c *connector) prepare(ctx context.Context, conn driver.Conn) error {
	text := "SET NAMES " + charset
	if c.collation != "" {
		text += " COLLATE " + c.collation
	}
	rows, err := conn.(driver.QueryerContext).QueryContext(ctx, text+
		";SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;"+singleSession+";SELECT "+sessionColumns, nil)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	values := make([]driver.Value, 4)
	for len(rows.Columns()) == 0 { // the answer to SET
		if err := rows.(driver.RowsNextResultSet).NextResultSet(); err != nil {
			return err
		}
	}
	if err := rows.Next(values); err != nil {
		return err
	}
	column := func(i int) string { return fmt.Sprintf("%s", values[i]) }
	s := session{column(0), column(1), column(2), column(3)}
	if err := s.check(); err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	return nil
}
