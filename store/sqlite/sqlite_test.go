package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/sqlite"
	"github.com/headgate/headgate/store/storetest"
)

func TestMain(m *testing.M) {
	if url := dbtest.Task(); url != "" {
		chargeForever(url)
		return
	}
	leaktest.Main(m)
}

func open(tb testing.TB, url string) *sqlite.Store {
	tb.Helper()
	s, err := sqlite.Open(context.Background(), url, nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

func TestConformance(t *testing.T) {
	t.Parallel()
	t.Run("a file", func(t *testing.T) {
		t.Parallel() // it waits for the disk
		testConformance(t, "")
	})
}

func TestConformanceInMemory(t *testing.T) {
	tier.Engines(t)
	storetest.Run(t, func(tb testing.TB) store.Store { return open(tb, "sqlite::memory:") }, nil)
}

// TestConformanceSynchronousNormal runs the suite on files of which a power failure may undo the last decisions.
func TestConformanceSynchronousNormal(t *testing.T) {
	tier.Engines(t)
	testConformance(t, "?synchronous=normal")
}

func testConformance(t *testing.T, options string) {
	t.Helper()
	storetest.Run(t, func(tb testing.TB) store.Store {
		return open(tb, "sqlite:"+filepath.Join(tb.TempDir(), "state.db")+options)
	}, &storetest.Options{
		Histories: tier.Pick(150, 3000, 3000),
	})
}

var largeBucket = law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 1_000_000_000, Step: 3_600_000_000, Drain: 1000}

func applyOne(s *sqlite.Store, verb law.Verb) (law.Outcome, error) {
	outs := make([]law.Outcome, 1)
	err := s.Apply(context.Background(),
		[]law.Op{{Verb: verb, Cell: law.Cell{Limit: "l", Key: "k"}, Params: largeBucket, Cost: 1000, Count: 1}}, outs)
	return outs[0], errors.Join(err, outs[0].Err)
}

// chargeForever takes again and again, and prints a line after each admission.
func chargeForever(url string) {
	s, err := sqlite.Open(context.Background(), url, nil)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for {
		if _, err := applyOne(s, law.Take); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Stdout.WriteString("+\n")
	}
}

func TestStateSurvivesKill9(t *testing.T) {
	url := "sqlite:" + filepath.Join(t.TempDir(), "state.db")
	acknowledged := 0
	for range 3 {
		child := dbtest.StartChild(t, url)
		buf := make([]byte, 2)
		for range 200 {
			if n, err := child.Out.Read(buf); err != nil || n == 0 {
				t.Fatalf("the child ended: %v", err)
			}
			acknowledged++
		}
		child.Kill()
		_ = child.Wait()
	}
	out, err := applyOne(open(t, url), law.Check)
	if err != nil {
		t.Fatal(err)
	}
	if charged := out.State.Level / 1000; charged < int64(acknowledged) {
		t.Errorf("got %d charges after kill -9, want the %d acknowledged ones at least", charged, acknowledged)
	}
}

func TestConcurrentOpensOfANewFileSucceed(t *testing.T) {
	for range tier.Pick(4, 20, 100) {
		url := "sqlite:" + filepath.Join(t.TempDir(), "state.db")
		var openers sync.WaitGroup
		for range 16 {
			openers.Go(func() {
				s, err := sqlite.Open(context.Background(), url, nil)
				if err != nil {
					t.Error(err)
					return
				}
				s.Close()
			})
		}
		openers.Wait()
	}
}

func TestTwoStoresShareAFile(t *testing.T) {
	url := "sqlite:" + filepath.Join(t.TempDir(), "state.db")
	a, b := open(t, url), open(t, url)
	for range 50 {
		for _, s := range []*sqlite.Store{a, b} {
			if out, err := applyOne(s, law.Take); err != nil || out.Granted != 1 {
				t.Fatalf("got %+v, %v; want it admitted", out, err)
			}
		}
	}
	if out, _ := applyOne(a, law.Check); out.State.Level != 100*1000 {
		t.Errorf("got level %d after 100 charges, want 100,000", out.State.Level)
	}
}

// TestAFileOfALaterRevisionIsUsed opens a file to which a newer binary of the same state has added a table.
func TestAFileOfALaterRevisionIsUsed(t *testing.T) {
	url := "sqlite:" + filepath.Join(t.TempDir(), "newer.db")
	for range 2 {
		s, err := sqlite.Open(t.Context(), url, nil)
		if err != nil {
			t.Fatal(err)
		}
		d, err := headgate.New(s, nil).Allow(t.Context(), headgate.MustParse("token-bucket 1/1h burst 2"), "k")
		if err != nil || !d.Allowed {
			t.Errorf("got %+v, %v; want it allowed", d, err)
		}
		s.Close()
		db, err := sql.Open("sqlite", strings.TrimPrefix(url, "sqlite:"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec("create table if not exists added (x int); pragma user_version = 4999"); err != nil {
			t.Fatal(err)
		}
		db.Close()
	}
}

func TestOpenOfABadFileOrURLFails(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("this is no database\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	newer, older := filepath.Join(dir, "newer.db"), filepath.Join(dir, "older.db")
	for file, version := range map[string]int{newer: 5001, older: 3007} {
		db, err := sql.Open("sqlite", file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec(fmt.Sprintf("pragma user_version = %d", version)); err != nil {
			t.Fatal(err)
		}
		db.Close()
	}
	for _, tt := range []struct {
		url, text string
		want      error
	}{
		{"sqlite:" + dir, "directory", store.ErrSetup},
		{"sqlite:" + filepath.Join(dir, "no", "such", "folder.db"), "no such", store.ErrSetup},
		{"sqlite:" + text, "not a database", store.ErrSetup},
		{"sqlite:" + newer, "state 5", store.ErrSchemaNewer},
		{"sqlite:" + older, "state 3, from before the first release: delete it", store.ErrSetup},
		{"sqlite:", "no file", store.ErrInvalid},
		{"sqlite:x.db?sync=off", `"sync"`, store.ErrInvalid},
		{"sqlite:x.db?synchronous=off", `"off"`, store.ErrInvalid},
		{"mysql:x", "begin with sqlite:", store.ErrInvalid},
	} {
		_, err := sqlite.Open(context.Background(), tt.url, nil)
		if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: got %v, want %v that names %s", tt.url, err, tt.want, tt.text)
		}
	}
}

func TestSweepRemovesAtMostMaxCells(t *testing.T) {
	s := open(t, "sqlite:"+filepath.Join(t.TempDir(), "state.db")+"?synchronous=normal")
	const cells = 4999
	ops, outs := make([]law.Op, cells), make([]law.Outcome, cells)
	for i := range ops {
		ops[i] = law.Op{
			Verb: law.Take, Group: uint32(i), Cell: law.Cell{Limit: "l", Key: fmt.Sprint(i)}, Now: 1_000_000,
			Params: law.Params{Kind: law.Bucket, Unit: 1, Capacity: 1, Step: 1, Drain: 1}, Cost: 1, Count: 1,
		}
	}
	if err := s.Apply(context.Background(), ops, outs); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{3000, 1999, 0} { // 4999 in all
		if n, err := s.Sweep(context.Background(), 3000); err != nil || n != want {
			t.Errorf("got %d swept, %v; want %d", n, err, want)
		}
	}
}

// TestSweepCountsKeysEveryFiveMinutes checks KeyCounts: sweeps count first after a minute, then after 5 minutes.
func TestSweepCountsKeysEveryFiveMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, "sqlite::memory:")
		take := func(limit string, keys int) {
			for k := range keys {
				op := law.Op{
					Verb: law.Take, Cell: law.Cell{Limit: limit, Key: fmt.Sprint(k)}, Params: largeBucket, Cost: 1000,
					Count: 1,
				}
				outs := make([]law.Outcome, 1)
				if err := s.Apply(t.Context(), []law.Op{op}, outs); err != nil || outs[0].Granted != 1 {
					t.Fatalf("got %+v, %v; want it admitted", outs[0], err)
				}
			}
		}
		expectCounts := func(want ...store.KeyCount) {
			t.Helper()
			if _, err := s.Sweep(t.Context(), 1000); err != nil {
				t.Fatal(err)
			}
			got, err := s.KeyCounts(t.Context())
			for i := range got {
				got[i].At = 0
			}
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("got %+v, %v; want %+v", got, err, want)
			}
		}
		if got, err := s.KeyCounts(t.Context()); err != nil || len(got) > 0 {
			t.Errorf("before a sweep: got %+v, %v; want no counts", got, err)
		}
		expectCounts() // a process that sweeps once counts nothing
		take("few", 2)
		take("many", 3)
		time.Sleep(time.Minute)
		expectCounts(store.KeyCount{Limit: "many", Keys: 3}, store.KeyCount{Limit: "few", Keys: 2})
		take("more", 4)
		expectCounts(store.KeyCount{Limit: "many", Keys: 3}, store.KeyCount{Limit: "few", Keys: 2})
		time.Sleep(5 * time.Minute)
		expectCounts(store.KeyCount{Limit: "more", Keys: 4}, store.KeyCount{Limit: "many", Keys: 3},
			store.KeyCount{Limit: "few", Keys: 2})
	})
}
