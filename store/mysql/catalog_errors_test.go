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

// breaker is a connector on whose connections one statement fails, once.
type breaker struct {
	driver.Connector
	like string // what the statement begins with; empty: none
	done bool   // it is carried out
	err  error
}

type breakingConn struct {
	driver.Conn
	b *breaker
}

func (b *breaker) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := b.Connector.Connect(ctx)
	return &breakingConn{c, b}, err
}

func (c *breakingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c *breakingConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	b := c.b
	if b.like == "" || !strings.HasPrefix(query, b.like) {
		return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
	}
	b.like = ""
	if b.done {
		if _, err := c.ExecContext(ctx, query, args); err != nil {
			return nil, err
		}
	}
	if errors.Is(b.err, mysqldriver.ErrInvalidConn) {
		_ = c.Close()
	}
	return nil, b.err
}

// connector returns the driver's own connector to the server of a URL.
func connector(t *testing.T, url string) driver.Connector {
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

// TestEditsThatBreak lets edits fail at COMMIT, or before. The outcome may be unknown only if COMMIT was not answered,
// and an edit is repeated after a conflict.
func TestEditsThatBreak(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	b := &breaker{Connector: connector(t, url)}
	db := sql.OpenDB(b)
	t.Cleanup(func() { db.Close() })
	s := mysql.New(db, nil)
	deadlock := &mysqldriver.MySQLError{Number: 1213, Message: "Deadlock found"}
	base := int64(0)
	for _, tt := range []struct {
		like string
		done bool
		err  error
		want error
		made bool
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
		b.like, b.done, b.err = tt.like, tt.done, tt.err
		_, err := s.WriteCatalog(t.Context(), store.Edit{Base: base, Items: []store.Item{
			{Kind: store.KindLimit, Name: "login", Text: fmt.Sprintf("gcra %d/s", base+1)},
		}})
		if !errors.Is(err, tt.want) || b.like != "" {
			t.Errorf("%s, %v: %v; want %v", tt.like, tt.err, err, tt.want)
		}
		if tt.made {
			base++
		}
		if got, err := s.ReadCatalog(t.Context(), 0); err != nil || got.Version != base {
			t.Errorf("%s, %v: version %d, %v; want %d", tt.like, tt.err, got.Version, err, base)
			base = got.Version
		}
	}
	// No connection is left that takes changes by hand for the driver's.
	for range 2 {
		base++
		text := fmt.Sprintf("UPDATE headgate_limits SET rule = 'interval %d/s'", base)
		if _, err := db.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
		if got, err := s.ReadCatalog(t.Context(), 0); err != nil || got.Version != base {
			t.Errorf("after a change by hand: version %d, %v; want %d", got.Version, err, base)
		}
	}
}
