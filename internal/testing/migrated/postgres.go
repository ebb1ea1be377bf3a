// Package migrated gives tests databases in which Headgate's schema is installed already. Installing it takes
// PostgreSQL half a second and MariaDB one; some 500 tests want it.
package migrated

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/store/postgres"
)

// template is a database of the shared PostgreSQL that nobody is connected to.
var template = sync.OnceValues(func() (*dbtest.Template, error) {
	return dbtest.NewTemplate(context.Background(), func(ctx context.Context, dsn string) error {
		s, err := postgres.Open(ctx, dsn, nil)
		if err != nil {
			return err
		}
		defer s.Close()
		_, err = s.Migrate(ctx)
		return err
	})
})

// Postgres returns the DSN of a new database with the schema and the articles' functions. The test may do with it as it
// likes. It is dropped with the test.
func Postgres(tb testing.TB) string {
	tb.Helper()
	t, err := template()
	if err != nil {
		tb.Fatal(fmt.Errorf("migrated: %w", err))
	}
	return t.Copy(tb)
}
