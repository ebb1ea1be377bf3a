package guard_test

import (
	"bytes"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/front/guard"
)

// TestOneLineEachTimeTheStoreGoesAndComesBack checks that the first line has the error, and the second the time.
func TestOneLineEachTimeTheStoreGoesAndComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		p := &process{conn: &connection{remoteStore: newRemoteStore()}}
		p.guard = guard.New(p.conn, &guard.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		defer p.guard.Close()
		p.limiter = headgate.New(p.guard, nil)
		cutTwice(t, p)
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 4 {
			t.Fatalf("got %d lines for two times away, want 4: %s", len(lines), log.String())
		}
		for i, want := range []string{
			"the cable is cut", "after=10.6s answered_without_it=996", "the cable is cut", "after=10.6s answered_without_it=",
		} {
			if !strings.Contains(lines[i], want) {
				t.Errorf("got line %q, want %q in it", lines[i], want)
			}
		}
		// Ten callers failed together. Any number of them may be counted before the line is written.
		_, count, _ := strings.Cut(lines[3], "answered_without_it=")
		if n, err := strconv.Atoi(count); err != nil || n < 991 || n > 1000 {
			t.Errorf("got line %q, want a count from 991 to 1000 in it", lines[3])
		}
	})
}

// TestTurnedReplacesTheLogLines checks that Turned gets the error of an absent store, then nil, and no line is logged.
func TestTurnedReplacesTheLogLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var turns []string
		p := &process{conn: &connection{remoteStore: newRemoteStore()}}
		p.guard = guard.New(p.conn, &guard.Config{
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Turned: func(err error) {
				text := "back"
				if err != nil {
					text = err.Error()
				}
				turns = append(turns, text)
			},
		})
		defer p.guard.Close()
		p.limiter = headgate.New(p.guard, nil)
		cutTwice(t, p)
		cut := errCut.Error()
		if want := []string{cut, "back", cut, "back"}; strings.Join(turns, ",") != strings.Join(want, ",") {
			t.Errorf("got %q, want %q", turns, want)
		}
		if log.Len() > 0 {
			t.Errorf("got log %s, want no lines", log.String())
		}
	})
}

// cutTwice cuts a store off twice, for 10.6 s, while ten callers take every tenth of a second. The breaker
// opens at the fifth take. The first time the callers come one after the other, the second time all at once.
func cutTwice(t *testing.T, p *process) {
	limit := headgate.MustParse("token-bucket 1000/s away allow")
	for _, together := range []bool{false, true} {
		p.conn.fail(errCut)
		for range 100 {
			var callers sync.WaitGroup
			for range 10 {
				callers.Go(func() {
					if _, err := p.limiter.Allow(t.Context(), limit, "k"); err != nil {
						t.Error(err)
					}
				})
				if !together {
					callers.Wait()
				}
			}
			callers.Wait()
			time.Sleep(100 * time.Millisecond)
		}
		p.conn.fail(nil)
		time.Sleep(600 * time.Millisecond)
		if d, err := p.limiter.Allow(t.Context(), limit, "k"); err != nil || d.Via != headgate.ViaStore {
			t.Errorf("after its return: got %+v, %v; want it by the store", d, err)
		}
	}
}
