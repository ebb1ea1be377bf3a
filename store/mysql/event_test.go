package mysql_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/dbtest"
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
	server, err := dbtest.StartMariaDB(t.Context(), "--event-scheduler=ON")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	url := dbtest.MariaDBAt(t, server.DSN)[0]
	s := openAt(t, url)
	execute(t, session(t, url), "CALL headgate_take('token-bucket 1000/s', 'gone', 1); CALL "+
		"headgate_take('token-bucket 1/1h', 'stays', 1); "+event)
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		cells, _, err := s.Cells(t.Context(), store.Query{})
		if err != nil {
			t.Fatal(err)
		}
		if len(cells) == 1 && cells[0].Key == "stays" {
			return
		}
		if time.Since(begin) > time.Minute {
			t.Fatalf("left are %+v", cells)
		}
	}
}
