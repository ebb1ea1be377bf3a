package front_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
	"github.com/headgate/headgate/store/memory"
)

// lines is the log of a test.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// take returns what was logged since the last call.
func (l *lines) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.buf.Reset()
	return l.buf.String()
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// TestShortLivedKeysLeaveTheTable charges 5,000 keys once. Each can refuse somebody for a
// tenth of a second. The table becomes empty without a call by the user.
func TestShortLivedKeysLeaveTheTable(t *testing.T) {
	const keys = 5000
	begin, pg := time.Now(), openPostgres(t, migrated.Postgres(t))
	s := front.New(pg, &front.Config{
		SweepEvery: 50 * time.Millisecond, Guard: &front.GuardConfig{Deadline: time.Minute},
	})
	defer s.Close()
	l, limit := headgate.New(s, nil), headgate.MustParse("token-bucket 10/s burst 1")
	requests := make([]headgate.Request, keys)
	for i := range requests {
		requests[i].Charges = []headgate.Charge{{Limit: limit, Key: fmt.Sprint("key ", i)}}
	}
	answers, err := l.Batch(t.Context(), requests)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range answers {
		if a.Err != nil || !a.Decision.Allowed {
			t.Fatalf("%+v", a)
		}
	}
	await.Until(t, "an empty table", func() bool {
		cells, _, err := pg.Cells(t.Context(), store.Query{})
		if err != nil {
			t.Fatal(err)
		}
		return len(cells) == 0
	})
	// The last sweep is counted a moment after its rows are gone.
	await.Until(t, "the last row to be counted", func() bool { return s.Stats().Swept >= keys })
	if st := s.Stats(); st.Swept != keys || st.SweepErrors != 0 || st.LastSweepError != nil ||
		st.LastSweep.Before(begin) {
		t.Errorf("%+v, want %d rows swept", st, keys)
	}
}

// TestTheSweeperSurvivesErrors sees one line for each class of errors, longer and longer
// pauses, and a line when it works again.
func TestTheSweeperSurvivesErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		r := newRemote()
		s := front.New(r, &front.Config{Logger: log.logger()})
		fail := func(err error) { r.fault.Store(&err) }
		during := func(d time.Duration) (sweeps int64, said string) {
			before := r.swept.Load()
			time.Sleep(d)
			synctest.Wait()
			return r.swept.Load() - before, log.take()
		}
		if n, said := during(time.Hour); n < 300 || n > 420 || said != "" {
			t.Errorf("%d sweeps in an hour: %s", n, said)
		}
		fail(fmt.Errorf("%w: no right", store.ErrSetup))
		if n, said := during(time.Hour); n < 40 || n > 90 || strings.Count(said, "\n") != 1 ||
			!strings.Contains(said, "no right") {
			t.Errorf("%d sweeps in an hour of errors: %s", n, said)
		}
		fail(fmt.Errorf("%w: gone", store.ErrUnavailable))
		if _, said := during(time.Hour); strings.Count(said, "\n") != 1 || !strings.Contains(said, "gone") {
			t.Errorf("another class: %s", said)
		}
		fail(fmt.Errorf("%w: another right", store.ErrSetup))
		if _, said := during(time.Hour); said != "" {
			t.Errorf("a class that was told: %s", said)
		}
		fail(errors.New("of no class"))
		if _, said := during(time.Hour); strings.Count(said, "\n") != 1 {
			t.Errorf("of no class: %s", said)
		}
		if st := s.Stats(); st.SweepErrors < 100 || st.LastSweepError == nil || st.Swept != 0 {
			t.Errorf("%+v", st)
		}
		fail(nil)
		if n, said := during(time.Hour); n < 290 || strings.Count(said, "\n") != 1 || !strings.Contains(said, "again") {
			t.Errorf("%d sweeps after the errors: %s", n, said)
		}
		if st := s.Stats(); st.LastSweepError != nil || time.Since(st.LastSweep) > time.Minute {
			t.Errorf("%+v", st)
		}
		s.Close()
	})
}

// TestTheSweeperEndsWithTheStore that somebody else has closed.
func TestTheSweeperEndsWithTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		r := newRemote()
		s := front.New(r, &front.Config{Logger: log.logger()})
		r.Store.Close()
		time.Sleep(time.Hour)
		if said := log.take(); r.swept.Load() != 1 || said != "" {
			t.Errorf("%d sweeps of a closed store: %s", r.swept.Load(), said)
		}
		s.Close()
	})
}

// TestTheSweeperComesBackSoonWhileThereIsMore: what it may remove at once is no limit.
func TestTheSweeperComesBackSoonWhileThereIsMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memory.New(nil)
		l, limit := headgate.New(inner, nil), headgate.MustParse("token-bucket 10/s burst 1")
		for i := range 100_000 {
			if _, err := l.Allow(t.Context(), limit, fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		s := front.New(inner, nil)
		time.Sleep(14 * time.Second) // the first within 10 s, then 20 of them
		if st := s.Stats(); st.Swept != 100_000 {
			t.Errorf("%+v", st)
		}
		s.Close()
	})
}

// TestAFloodEndsALongPause: a sweep comes within some seconds after as many ops went to the store as a sweep removes,
// and not before.
func TestAFloodEndsALongPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRemote()
		// The first sweep comes at a random time within SweepEvery: within an hour it came in here once in 300 runs.
		s := front.New(r, &front.Config{SweepEvery: 1_000_000 * time.Hour})
		l, limit := headgate.New(s, nil), headgate.MustParse("fixed-window 1/30d")
		for i, want := range []int64{0, 1, 1, 2, 2} { // 2500 keys each
			for n := range 2500 {
				if _, err := l.Allow(t.Context(), limit, fmt.Sprint(i, n)); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(3 * time.Second)
			if n := r.swept.Load(); n != want {
				t.Errorf("%d sweeps after %d keys, want %d", n, 2500*(i+1), want)
			}
		}
		s.Close()
	})
}

func TestHowOftenItSweeps(t *testing.T) {
	// In five minutes; of 1 ns, which counts as 1 ms, in a second. A pause is random, from half of the mean to three
	// halves, and these are the fewest and the most that there can be.
	for every, want := range map[time.Duration][2]int64{
		-1: {0, 0}, math.MinInt64: {0, 0}, 0: {20, 61}, 1: {667, 2001}, time.Minute: {3, 11}, math.MaxInt64: {0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRemote()
			s := front.New(r, &front.Config{SweepEvery: every})
			if every == 1 {
				time.Sleep(time.Second)
			} else {
				time.Sleep(5 * time.Minute)
			}
			s.Close()
			if n := r.swept.Load(); n < want[0] || n > want[1] {
				t.Errorf("SweepEvery %d: %d sweeps, want %d to %d", every, n, want[0], want[1])
			}
		})
	}
}

// TestStats counts each kind of answer.
func TestStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRemote()
		s := front.New(r, noSweeper)
		defer s.Close()
		l := headgate.New(s, nil)
		allow := func(notation string, n int) {
			for range n {
				if _, err := l.Allow(t.Context(), headgate.MustParse(notation), "k"); err != nil {
					t.Fatal(err)
				}
			}
		}
		allow("fixed-window 1/365d", 5) // one from the store, four repeated
		if st := s.Stats(); st.Repeated != 4 || st.Callers != 1 || st.Batches != 1 || st.Ops != 1 || st.Retries != 7 {
			t.Errorf("%+v", st)
		}
		allow("token-bucket 1000000/s burst 1000000 prefetch 10%", 100)
		st := s.Stats()
		if st.Prefetched < 80 || st.Prefetched+st.Callers != 101 || st.Batches != r.asked.Load() {
			t.Errorf("%+v after %d batches", st, r.asked.Load())
		}
		if _, err := s.Sweep(t.Context(), 10); err != nil {
			t.Fatal(err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Sweep(ended, 10); err == nil {
			t.Error("a sweep in a context that has ended")
		}
		if st := s.Stats(); st.Sweeps != 1 || st.SweepErrors != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// TestStatsWhileCallersCome is for the race detector.
func TestStatsWhileCallersCome(t *testing.T) {
	r := newRemote()
	s := front.New(r, &front.Config{
		SweepEvery: time.Millisecond, Guard: &front.GuardConfig{Deadline: time.Minute}, // on a busy machine
	})
	l, limit := headgate.New(s, nil), headgate.MustParse("token-bucket 1000/s burst 10")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				if _, err := l.Allow(context.Background(), limit, "k"); err != nil {
					t.Error(err)
				}
				s.Stats()
			}
		})
	}
	all.Wait()
	if st := s.Stats(); st.Repeated+st.Callers < 1600 { // one who comes as a refusal ends is both
		t.Errorf("%+v", st)
	}
	s.Close()
}

// TestAStoreInThisProcessHasNoWrappers: its Stats are those of the sweeper.
func TestAStoreInThisProcessHasNoWrappers(t *testing.T) {
	inner := memory.New(nil)
	s := front.New(inner, noSweeper)
	defer s.Close()
	if s.Unwrap() != store.Store(inner) {
		t.Error("something is in front of the store")
	}
	out := make([]law.Outcome, 1)
	op := law.Op{
		Verb: law.Take, Group: 1, Cell: law.Cell{Limit: "l", Key: "k"},
		Params: law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 1000, Step: 1000, Drain: 1}, Cost: 1000, Count: 1,
	}
	if err := s.Apply(t.Context(), []law.Op{op}, out); err != nil || out[0].Granted != 1 {
		t.Errorf("%+v, %v", out[0], err)
	}
	if st := s.Stats(); st != (front.Stats{}) {
		t.Errorf("%+v", st)
	}
}
