package mysql_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/store"
)

// TestSweepByEvent checks that the event of docs/sql.md sweeps, each second instead of each minute, on a server whose
// event scheduler is on.
func TestSweepByEvent(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/sql.md")
	if err != nil {
		t.Fatal(err)
	}
	createEvent := strings.Replace(regexp.MustCompile(`(?m)^CREATE EVENT .*$`).FindString(string(page)), "1 MINUTE",
		"1 SECOND", 1)
	url := dbtest.MariaDBAt(t, packageServer(t))[0]
	s := openAndMigrate(t, url)
	mustExec(t, openSession(t, url), "CALL headgate_take('token-bucket 1000/s', 'gone', 1); CALL "+
		"headgate_take('token-bucket 1/1h', 'stays', 1); "+createEvent)
	await.Until(t, "the event to sweep", func() bool {
		cells, _, err := s.Cells(t.Context(), store.Query{})
		if err != nil {
			t.Fatal(err)
		}
		return len(cells) == 1 && cells[0].Key == "stays"
	})
}
