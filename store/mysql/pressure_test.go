package mysql_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/history/record"
	"github.com/headgate/headgate/internal/testing/sim/check"
	"github.com/headgate/headgate/store/mysql"
)

// hotKeyLoad has callers that take from one key until they are stopped, each by its own store, and counts the answers.
type hotKeyLoad struct {
	mu    sync.Mutex
	asker *record.Asker
	record.Answers
	firstAt, lastAt time.Time // the earliest and the latest time of the admitted decisions

	stop context.CancelFunc
	wg   sync.WaitGroup
}

// startLoad starts callers, and spreads their stores over the URLs.
func startLoad(t *testing.T, callers int, asker *record.Asker, urls ...string) *hotKeyLoad {
	t.Helper()
	h := &hotKeyLoad{asker: asker}
	ctx, stop := context.WithCancel(context.Background())
	h.stop = stop
	t.Cleanup(h.end)
	for i := range callers {
		h.wg.Go(func() {
			s, err := mysql.Open(context.Background(), urls[i%len(urls)], nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			for l := headgate.New(s, nil); ctx.Err() == nil; {
				h.take(t, l)
			}
		})
	}
	return h
}

// take makes one call of Allow, and records and counts its answer.
func (h *hotKeyLoad) take(t *testing.T, l *headgate.Limiter) {
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Second)
	defer stop()
	d, err := h.asker.Allow(ctx, "test", l)
	h.mu.Lock()
	defer h.mu.Unlock()
	if unexpected := h.Add(d, err); unexpected != nil {
		t.Errorf("take: %v", unexpected)
	}
	if err == nil && d.Allowed {
		if h.firstAt.IsZero() || d.At.Before(h.firstAt) {
			h.firstAt = d.At
		}
		if d.At.After(h.lastAt) {
			h.lastAt = d.At
		}
	}
}

// admissions returns how many calls were admitted so far.
func (h *hotKeyLoad) admissions() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.Allowed
}

// end stops the callers and waits for them.
func (h *hotKeyLoad) end() {
	h.stop()
	h.wg.Wait()
}

// checkHistory checks the recorded history, after the callers were stopped, and returns the status of the key.
func (h *hotKeyLoad) checkHistory(t *testing.T, s *mysql.Store) headgate.Status {
	t.Helper()
	status, err := h.asker.RecordFinalState(t.Context(), newLimiter(s))
	if err != nil {
		t.Fatal(err)
	}
	for _, violation := range check.Check(h.asker.Recorder.History()) {
		t.Error(violation)
	}
	return status
}
