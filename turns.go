package headgate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/pause"
	"github.com/headgate/headgate/internal/sched"
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
	first   chan struct{} // holds one, which the first has; the others queue for it in order
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
		l.first <- struct{}{}
		t.lines[c] = l
	}
	l.waiting++
	t.mu.Unlock()
	mine := turn{t, c, l}
	if sched.Wait(0, l.first, nil, nil) == 0 {
		return mine, nil
	}
	patience, err := look()
	if err == nil {
		switch sched.Wait(patience, l.first, ctx.Done(), nil) {
		case 0:
			return mine, nil
		case sched.TimeOut:
			err = ErrDeadline
		default:
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
		m.line.first <- struct{}{}
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
		if len(l.woken) == 0 { // else it has been told
			l.woken <- struct{}{}
		}
	}
}

// sleep sleeps until it is woken, at most.
func (m *turn) sleep(ctx context.Context, d time.Duration) error {
	return pause.SleepOr(ctx, d, m.line.woken)
}
