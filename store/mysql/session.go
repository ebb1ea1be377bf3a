package mysql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	driver1 "github.com/go-sql-driver/mysql"

	"github.com/headgate/headgate/store"
)

// What is the caller's is a literal in the text of a batch, or an argument: see literal. That the text
// means what it should is another thing. A number that becomes text has the character
// set of the connection, and so has the answer the one of the results: under gbk the
// laws fail with an illegal mix of collations, under utf16 nobody could read the answer
// after the COMMIT. And some sql_modes give the text another meaning. So all connections
// have to be utf8mb4 and without those modes. The connections that Open makes are set to
// it and checked once, when they are made: nobody else can change them. A pool of the
// caller's is checked at its first use, and each batch on one of its connections fails
// before it has done anything where the session is another: see guard.

// session has the variables on which the text of a batch depends.
type session struct{ mode, client, connection, results string }

// sessionColumns reads a session. Results may be NULL, which converts nothing.
const sessionColumns = "@@sql_mode, @@character_set_client, @@character_set_connection, " +
	"COALESCE(@@character_set_results, '" + charset + "')"

// check returns why a session will not do, or nil.
func (s *session) check() error {
	for name := range strings.SplitSeq(s.mode, ",") {
		if slices.Contains(modes, name) {
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

// connector makes connections for Open. It sets their character set after all else
// that a URL may set, since a server may be set to ignore what a client asks for in
// its handshake, and checks what became of it: in one round trip for each connection.
type connector struct {
	driver.Connector
	name      string // of the server
	collation string // of utf8mb4; empty: the server's default
	within    time.Duration
}

// wrongVariable are what the server says of the options of a URL, which become variables of
// the session: not known, of a wrong type, with a value that cannot be, only readable.
var wrongVariable = []uint16{1193, 1231, 1232, 1238}

// Connect implements driver.Connector. It bounds what comes after the dial too: the
// client waits for ever for a server that accepts a connection and says nothing.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.within)
	defer cancel()
	conn, err := c.Connector.Connect(ctx)
	if my, ok := errors.AsType[*driver1.MySQLError](err); ok && slices.Contains(wrongVariable, my.Number) {
		return nil, fmt.Errorf("%s: %w: an option of the URL: %s", c.name, store.ErrSetup, my.Message)
	}
	if err != nil {
		return nil, err
	}
	if err := c.prepare(ctx, conn); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return &ownConn{driverConn: conn.(driverConn)}, nil
}

// driverConn is a connection of the driver.
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

// ownConn is a connection that Open has made, with the statements for lone charges that
// are prepared there.
type ownConn struct {
	driverConn
	one [2]driver.Stmt // by the anchor
}

func (c *connector) prepare(ctx context.Context, conn driver.Conn) error {
	text := "SET NAMES " + charset
	if c.collation != "" {
		text += " COLLATE " + c.collation
	}
	rows, err := conn.(driver.QueryerContext).QueryContext(ctx, text+
		";SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;"+oneSession+";SELECT "+sessionColumns, nil)
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
	is := func(i int) string { return fmt.Sprintf("%s", values[i]) }
	s := session{is(0), is(1), is(2), is(3)}
	if err := s.check(); err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	return nil
}
