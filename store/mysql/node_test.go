package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	driver "github.com/go-sql-driver/mysql"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
)

// saysItIsReadOnly makes a server read-only, with an account that may do anything in one database and nothing else. The
// server that tests share, which is not read-only, has the same database and account.
func saysItIsReadOnly(t *testing.T, server string) {
	writes := dbtest.MariaDB(t)
	name := writes[strings.LastIndex(writes, "/")+1:]
	user := "app" + strings.TrimPrefix(name, "headgate_test")
	reads := server + name
	root := plainDB(t, server)
	run(t, root, "CREATE DATABASE "+name)
	for _, db := range []*sql.DB{root, plainDB(t, writes)} {
		newUser(t, db, user, "")
		run(t, db, "GRANT ALL ON "+name+".* TO "+user)
	}
	openAt(t, reads)
	setGlobal(t, root, "read_only", "ON")
	app := func(urls ...string) *mysql.Store {
		return openUnmigrated(t, strings.Replace(oneURL(urls), "root@", user+"@", 1))
	}
	limit := headgate.MustParse("token-bucket 1/s")
	if d, err := limiter(app(reads)).Allow(t.Context(), limit, "k"); !errors.Is(err, store.ErrReadOnly) || d.Allowed {
		t.Errorf("a charge: %+v, %v", d, err)
	}
	// A migration goes on past a secondary that is named before its primary.
	run(t, plainDB(t, reads), "DELETE FROM headgate_installed")
	report, err := app(reads, writes).Migrate(t.Context())
	if err != nil || len(report) == 0 || !strings.HasPrefix(report[0], "applied tables/001") {
		t.Errorf("%q, %v", report, err)
	}
	again := strings.Replace(reads, "127.0.0.1", "localhost", 1)
	if report, err := app(reads, again).Migrate(t.Context()); !errors.Is(err, store.ErrReadOnly) {
		t.Errorf("all nodes are read-only: %q, %v", report, err)
	}
}

// newUser makes a user, and removes it after the test.
func newUser(t *testing.T, db *sql.DB, name, password string) {
	t.Helper()
	run(t, db, "CREATE USER "+name+" IDENTIFIED BY '"+password+"'")
	t.Cleanup(func() {
		if _, err := db.ExecContext(context.Background(), "DROP USER "+name); err != nil {
			t.Error(err)
		}
	})
}

// answering is a database that answers a text of several statements with an error.
type answering struct {
	*sql.DB
	err error
}

func (a answering) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	return nil, a.err
}

func TestOnlyASyntaxErrorIsTakenForOneStatementAtATime(t *testing.T) {
	t.Parallel()
	db := plainDB(t, dbtest.MariaDB(t))
	for _, tt := range []struct {
		err  error
		is   error
		says bool
	}{
		{&driver.MySQLError{Number: 1064, Message: "You have an error in your SQL syntax"}, store.ErrSetup, true},
		{&driver.MySQLError{Number: 1142, Message: "command denied"}, store.ErrSetup, false},
		{&driver.MySQLError{Number: 1040, Message: "Too many connections"}, store.ErrUnavailable, false},
		{driver.ErrInvalidConn, store.ErrUnknownOutcome, false},
	} {
		err := mysql.CheckServer(t.Context(), answering{db, tt.err})
		if !errors.Is(err, tt.is) || strings.Contains(fmt.Sprint(err), "multiStatements") != tt.says {
			t.Errorf("%v: got %v", tt.err, err)
		}
	}
}
