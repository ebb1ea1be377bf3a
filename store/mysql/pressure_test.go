package mysql_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
)

// pressure is callers that take from one key without end, each by a store of its
// own as a process has one, and what they were answered.
type pressure struct {
	mu                   sync.Mutex
	admitted             int64
	unknown, unavailable int64
	first, last          int64 // the times of decisions
	gap                  time.Duration
	answered             time.Time

	stop context.CancelFunc
	wg   sync.WaitGroup
}

// press lets callers take op at some URLs, in turn.
func press(t *testing.T, callers int, op law.Op, urls ...string) *pressure {
	t.Helper()
	p := &pressure{}
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
			for ctx.Err() == nil {
				p.take(t, s, op)
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	return p
}

func (p *pressure) take(t *testing.T, s *mysql.Store, op law.Op) {
	outs := make([]law.Outcome, 1)
	ask, stop := context.WithTimeout(context.Background(), 5*time.Second)
	err := s.Apply(ask, []law.Op{op}, outs)
	stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		err = outs[0].Err
	}
	switch {
	case err == nil:
		p.admitted += outs[0].Granted
		if p.first == 0 || outs[0].Clock < p.first {
			p.first = outs[0].Clock
		}
		p.last = max(p.last, outs[0].Clock)
		now := time.Now()
		if !p.answered.IsZero() {
			p.gap = max(p.gap, now.Sub(p.answered))
		}
		p.answered = now
	case errors.Is(err, store.ErrUnknownOutcome):
		p.unknown++
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrReadOnly):
		p.unavailable++
	default:
		t.Errorf("apply: %v", err)
	}
}

// passed returns how many were admitted so far.
func (p *pressure) passed() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.admitted
}

// end stops the callers.
func (p *pressure) end() {
	p.stop()
	p.wg.Wait()
}
