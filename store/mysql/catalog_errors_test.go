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

// failingConnector is a connector on whose connections one statement fails with err, once.
type failingConnector struct {
	driver.Connector
	prefix  string // how the statement begins; empty: none fails
	execute bool   // whether the server executes the statement nevertheless
	err     error
}

// failingConn is a connection of a failingConnector.
type failingConn struct {
	driver.Conn
	connector *failingConnector
}

func (f *failingConnector) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := f.Connector.Connect(ctx)
	return &failingConn{c, f}, err
}

func (c *failingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c *failingConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	f := c.connector
	if f.prefix == "" || !strings.HasPrefix(query, f.prefix) {
		return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
	}
	f.prefix = ""
	if f.execute {
		if _, err := c.ExecContext(ctx, query, args); err != nil {
			return nil, err
		}
	}
	if errors.Is(f.err, mysqldriver.ErrInvalidConn) {
		_ = c.Close()
	}
	return nil, f.err
}

// newConnector returns the driver's own connector to the server of a URL.
func newConnector(t *testing.T, url string) driver.Connector {
	t.Helper()
	host, name, _ := strings.Cut(strings.TrimPrefix(url, "mysql://root@"), "/")
	cfg, err := mysqldriver.ParseDSN("root@tcp(" + host + ")/" + name + "?multiStatements=true")
	if err != nil {
		t.Fatal(err)
	}
	c, err := mysqldriver.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestWriteCatalogErrors checks the errors of WriteCatalog when a statement fails: the outcome is unknown only if the
// COMMIT was interrupted or not answered, and the edit is repeated after a conflict.
func TestWriteCatalogErrors(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	f := &failingConnector{Connector: newConnector(t, url)}
	db := sql.OpenDB(f)
	t.Cleanup(func() { db.Close() })
	s := mysql.New(db, nil)
	deadlock := &mysqldriver.MySQLError{Number: 1213, Message: "Deadlock found"}
	version := int64(0)
	for _, tt := range []struct {
		prefix      string
		execute     bool
		err         error
		want        error
		wantVersion bool // the edit makes a version
	}{
		{"COMMIT", true, mysqldriver.ErrInvalidConn, store.ErrUnknownOutcome, true},
		{"COMMIT", false, mysqldriver.ErrInvalidConn, store.ErrUnknownOutcome, false},
		{"COMMIT", false, deadlock, nil, true},
		{"COMMIT", false, &mysqldriver.MySQLError{Number: 1317, Message: "interrupted"}, store.ErrUnknownOutcome, false},
		{"INSERT INTO headgate_versions", true, mysqldriver.ErrInvalidConn, store.ErrUnavailable, false},
		{"INSERT INTO headgate_changes", true, deadlock, nil, true},
		{"UPDATE headgate_catalog_version", true, &mysqldriver.MySQLError{Number: 1205, Message: "Lock wait timeout"}, nil, true},
		{"INSERT INTO headgate_limits", false, &mysqldriver.MySQLError{Number: 1317}, store.ErrUnavailable, false},
		{"SET @hg_catalog = NULL", false, mysqldriver.ErrInvalidConn, nil, true},
	} {
		f.prefix, f.execute, f.err = tt.prefix, tt.execute, tt.err
		_, err := s.WriteCatalog(t.Context(), store.Edit{Base: version, Items: []store.Item{
			{Kind: store.KindLimit, Name: "login", Text: fmt.Sprintf("gcra %d/s", version+1)},
		}})
		if !errors.Is(err, tt.want) || f.prefix != "" {
			t.Errorf("%s, %v: got %v, want %v", tt.prefix, tt.err, err, tt.want)
		}
		if tt.wantVersion {
			version++
		}
		if got, err := s.ReadCatalog(t.Context(), 0); err != nil || got.Version != version {
			t.Errorf("%s, %v: got version %d, %v; want %d", tt.prefix, tt.err, got.Version, err, version)
			version = got.Version
		}
	}
	// The pool has no connection on which @hg_catalog is still set: a change by hand makes a version.
	for range 2 {
		version++
		text := fmt.Sprintf("UPDATE headgate_limits SET rule = 'interval %d/s'", version)
		mustExec(t, db, text)
		if got, err := s.ReadCatalog(t.Context(), 0); err != nil || got.Version != version {
			t.Errorf("after a change by hand: got version %d, %v; want %d", got.Version, err, version)
		}
	}
}
