package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestJobsPaceThemselves runs the program on simulated time: 30 calls at once, then ten a second, then the batches.
func TestJobsPaceThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const want = `0.0s: call 10
0.0s: call 20
0.0s: call 30
1.0s: call 40
2.0s: call 50
insert of 4000 rows: <nil>
insert of 6000 rows: <nil>
insert of 2000 rows: limit rows refuses "alice": try again in 2s
insert of 12000 rows: too many rows at once
the table has 10000 rows
`
		begin := time.Now()
		var out bytes.Buffer
		if err := run(t.Context(), &out, "memory:", 50); err != nil {
			t.Fatal(err)
		}
		if out.String() != want {
			t.Errorf("got\n%swant\n%s", &out, want)
		}
		if took := time.Since(begin); took != 2*time.Second {
			t.Errorf("got a run of %v, want 2s", took)
		}
	})
}

// TestSQLiteFileKeepsTheLevel runs the program twice. The second run finds the bucket of rows full, except for the
// 1,000 rows that have drained in a second.
func TestSQLiteFileKeepsTheLevel(t *testing.T) {
	storeURL := "sqlite:" + filepath.Join(t.TempDir(), "jobs.db") + "?synchronous=normal"
	synctest.Test(t, func(t *testing.T) {
		for _, want := range []string{"the table has 10000 rows\n", "the table has 0 rows\n"} {
			var out bytes.Buffer
			if err := run(t.Context(), &out, storeURL, 1); err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(out.String(), want) {
				t.Errorf("got\n%s\nwant at the end %s", &out, want)
			}
			time.Sleep(time.Second)
		}
	})
}
