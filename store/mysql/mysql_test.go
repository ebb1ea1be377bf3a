package mysql_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
	"github.com/headgate/headgate/store/storetest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// open returns a store over a database with the schema.
func open(tb testing.TB) *mysql.Store {
	tb.Helper()
	return openUnmigrated(tb, migrated.MariaDB(tb))
}

// openUnmigrated opens a store and does not migrate.
func openUnmigrated(tb testing.TB, url string) *mysql.Store {
	tb.Helper()
	return openWith(tb, url)
}

// openAt opens a store and migrates.
func openAt(tb testing.TB, url string) *mysql.Store {
	tb.Helper()
	s := openUnmigrated(tb, url)
	if _, err := s.Migrate(context.Background()); err != nil {
		tb.Fatal(err)
	}
	return s
}

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(tb testing.TB) store.Store { return open(tb) }, nil)
}

// openWith opens a store with a longer timeout than usual, since a busy machine answers late.
func openWith(tb testing.TB, url string) *mysql.Store {
	tb.Helper()
	if !strings.Contains(url, "timeout=") {
		url += map[bool]string{true: "&", false: "?"}[strings.Contains(url, "?")] + "timeout=1m"
	}
	path, _, _ := strings.Cut(url, "?")
	s, err := mysql.Open(context.Background(), url, &mysql.Config{
		RetryFor: time.Minute, Articles: path[strings.LastIndex(path, "/")+1:],
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

// limiter returns a Limiter with a longer timeout than usual, since a busy machine answers late.
func limiter(s store.Store) *headgate.Limiter {
	return headgate.New(s, &headgate.Config{Timeout: time.Minute})
}
