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

// expectReadOnly checks that a charge and Migrate return ErrReadOnly at a read-only server, and that Migrate goes on
// with a node that takes writes. The user has all rights in one database, which both servers have.
func expectReadOnly(t *testing.T, server string) {
	writableURL := dbtest.MariaDB(t)
	name := writableURL[strings.LastIndex(writableURL, "/")+1:]
	user := "app" + strings.TrimPrefix(name, "headgate_test")
	readOnlyURL := server + name
	root := openPlainDB(t, server)
	mustExec(t, root, "CREATE DATABASE "+name)
	for _, db := range []*sql.DB{root, openPlainDB(t, writableURL)} {
		createUser(t, db, user, "")
		mustExec(t, db, "GRANT ALL ON "+name+".* TO "+user)
	}
	openAndMigrate(t, readOnlyURL)
	setGlobal(t, root, "read_only", "ON")
	openAsUser := func(urls ...string) *mysql.Store {
		return openStore(t, strings.Replace(joinURLs(urls), "root@", user+"@", 1))
	}
	limit := headgate.MustParse("token-bucket 1/s")
	if d, err := newLimiter(openAsUser(readOnlyURL)).Allow(t.Context(), limit, "k"); !errors.Is(err, store.ErrReadOnly) || d.Allowed {
		t.Errorf("a charge: got %+v, %v; want ErrReadOnly", d, err)
	}
	// The URL names the read-only node before the writable one.
	mustExec(t, openPlainDB(t, readOnlyURL), "DELETE FROM headgate_installed")
	report, err := openAsUser(readOnlyURL, writableURL).Migrate(t.Context())
	if err != nil || len(report) == 0 || !strings.HasPrefix(report[0], "applied tables/001") {
		t.Errorf("Migrate: got %q, %v; want tables/001 applied", report, err)
	}
	sameServer := strings.Replace(readOnlyURL, "127.0.0.1", "localhost", 1)
	if report, err := openAsUser(readOnlyURL, sameServer).Migrate(t.Context()); !errors.Is(err, store.ErrReadOnly) {
		t.Errorf("Migrate with read-only nodes alone: got %q, %v; want ErrReadOnly", report, err)
	}
}

// createUser creates a user, and drops it after the test.
func createUser(t *testing.T, db *sql.DB, name, password string) {
	t.Helper()
	mustExec(t, db, "CREATE USER "+name+" IDENTIFIED BY '"+password+"'")
	t.Cleanup(func() {
		if _, err := db.ExecContext(context.Background(), "DROP USER "+name); err != nil {
			t.Error(err)
		}
	})
}

// failingDB is a database whose ExecContext fails. CheckServer calls it for a text of several statements only.
type failingDB struct {
	*sql.DB
	err error
}

func (f failingDB) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	return nil, f.err
}

// TestSyntaxErrorNamesMultiStatements checks that only a syntax error is taken for a pool without multiStatements.
func TestSyntaxErrorNamesMultiStatements(t *testing.T) {
	t.Parallel()
	db := openPlainDB(t, dbtest.MariaDB(t))
	for _, tt := range []struct {
		err      error
		want     error
		wantHint bool // the error names multiStatements
	}{
		{&driver.MySQLError{Number: 1064, Message: "You have an error in your SQL syntax"}, store.ErrSetup, true},
		{&driver.MySQLError{Number: 1142, Message: "command denied"}, store.ErrSetup, false},
		{&driver.MySQLError{Number: 1040, Message: "Too many connections"}, store.ErrUnavailable, false},
		{driver.ErrInvalidConn, store.ErrUnavailable, false}, // a read charges nothing
	} {
		err := mysql.CheckServer(t.Context(), failingDB{db, tt.err})
		if !errors.Is(err, tt.want) || strings.Contains(fmt.Sprint(err), "multiStatements") != tt.wantHint {
			t.Errorf("%v: got %v, want %v, with multiStatements: %v", tt.err, err, tt.want, tt.wantHint)
		}
	}
}
