package headgate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/law"
)

// waitQueues are the queues of callers that wait for a cell. Only the first caller of a queue makes attempts; each
// other one calls the store once, by its probe. The zero waitQueues are ready for use.
//
// Callers with different headroom stand in different queues, so that a caller without headroom does not wait behind one
// that has to leave some.
type waitQueues struct {
	mu     sync.Mutex
	byCell map[law.Cell][]*waitQueue // guarded by mu
}

// waitQueue is the queue of a cell and a headroom.
type waitQueue struct {
	headroom  Headroom
	waiting   int           // number of callers in the queue; guarded by waitQueues.mu
	turnToken chan struct{} // holds one token: its receiver is first; the others wait, in the order of their probes
	wakeUp    chan struct{} // holds one signal: tells the first caller that there may be room
}

// turn is the place of a caller at the head of a queue, which it holds until leave. The zero turn is none.
type turn struct {
	queues *waitQueues
	cell   law.Cell
	queue  *waitQueue
}

// takeTurn waits until a caller is first in the queue for the charge c. If it is not first at once, it calls probe,
// which returns how long to wait at most, or an error that ends the wait. If the turn does not come by then, or by the
// deadline of ctx, the error is ErrDeadline; if ctx is canceled, it is that of ctx.
func (w *waitQueues) takeTurn(ctx context.Context, c *Charge, probe func() (time.Duration, error)) (turn, error) {
	cell := law.Cell{Limit: c.Limit.Name(), Key: c.Key}
	w.mu.Lock()
	q := w.queue(cell, c.Keep)
	q.waiting++
	w.mu.Unlock()
	t := turn{w, cell, q}
	if sched.Wait(0, q.turnToken, nil, nil) == 0 {
		return t, nil
	}
	patience, err := probe()
	if err == nil {
		switch sched.Wait(patience, q.turnToken, ctx.Done(), nil) {
		case 0:
			return t, nil
		case sched.TimeOut:
			err = ErrDeadline
		default:
			if err = ctx.Err(); errors.Is(err, context.DeadlineExceeded) {
				err = fmt.Errorf("%w: %w", ErrDeadline, err)
			}
		}
	}
	t.leaveQueue()
	return turn{}, err
}

// queue returns the queue of a cell and a headroom, and makes it if there is none. The caller holds mu.
func (w *waitQueues) queue(cell law.Cell, headroom Headroom) *waitQueue {
	queues := w.byCell[cell]
	for _, q := range queues {
		if q.headroom == headroom {
			return q
		}
	}
	q := &waitQueue{headroom: headroom, turnToken: make(chan struct{}, 1), wakeUp: make(chan struct{}, 1)}
	q.turnToken <- struct{}{}
	if w.byCell == nil {
		w.byCell = map[law.Cell][]*waitQueue{}
	}
	w.byCell[cell] = append(queues, q)
	return q
}

// leave ends the turn, if there is one, and lets the next caller be first.
func (t *turn) leave() {
	if t.queue != nil {
		t.queue.turnToken <- struct{}{}
		t.leaveQueue()
	}
}

// leaveQueue removes a caller from its queue, and the queue if that was its last caller.
func (t *turn) leaveQueue() {
	t.queues.mu.Lock()
	defer t.queues.mu.Unlock()
	if t.queue.waiting--; t.queue.waiting > 0 {
		return
	}
	byCell := t.queues.byCell
	others := slices.DeleteFunc(byCell[t.cell], func(q *waitQueue) bool { return q == t.queue })
	if len(others) > 0 {
		byCell[t.cell] = others
	} else {
		delete(byCell, t.cell)
	}
}

// wake lets the first caller of each queue of a cell try at once.
func (w *waitQueues) wake(c law.Cell) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.byCell[c] {
		if len(q.wakeUp) == 0 { // else a signal is pending already
			q.wakeUp <- struct{}{}
		}
	}
}
