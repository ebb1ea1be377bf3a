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

// pressure has callers that take from one key without end, each by a store of its own, and the answers that they got.
type pressure struct {
	mu  sync.Mutex
	ask *record.Asker
	record.Answers
	first, last time.Time // for which admissions were decided

	stop context.CancelFunc
	wg   sync.WaitGroup
}

// startPressure starts callers that take at some URLs, in turn.
func startPressure(t *testing.T, callers int, ask *record.Asker, urls ...string) *pressure {
	t.Helper()
	p := &pressure{ask: ask}
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	t.Cleanup(p.end)
	for i := range callers {
		p.wg.Go(func() {
			s, err := mysql.Open(context.Background(), urls[i%len(urls)], nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			for l := headgate.New(s, nil); ctx.Err() == nil; {
				p.take(t, l)
			}
		})
	}
	return p
}

func (p *pressure) take(t *testing.T, l *headgate.Limiter) {
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Second)
	defer stop()
	d, err := p.ask.Allow(ctx, "test", l)
	p.mu.Lock()
	defer p.mu.Unlock()
	if other := p.Add(d, err); other != nil {
		t.Errorf("take: %v", other)
	}
	if err == nil && d.Allowed {
		if p.first.IsZero() || d.At.Before(p.first) {
			p.first = d.At
		}
		if d.At.After(p.last) {
			p.last = d.At
		}
	}
}

// passed returns how many were admitted so far.
func (p *pressure) passed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Allowed
}

// end stops the callers.
func (p *pressure) end() {
	p.stop()
	p.wg.Wait()
}

// checked checks the history after the callers were stopped, and returns the status of the key.
func (p *pressure) checked(t *testing.T, s *mysql.Store) headgate.Status {
	t.Helper()
	status, err := p.ask.RecordFinalState(t.Context(), limiter(s))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range check.Check(p.ask.Recorder.History()) {
		t.Error(v)
	}
	return status
}
