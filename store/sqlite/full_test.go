package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	sqlite3 "modernc.org/sqlite"

	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
	"github.com/headgate/headgate/store/sqlite"
)

// writeConns has the connections of this process that write, by the names of their files.
var writeConns sync.Map // name to sqlite3.ExecQuerierContext

func init() {
	sqlite3.RegisterConnectionHook(func(c sqlite3.ExecQuerierContext, dsn string) error {
		if strings.Contains(dsn, "_txlock=immediate") { // the one that writes
			name, _, _ := strings.Cut(dsn, "?")
			writeConns.Store(filepath.Base(name), c)
		}
		return nil
	})
}

// limitPages sets the number of pages up to which a file may grow.
func limitPages(t *testing.T, name string, maxPages int) {
	t.Helper()
	c, ok := writeConns.Load(name)
	if !ok {
		t.Fatalf("no connection to %s", name)
	}
	if _, err := c.(sqlite3.ExecQuerierContext).ExecContext(context.Background(),
		fmt.Sprintf("pragma max_page_count = %d", maxPages), nil); err != nil {
		t.Fatal(err)
	}
}

// fillFile charges new keys until Apply fails, and returns the error.
func fillFile(t *testing.T, s store.Store) error {
	t.Helper()
	for i := range 10_000 {
		op := law.Op{
			Verb: law.Take, Group: 1, Cell: law.Cell{Limit: "fill", Key: fmt.Sprint(i, strings.Repeat("x", 400))},
			Params: largeBucket, Cost: 1000, Count: 1,
		}
		outs := make([]law.Outcome, 1)
		if err := s.Apply(context.Background(), []law.Op{op}, outs); err != nil {
			if outs[0] != (law.Outcome{}) {
				t.Errorf("a failed Apply: got the outcome %+v, want none", outs[0])
			}
			return err
		}
	}
	t.Fatal("got no error after 10,000 keys, want a full file")
	return nil
}

// TestAFullDiskAdmitsNobody fills the file of a driver alone, and of one behind all wrappers, until calls fail. When
// there is room again, the capacity passes: failed calls charged nothing.
func TestAFullDiskAdmitsNobody(t *testing.T) {
	for name, wrap := range map[string]func(*sqlite.Store) store.Store{
		"driver": func(s *sqlite.Store) store.Store { return s },
		"stack": func(s *sqlite.Store) store.Store {
			return front.New(s, &front.Config{SweepEvery: -1, Guard: &front.GuardConfig{Deadline: time.Minute}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := name + "-full.db"
			s := open(t, "sqlite:"+filepath.Join(t.TempDir(), file)+"?synchronous=normal")
			wrapped := wrap(s)
			limitPages(t, file, 40)
			if err := fillFile(t, wrapped); !errors.Is(err, store.ErrNoSpace) ||
				errors.Is(err, store.ErrUnknownOutcome) {
				t.Errorf("on a full disk: got %v, want ErrNoSpace", err)
			}
			ops := make([]law.Op, 8)
			for i := range ops { // the keys are too long for what is left of a page
				ops[i] = law.Op{
					Verb: law.Take, Group: uint32(i),
					Cell: law.Cell{Limit: "one", Key: fmt.Sprint(i, strings.Repeat("y", 500))}, Cost: 1000, Count: 1,
					Params: law.Params{
						Kind: law.Bucket, Unit: 1000, Capacity: 5000, Step: 365 * 86_400_000_000, Drain: 1000,
					},
				}
			}
			failures := 0
			for range 300 {
				outs := make([]law.Outcome, len(ops))
				if err := wrapped.Apply(context.Background(), ops, outs); err != nil {
					failures++
					for _, out := range outs {
						if out != (law.Outcome{}) {
							t.Fatalf("a failed Apply: got the outcome %+v, want none", out)
						}
					}
				}
			}
			if failures == 0 {
				t.Error("got no failure, want the disk full")
			}
			limitPages(t, file, 10_000)
			check := []law.Op{ops[0]} // the circuit breaker of the stack lets one pass within half a second
			check[0].Verb, check[0].Cell.Limit = law.Check, "other"
			await.NoError(t, "an answer now that there is room", func() error {
				return wrapped.Apply(context.Background(), check, make([]law.Outcome, 1))
			})
			admitted := 0
			for range 10 {
				outs := make([]law.Outcome, len(ops))
				if err := wrapped.Apply(context.Background(), ops, outs); err != nil {
					t.Fatalf("with room again: got %v, want no error", err)
				}
				admitted += int(outs[0].Granted)
			}
			if admitted != 5 {
				t.Errorf("with room again: got %d admitted, want the capacity of 5", admitted)
			}
		})
	}
}

// TestAMovedOrReplacedFileIsErrUnavailable moves and replaces files that a store has open, and puts them back.
func TestAMovedOrReplacedFileIsErrUnavailable(t *testing.T) {
	move := func(t *testing.T, from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	for name, change := range map[string]func(t *testing.T, path string) (undo func()){
		"moved": func(t *testing.T, path string) func() {
			move(t, path, path+".away")
			return func() { move(t, path+".away", path) }
		},
		"replaced": func(t *testing.T, path string) func() {
			parts := []string{"", "-wal", "-shm"}
			for _, part := range parts {
				move(t, path+part, path+".away"+part)
			}
			other := open(t, "sqlite:"+path)
			if _, err := applyOne(other, law.Take); err != nil {
				t.Fatal(err)
			}
			other.Close()
			return func() {
				for _, part := range parts {
					move(t, path+".away"+part, path+part)
				}
			}
		},
		"log moved": func(t *testing.T, path string) func() {
			move(t, path+"-wal", path+".away")
			return func() { move(t, path+".away", path+"-wal") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.db")
			link := path + ".link"
			if err := os.Symlink(path, link); err != nil {
				t.Logf("no links here: %v", err)
				link = path
			}
			s := open(t, "sqlite:"+link)
			if _, err := applyOne(s, law.Take); err != nil {
				t.Fatal(err)
			}
			undo := change(t, path)
			if out, err := applyOne(s, law.Take); !errors.Is(err, store.ErrUnavailable) || out.Granted != 0 {
				t.Errorf("take: got %+v, %v; want ErrUnavailable", out, err)
			}
			if _, err := s.Sweep(context.Background(), 10); !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("sweep: got %v, want ErrUnavailable", err)
			}
			if _, _, err := s.Cells(context.Background(), store.Query{}); !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("cells: got %v, want ErrUnavailable", err)
			}
			undo()
			if out, err := applyOne(s, law.Take); err != nil || out.State.Level != 2000 {
				t.Errorf("the file is back: got %+v, %v; want level 2000 after two charges", out, err)
			}
		})
	}
}
