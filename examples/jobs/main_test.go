package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestJobsPaceThemselves runs the program on a bubble's time: 30 calls at once, then ten a
// second, then the batches.
func TestJobsPaceThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const want = `0.0s: call 10
0.0s: call 20
0.0s: call 30
1.0s: call 40
2.0s: call 50
insert of 4000 rows: <nil>
insert of 6000 rows: <nil>
insert of 2000 rows: limit leaky-bucket 1000/s capacity 10000 refuses "alice": try again in 2s
insert of 12000 rows: too many rows at once
the table has 10000 rows
`
		begin := time.Now()
		var out bytes.Buffer
		if err := run(t.Context(), &out, nil); err != nil {
			t.Fatal(err)
		}
		if out.String() != want {
			t.Errorf("got\n%swant\n%s", &out, want)
		}
		if took := time.Since(begin); took != 2*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// TestTheFileKeepsTheLevel: a second process finds the bucket of rows full, but for what has drained meanwhile. So
// both together insert what fits, and no more than 1000 rows for each second that they took.
func TestTheFileKeepsTheLevel(t *testing.T) {
	store := "sqlite:" + filepath.Join(t.TempDir(), "jobs.db") + "?synchronous=normal" // a decision has 250 ms
	begin, both := time.Now(), 0
	for i := range 2 {
		var out bytes.Buffer
		if err := run(t.Context(), &out, []string{"-store", store, "-calls", "1"}); err != nil {
			t.Fatal(err)
		}
		_, text, _ := strings.Cut(out.String(), "the table has ")
		rows := 0
		if _, err := fmt.Sscanf(text, "%d rows\n", &rows); err != nil || i == 0 && rows < 10000 {
			t.Errorf("run %d: %v, %d rows:\n%s", i, err, rows, &out)
		}
		both += rows
	}
	if took := time.Since(begin); float64(both) > 10000+1000*took.Seconds() {
		t.Errorf("%d rows were inserted within %s", both, took)
	}
}
