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

// TestAnEventSweeps runs the event of docs/sql.md, each second instead of each minute,
// on a server whose scheduler is on.
func TestAnEventSweeps(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/sql.md")
	if err != nil {
		t.Fatal(err)
	}
	event := strings.Replace(regexp.MustCompile(`(?m)^CREATE EVENT .*$`).FindString(string(page)), "1 MINUTE",
		"1 SECOND", 1)
	url := dbtest.MariaDBAt(t, ownServer(t))[0]
	s := openAt(t, url)
	execute(t, openSession(t, url), "CALL headgate_take('token-bucket 1000/s', 'gone', 1); CALL "+
		"headgate_take('token-bucket 1/1h', 'stays', 1); "+event)
	await.Until(t, "the event to sweep", func() bool {
		cells, _, err := s.Cells(t.Context(), store.Query{})
		if err != nil {
			t.Fatal(err)
		}
		return len(cells) == 1 && cells[0].Key == "stays"
	})
}
