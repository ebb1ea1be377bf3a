package guard_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/front/guard"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// shareLimit is decided by a share while the store is away.
var shareLimit = headgate.MustParse("token-bucket 100/s away share")

// logBuffer collects the lines of a log. It is safe for concurrent use.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// TestOnlyAThousandProcessesHaveAShare checks that the thousandth process gets a share, and the next one none.
func TestOnlyAThousandProcessesHaveAShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := newRemoteStore()
		defer shared.Close()
		outs := make([]law.Outcome, 1)
		err := shared.Apply(t.Context(), []law.Op{{ // a lease for 999 processes
			Verb: law.Take, Cell: law.Cell{Limit: "headgate:instances", Key: "alive"}, Cost: 999, Count: 1,
			Params: law.Params{
				Kind: law.Log, Unit: 1, Capacity: 1000, Step: guard.DefaultShareLife.Microseconds(), Leased: true,
			},
		}}, outs)
		if err != nil || outs[0].Granted != 1 {
			t.Fatalf("got %+v, %v; want it granted", outs[0], err)
		}
		thousandth := newProcess(shared, nil)
		defer thousandth.guard.Close()
		takeOne(t, thousandth, shareLimit)
		waitForShares()
		if got := thousandth.guard.Stats().Share; got != 0.5 {
			t.Errorf("the thousandth process: got share %v, want half, for one of two leases", got)
		}
		var log logBuffer
		conn := &connection{remoteStore: shared}
		g := guard.New(conn, &guard.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		defer g.Close()
		takeOne(t, &process{conn: conn, guard: g, limiter: headgate.New(g, nil)}, shareLimit)
		waitForShares()
		if got := g.Stats().Share; got != 0 {
			t.Errorf("the next process: got share %v, want 0", got)
		}
		if !strings.Contains(log.String(), ": 1000 processes have a share") || strings.Count(log.String(), "\n") != 1 {
			t.Errorf("got log\n%s", log.String())
		}
	})
}

// errForbidden is an error of a store that answers.
var errForbidden = fmt.Errorf("%w: no right to write leases", store.ErrSetup)

// TestTheLogSaysOnceThatAProcessHasNoShare checks that there is one line each time that a process loses its share.
func TestTheLogSaysOnceThatAProcessHasNoShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := newRemoteStore()
		defer shared.Close()
		var log logBuffer
		p := &process{conn: &connection{remoteStore: shared}}
		p.guard = guard.New(p.conn, &guard.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		p.limiter = headgate.New(p.guard, nil)
		takeOne(t, p, shareLimit)
		waitForShares()
		for i, lines := range []int{1, 2} {
			p.conn.fail(errForbidden)
			time.Sleep(10 * time.Second)
			if got := strings.Count(log.String(), "could not say that it is alive"); got != lines {
				t.Errorf("got %d lines after interruption %d:\n%s", got, i+1, log.String())
			}
			p.conn.fail(nil)
			time.Sleep(10 * time.Second)
		}
		p.conn.silent.Store(true)
		p.guard.Close() // logs nothing
		if got := strings.Count(log.String(), "\n"); got != 2 {
			t.Errorf("got %d lines after Close, want 2:\n%s", got, log.String())
		}
	})
}

// TestCallsOfTheStoreForAShare counts the calls of the store for a share in 20 seconds, and in 20 seconds of silence.
func TestCallsOfTheStoreForAShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := newRemoteStore()
		defer shared.Close()
		p := newProcess(shared, &guard.Config{ShareLife: 30 * time.Second})
		defer p.guard.Close()
		takeOne(t, p, shareLimit)
		waitForShares()
		time.Sleep(time.Second / 2) // between two beats
		oldCalls := p.conn.calls.Load()
		time.Sleep(20 * time.Second)
		if got := p.conn.calls.Load() - oldCalls; got != 40 {
			t.Errorf("got %d calls in 20 seconds, want 40: one a second for each of two leases", got)
		}
		p.conn.silent.Store(true)
		time.Sleep(time.Second)
		oldCalls = p.conn.calls.Load()
		time.Sleep(20 * time.Second)
		if got := p.conn.calls.Load() - oldCalls; got != 5 {
			t.Errorf("got %d calls in 20 seconds of silence, want 5: one every 4 seconds, which waits for 3", got)
		}
		p.conn.silent.Store(false)
	})
}

// TestAReconnectedProcessHasAShareAgain cuts one of two processes off until its leases have ended.
func TestAReconnectedProcessHasAShareAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := newRemoteStore()
		defer shared.Close()
		cfg := &guard.Config{ShareLife: time.Minute}
		a, b := newProcess(shared, cfg), newProcess(shared, cfg)
		defer a.guard.Close()
		defer b.guard.Close()
		takeOne(t, a, shareLimit)
		takeOne(t, b, shareLimit)
		waitForShares()
		wantShares := func(when string, wantA, wantB float64) {
			t.Helper()
			if gotA, gotB := a.guard.Stats().Share, b.guard.Stats().Share; gotA != wantA || gotB != wantB {
				t.Errorf("%s: got shares %v and %v, want %v and %v", when, gotA, gotB, wantA, wantB)
			}
		}
		wantShares("at first", 0.5, 0.5)
		time.Sleep(time.Second / 2) // between two beats
		a.conn.fail(errCut)
		time.Sleep(59 * time.Second)
		wantShares("before the leases end", 0.5, 0.5)
		time.Sleep(4 * time.Second)
		wantShares("after it", 0, 1)
		a.conn.fail(nil)
		waitForShares()
		wantShares("when the store is reached again", 0.5, 0.5)
	})
}
