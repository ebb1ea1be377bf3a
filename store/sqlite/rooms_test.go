package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store/sqlite"
)

// TestASharedCellThatSomebodyDeletes deletes the shared cell of a limit by hand, and then
// all cells: what is not there counts nothing, and holds nobody up.
func TestASharedCellThatSomebodyDeletes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s, err := sqlite.Open(context.Background(), "sqlite:"+path, &sqlite.Config{MaxKeys: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	p := law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 2000, Step: 3_600_000_000, Drain: 1000}
	take := func(key string) law.Outcome {
		t.Helper()
		outs := make([]law.Outcome, 1)
		op := law.Op{Verb: law.Take, Cell: law.Cell{Limit: "l", Key: key}, Params: p, Cost: 1000, Count: 1}
		if err := s.Apply(t.Context(), []law.Op{op}, outs); err != nil || outs[0].Err != nil {
			t.Fatalf("%s: %v, %v", key, err, outs[0].Err)
		}
		return outs[0]
	}
	exec := func(text string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		take(fmt.Sprint("own ", i))
	}
	for i := range 2 {
		take(fmt.Sprint("new ", i))
	}
	exec("delete from cells where key like 'headgate:shared:%'")
	for i := range 3 {
		if out := take(fmt.Sprint("newer ", i)); !out.Shared || (out.Granted == 1) != (i < 2) {
			t.Errorf("take %d from a shared cell that was deleted: %+v", i, out)
		}
	}
	exec("delete from cells")
	for i := range 4 {
		if out := take(fmt.Sprint("newest ", i)); out.Granted != 1 || out.Shared != (i == 3) {
			t.Errorf("key %d after all were deleted: %+v", i, out)
		}
	}
	exec("delete from cells")
	if _, err := s.Sweep(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	if rooms, err := s.Fullness(t.Context()); err != nil || len(rooms) > 0 {
		t.Errorf("all cells were deleted, and yet: %+v, %v", rooms, err)
	}
}
