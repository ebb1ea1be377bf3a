package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	_ "github.com/go-sql-driver/mysql"

	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
	"github.com/headgate/headgate/store/storetest"
)

var num atomic.Int64

func tempDB(tb testing.TB) string {
	db, err := sql.Open("mysql", "root@tcp(127.0.0.1:13306)/")
	if err != nil {
		tb.Fatal(err)
	}
	name := fmt.Sprintf("t%d_%d", os.Getpid(), num.Add(1))
	if _, err := db.Exec("create database " + name); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { db.Exec("drop database " + name); db.Close() })
	return "mysql://root@127.0.0.1:13306/" + name
}

// open returns a migrated store in a database of its own.
func open(tb testing.TB) *mysql.Store {
	tb.Helper()
	return openAt(tb, tempDB(tb))
}

func openAt(tb testing.TB, url string) *mysql.Store {
	tb.Helper()
	s, err := mysql.Open(context.Background(), url, nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	if _, err := s.Migrate(context.Background()); err != nil {
		tb.Fatal(err)
	}
	return s
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(tb testing.TB) store.Store { return open(tb) }, nil)
}
