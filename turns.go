package headgate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/pause"
	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/law"
)

// turns are the queues of callers that wait for the same cell: only the first of a
// line asks the store. The zero turns are ready.
//
// Callers that keep different headroom stand in different lines: one that may take the last
// of a limit does not wait behind one that may not.
type turns struct {
	mu    sync.Mutex
	lines map[law.Cell][]*line // guarded by mu
}

type line struct {
	keep    Headroom
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

// take waits for the turn of a caller that waits for the charge c. One that is not the first calls
// look before it waits, which returns for how long it waits at most. An error of look is
// that of take, ErrDeadline if the turn does not come in time.
func (t *turns) take(ctx context.Context, c *Charge, look func() (time.Duration, error)) (turn, error) {
	cell := law.Cell{Limit: c.Limit.Name(), Key: c.Key}
	t.mu.Lock()
	l := t.line(cell, c.Keep)
	l.waiting++
	t.mu.Unlock()
	mine := turn{t, cell, l}
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

// line returns the line of a cell and a headroom. The caller holds mu.
func (t *turns) line(cell law.Cell, keep Headroom) *line {
	lines := t.lines[cell]
	for _, l := range lines {
		if l.keep == keep {
			return l
		}
	}
	l := &line{keep: keep, first: make(chan struct{}, 1), woken: make(chan struct{}, 1)}
	l.first <- struct{}{}
	if t.lines == nil {
		t.lines = map[law.Cell][]*line{}
	}
	t.lines[cell] = append(lines, l)
	return l
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
	if m.line.waiting--; m.line.waiting > 0 {
		return
	}
	if left := slices.DeleteFunc(m.t.lines[m.cell], func(l *line) bool { return l == m.line }); len(left) > 0 {
		m.t.lines[m.cell] = left
	} else {
		delete(m.t.lines, m.cell)
	}
}

// wake lets the first of each line of a cell ask at once.
func (t *turns) wake(c law.Cell) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.lines[c] {
		if len(l.woken) == 0 { // else it has been told
			l.woken <- struct{}{}
		}
	}
}

// sleep sleeps until it is woken, at most.
func (m *turn) sleep(ctx context.Context, d time.Duration) error {
	return pause.SleepOr(ctx, d, m.line.woken)
}
