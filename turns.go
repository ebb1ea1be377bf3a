package headgate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/pause"
	"github.com/headgate/headgate/law"
)

// turns are the queues of callers that wait for the same cell: only the first of a
// line asks the store. The zero turns are ready.
type turns struct {
	mu    sync.Mutex
	lines map[law.Cell]*line // guarded by mu
}

type line struct {
	waiting int           // guarded by turns.mu
	first   chan struct{} // holds one; senders queue in order
	woken   chan struct{} // what they wait for may be there
}

// turn is being the first of a line, which ends with leave. The zero turn is none.
type turn struct {
	t    *turns
	cell law.Cell
	line *line
}

// take waits for a turn. Who is not the first looks before standing in line, and for
// how long at most; an error of look is that of take, ErrDeadline if the turn does not
// come in time.
func (t *turns) take(ctx context.Context, c law.Cell, look func() (time.Duration, error)) (turn, error) {
	t.mu.Lock()
	if t.lines == nil {
		t.lines = map[law.Cell]*line{}
	}
	l := t.lines[c]
	if l == nil {
		l = &line{first: make(chan struct{}, 1), woken: make(chan struct{}, 1)}
		t.lines[c] = l
	}
	l.waiting++
	t.mu.Unlock()
	mine := turn{t, c, l}
	select {
	case l.first <- struct{}{}:
		return mine, nil
	default:
	}
	patience, err := look()
	if err == nil {
		end := time.NewTimer(patience)
		defer end.Stop()
		select {
		case l.first <- struct{}{}:
			return mine, nil
		case <-end.C:
			err = ErrDeadline
		case <-ctx.Done():
			if err = ctx.Err(); errors.Is(err, context.DeadlineExceeded) {
				err = fmt.Errorf("%w: %w", ErrDeadline, err)
			}
		}
	}
	mine.gone()
	return turn{}, err
}

func (m *turn) leave() {
	if m.line != nil {
		<-m.line.first
		m.gone()
	}
}

func (m *turn) gone() {
	m.t.mu.Lock()
	defer m.t.mu.Unlock()
	if m.line.waiting--; m.line.waiting == 0 {
		delete(m.t.lines, m.cell)
	}
}

// wake lets the first who waits for a cell ask at once.
func (t *turns) wake(c law.Cell) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.lines[c]; l != nil {
		select {
		case l.woken <- struct{}{}:
		default: // it has been told
		}
	}
}

// sleep sleeps until it is woken, at most.
func (m *turn) sleep(ctx context.Context, d time.Duration) error {
	return pause.SleepOr(ctx, d, m.line.woken)
}
