package redis

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testing/dbtest"
)

// ExpireSoon makes cells expire a short time after they are empty. The clock of the server must not step back
// meanwhile.
func (s *Store) ExpireSoon(slack time.Duration) { s.slack = slack }

// OwnDatabase returns a database that no other package uses. To count keys and to list cells, a store reads the names
// of all keys of its database: the keys of other packages would delay it.
func OwnDatabase(tb testing.TB) string {
	tb.Helper()
	return strings.Replace(dbtest.Redis(tb), "/0?", "/9?", 1)
}
