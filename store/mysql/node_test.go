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
	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
)

// appServers starts servers with a database app, and an account app that may do
// anything there and nothing else. It returns their URLs.
func appServers(t *testing.T, n int) (urls []string) {
	t.Helper()
	for range n {
		server, err := dbtest.StartMariaDB(t.Context(), "--log-bin")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Stop)
		url := server.DSN + "app"
		db := plain(t, server.DSN)
		for _, statement := range []string{
			"CREATE DATABASE app", "CREATE USER app", "SET GLOBAL log_bin_trust_function_creators = ON",
			"GRANT ALL ON app.* TO app",
		} {
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
		urls = append(urls, url)
	}
	return urls
}

// asApp returns the URL of the account app at the servers of some URLs.
func asApp(urls ...string) string { return strings.Replace(oneURL(urls), "root@", "app@", 1) }

func makeReadOnly(t *testing.T, url string) {
	t.Helper()
	if _, err := plain(t, url).ExecContext(t.Context(), "SET GLOBAL read_only = ON"); err != nil {
		t.Fatal(err)
	}
}

func TestReadOnlyServersSaySo(t *testing.T) {
	t.Parallel()
	url := appServers(t, 1)[0]
	openAt(t, url)
	makeReadOnly(t, url)
	s, err := mysql.Open(t.Context(), asApp(url), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if d, err := limiter(s).Allow(t.Context(), headgate.MustParse("token-bucket 1/s"), "k"); !errors.Is(
		err, store.ErrReadOnly) || d.Allowed {
		t.Errorf("got %+v, %v", d, err)
	}
}

// TestMigrateGoesOnPastAReadOnlyNode is over a primary that is named after its
// secondaries.
func TestMigrateGoesOnPastAReadOnlyNode(t *testing.T) {
	t.Parallel()
	urls := appServers(t, 2)
	makeReadOnly(t, urls[0])
	s, err := mysql.Open(t.Context(), asApp(urls...), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	report, err := s.Migrate(t.Context())
	if err != nil || len(report) == 0 || !strings.HasPrefix(report[0], "applied tables/001") {
		t.Errorf("%q, %v", report, err)
	}
	makeReadOnly(t, urls[1])
	if _, err := plain(t, urls[1]).ExecContext(t.Context(), "DELETE FROM headgate_installed"); err != nil {
		t.Fatal(err)
	}
	if report, err := s.Migrate(t.Context()); !errors.Is(err, store.ErrReadOnly) {
		t.Errorf("all nodes are read-only: %q, %v", report, err)
	}
}

// answering is a database that answers a batch of statements with an error.
type answering struct {
	*sql.DB
	err error
}

func (a answering) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	return nil, a.err
}

func TestOnlyASyntaxErrorIsTakenForOneStatementAtATime(t *testing.T) {
	t.Parallel()
	db := plain(t, dbtest.MariaDB(t))
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
