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

// connections has the writing connections of this process by the names of their files, for limitPages.
var connections sync.Map // name to sqlite3.ExecQuerierContext

func init() {
	sqlite3.RegisterConnectionHook(func(c sqlite3.ExecQuerierContext, dsn string) error {
		if strings.Contains(dsn, "_txlock=immediate") { // the one that writes
			name, _, _ := strings.Cut(dsn, "?")
			connections.Store(filepath.Base(name), c)
		}
		return nil
	})
}

// limitPages bounds the pages of a file, for its one writing connection.
func limitPages(t *testing.T, name string, maxPages int) {
	t.Helper()
	c, ok := connections.Load(name)
	if !ok {
		t.Fatalf("no connection to %s", name)
	}
	if _, err := c.(sqlite3.ExecQuerierContext).ExecContext(context.Background(),
		fmt.Sprintf("pragma max_page_count = %d", maxPages), nil); err != nil {
		t.Fatal(err)
	}
}

// fill takes with new keys until the file is full, and returns the error.
func fill(t *testing.T, s store.Store) error {
	t.Helper()
	for i := range 10_000 {
		op := law.Op{
			Verb: law.Take, Group: 1, Cell: law.Cell{Limit: "fill", Key: fmt.Sprint(i, strings.Repeat("x", 400))},
			Params: budget, Cost: 1000, Count: 1,
		}
		outs := make([]law.Outcome, 1)
		if err := s.Apply(context.Background(), []law.Op{op}, outs); err != nil {
			if outs[0] != (law.Outcome{}) {
				t.Errorf("an Apply that failed left %+v", outs[0])
			}
			return err
		}
	}
	t.Fatal("the file never was full")
	return nil
}

// TestAFullDiskAdmitsNobody fills the disk of a driver alone, and of a driver behind all wrappers.
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
			through := wrap(s)
			limitPages(t, file, 40)
			if err := fill(t, through); !errors.Is(err, store.ErrNoSpace) ||
				errors.Is(err, store.ErrUnknownOutcome) {
				t.Errorf("on a full disk: %v, want ErrNoSpace", err)
			}
			ops := make([]law.Op, 8)
			for i := range ops { // too long for what is left of a page
				ops[i] = law.Op{
					Verb: law.Take, Group: uint32(i),
					Cell: law.Cell{Limit: "one", Key: fmt.Sprint(i, strings.Repeat("y", 500))}, Cost: 1000, Count: 1,
					Params: law.Params{
						Kind: law.Bucket, Anchor: law.Epoch, Unit: 1000, Capacity: 5000,
						Step: 365 * 86_400_000_000, Drain: law.Max,
					},
				}
			}
			failed := 0
			for range 300 {
				outs := make([]law.Outcome, len(ops))
				if err := through.Apply(context.Background(), ops, outs); err != nil {
					failed++
					for _, out := range outs {
						if out != (law.Outcome{}) {
							t.Fatalf("an Apply that failed left %+v", out)
						}
					}
				}
			}
			if failed == 0 {
				t.Error("the disk was not full: nothing is tested")
			}
			limitPages(t, file, 10_000)
			again := []law.Op{ops[0]} // the circuit breaker of the stack asks within half a second
			again[0].Verb, again[0].Cell.Limit = law.Check, "other"
			await.NoError(t, "an answer now that there is room", func() error {
				return through.Apply(context.Background(), again, make([]law.Outcome, 1))
			})
			admitted := 0
			for range 10 {
				outs := make([]law.Outcome, len(ops))
				if err := through.Apply(context.Background(), ops, outs); err != nil {
					t.Fatalf("with room again: %v", err)
				}
				admitted += int(outs[0].Granted)
			}
			if admitted != 5 {
				t.Errorf("with room again %d of 5 pass, after %d failures", admitted, failed)
			}
		})
	}
}

// TestAFileThatIsGoneIsNoticed deletes and replaces files that a store has open.
func TestAFileThatIsGoneIsNoticed(t *testing.T) {
	move := func(t *testing.T, from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	for name, change := range map[string]func(t *testing.T, path string) (undo func()){
		"deleted": func(t *testing.T, path string) func() {
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
		"log deleted": func(t *testing.T, path string) func() {
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
				t.Errorf("take: %+v, %v; want ErrUnavailable", out, err)
			}
			if _, err := s.Sweep(context.Background(), 10); !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("sweep: %v, want ErrUnavailable", err)
			}
			if _, _, err := s.Cells(context.Background(), store.Query{}); !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("cells: %v, want ErrUnavailable", err)
			}
			undo()
			if out, err := applyOne(s, law.Take); err != nil || out.State.Level != 2000 {
				t.Errorf("the file is back: %+v, %v; want the second of two charges", out, err)
			}
		})
	}
}
