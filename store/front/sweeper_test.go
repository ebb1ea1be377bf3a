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

// logBuffer collects the lines of a log.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// take returns what was logged since the last call.
func (b *logBuffer) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.buf.Reset()
	return b.buf.String()
}

func (b *logBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

// TestShortLivedKeysLeaveTheTable charges 5,000 keys, each full for a tenth of a second, until they are swept.
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
			t.Fatalf("got %+v, want it allowed", a)
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
		t.Errorf("got %+v, want %d rows swept", st, keys)
	}
}

// TestTheSweeperSurvivesErrors checks that there is one line for each class of errors, and one when it works again.
func TestTheSweeperSurvivesErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		r := newRemote()
		s := front.New(r, &front.Config{Logger: log.logger()})
		setErr := func(err error) { r.sweepErr.Store(&err) }
		run := func(d time.Duration) (sweeps int64, text string) {
			oldCalls := r.sweepCalls.Load()
			time.Sleep(d)
			synctest.Wait()
			return r.sweepCalls.Load() - oldCalls, log.take()
		}
		if n, text := run(time.Hour); n < 300 || n > 420 || text != "" {
			t.Errorf("got %d sweeps in an hour, log %s; want 300 to 420, no line", n, text)
		}
		setErr(fmt.Errorf("%w: no right", store.ErrSetup))
		if n, text := run(time.Hour); n < 40 || n > 90 || strings.Count(text, "\n") != 1 ||
			!strings.Contains(text, "no right") {
			t.Errorf("got %d sweeps in an hour of errors, log %s; want 40 to 90, one line", n, text)
		}
		setErr(fmt.Errorf("%w: gone", store.ErrUnavailable))
		if _, text := run(time.Hour); strings.Count(text, "\n") != 1 || !strings.Contains(text, "gone") {
			t.Errorf("another class: got log %s, want one line", text)
		}
		setErr(fmt.Errorf("%w: another right", store.ErrSetup))
		if _, text := run(time.Hour); text != "" {
			t.Errorf("a class that was logged: got log %s, want no line", text)
		}
		setErr(errors.New("without a class"))
		if _, text := run(time.Hour); strings.Count(text, "\n") != 1 {
			t.Errorf("an error of no class: got log %s, want one line", text)
		}
		if st := s.Stats(); st.SweepErrors < 100 || st.LastSweepError == nil || st.Swept != 0 {
			t.Errorf("got %+v, want 100 errors at least, and nothing swept", st)
		}
		setErr(nil)
		if n, text := run(time.Hour); n < 290 || strings.Count(text, "\n") != 1 || !strings.Contains(text, "again") {
			t.Errorf("got %d sweeps after the errors, log %s; want 290 at least, one line", n, text)
		}
		if st := s.Stats(); st.LastSweepError != nil || time.Since(st.LastSweep) > time.Minute {
			t.Errorf("got %+v, want a sweep without an error within a minute", st)
		}
		s.Close()
	})
}

// TestTheSweeperEndsWithTheStore checks that the sweeper ends, without a line, when it finds the store closed.
func TestTheSweeperEndsWithTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		r := newRemote()
		s := front.New(r, &front.Config{Logger: log.logger()})
		r.Store.Close()
		time.Sleep(time.Hour)
		if text := log.take(); r.sweepCalls.Load() != 1 || text != "" {
			t.Errorf("got %d sweeps of a closed store, log %s; want 1, no line", r.sweepCalls.Load(), text)
		}
		s.Close()
	})
}

// TestTheSweeperPausesBrieflyWhileKeysAreLeft checks that 100,000 keys are gone within 14 s.
func TestTheSweeperPausesBrieflyWhileKeysAreLeft(t *testing.T) {
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
		time.Sleep(14 * time.Second) // the first sweep comes within 10 s, and it takes 20 of them
		if st := s.Stats(); st.Swept != 100_000 {
			t.Errorf("got %+v, want 100,000 swept", st)
		}
		s.Close()
	})
}

// TestManyOpsEndALongSweepPause checks that a sweep comes within 3 s after 5000 ops, and not before.
func TestManyOpsEndALongSweepPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRemote()
		// The first sweep comes at a random time within SweepEvery. With an hour it came here once in 300 runs.
		s := front.New(r, &front.Config{SweepEvery: 1_000_000 * time.Hour})
		l, limit := headgate.New(s, nil), headgate.MustParse("fixed-window 1/30d")
		for i, want := range []int64{0, 1, 1, 2, 2} { // 2500 keys each
			for n := range 2500 {
				if _, err := l.Allow(t.Context(), limit, fmt.Sprint(i, n)); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(3 * time.Second)
			if n := r.sweepCalls.Load(); n != want {
				t.Errorf("got %d sweeps after %d keys, want %d", n, 2500*(i+1), want)
			}
		}
		s.Close()
	})
}

func TestSweepEveryIsTheMeanPause(t *testing.T) {
	// The fewest and the most sweeps in five minutes, or in a second for 1 ns, which counts as 1 ms. A pause is random,
	// from half of SweepEvery to three halves.
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
			if n := r.sweepCalls.Load(); n < want[0] || n > want[1] {
				t.Errorf("SweepEvery %d: got %d sweeps, want %d to %d", every, n, want[0], want[1])
			}
		})
	}
}

// TestStatsCountAnswersAndSweeps checks also that a sweep with a cancelled context is not counted.
func TestStatsCountAnswersAndSweeps(t *testing.T) {
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
			t.Errorf("got %+v, want 4 repeated, 7 retries, and 1 of the other counts", st)
		}
		allow("token-bucket 1000000/s burst 1000000 prefetch 10%", 100)
		st := s.Stats()
		if st.Prefetched < 80 || st.Prefetched+st.Callers != 101 || st.Batches != r.applyCalls.Load() {
			t.Errorf("got %+v, want 80 of 101 prefetched at least, and %d batches", st, r.applyCalls.Load())
		}
		if _, err := s.Sweep(t.Context(), 10); err != nil {
			t.Fatal(err)
		}
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Sweep(cancelled, 10); err == nil {
			t.Error("a sweep with a cancelled context succeeded")
		}
		if st := s.Stats(); st.Sweeps != 1 || st.SweepErrors != 0 {
			t.Errorf("got %+v, want one sweep, and no error", st)
		}
	})
}

// TestStatsWhileCallersCome reads Stats while callers take, for the race detector.
func TestStatsWhileCallersCome(t *testing.T) {
	r := newRemote()
	s := front.New(r, &front.Config{
		SweepEvery: time.Millisecond, Guard: &front.GuardConfig{Deadline: time.Minute}, // on a busy machine
	})
	l, limit := headgate.New(s, nil), headgate.MustParse("token-bucket 1000/s burst 10")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				if _, err := l.Allow(context.Background(), limit, "k"); err != nil {
					t.Error(err)
				}
				s.Stats()
			}
		})
	}
	wg.Wait()
	if st := s.Stats(); st.Repeated+st.Callers < 1600 { // a call may count as both
		t.Errorf("got %+v, want 1600 calls at least", st)
	}
	s.Close()
}

// TestAStoreInThisProcessHasNoWrappers checks that New adds no wrappers to a memory store, and that Stats stay zero.
func TestAStoreInThisProcessHasNoWrappers(t *testing.T) {
	inner := memory.New(nil)
	s := front.New(inner, noSweeper)
	defer s.Close()
	if s.Unwrap() != store.Store(inner) {
		t.Error("Unwrap returns a wrapper, want the store")
	}
	out := make([]law.Outcome, 1)
	op := law.Op{
		Verb: law.Take, Group: 1, Cell: law.Cell{Limit: "l", Key: "k"},
		Params: law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 1000, Step: 1000, Drain: 1}, Cost: 1000, Count: 1,
	}
	if err := s.Apply(t.Context(), []law.Op{op}, out); err != nil || out[0].Granted != 1 {
		t.Errorf("got %+v, %v; want it granted", out[0], err)
	}
	if st := s.Stats(); st != (front.Stats{}) {
		t.Errorf("got %+v, want zero", st)
	}
}
