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

// waitQueues are the queues of callers that wait for a cell. Only the first caller of a queue calls the store. The zero
// waitQueues are ready for use.
//
// Callers that keep different headroom stand in different queues, so that a caller without headroom does not wait
// behind one that has to leave some.
type waitQueues struct {
	mu     sync.Mutex
	queues map[law.Cell][]*waitQueue // guarded by mu
}

// waitQueue is the queue of a cell and a headroom.
type waitQueue struct {
	keep      Headroom
	waiting   int           // number of callers in the queue; guarded by waitQueues.mu
	turnToken chan struct{} // holds one token; its receiver is first, the other callers wait for it in order
	wakeUp    chan struct{} // signals the first caller that there may be room
}

// turn is the state of being first in a queue, until leave. The zero turn is none.
type turn struct {
	queues *waitQueues
	cell   law.Cell
	queue  *waitQueue
}

// takeTurn waits until a caller is first in the queue for the charge c. If it is not first at once, it calls probe,
// which returns how long to wait at most, or an error that ends the wait. If the turn does not come in time, the error
// is ErrDeadline.
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
	t.forget()
	return turn{}, err
}

// queue returns the queue of a cell and a headroom, and makes it if there is none. The caller holds mu.
func (w *waitQueues) queue(cell law.Cell, keep Headroom) *waitQueue {
	queues := w.queues[cell]
	for _, q := range queues {
		if q.keep == keep {
			return q
		}
	}
	q := &waitQueue{keep: keep, turnToken: make(chan struct{}, 1), wakeUp: make(chan struct{}, 1)}
	q.turnToken <- struct{}{}
	if w.queues == nil {
		w.queues = map[law.Cell][]*waitQueue{}
	}
	w.queues[cell] = append(queues, q)
	return q
}

// leave ends the turn, and lets the next caller be first.
func (t *turn) leave() {
	if t.queue != nil {
		t.queue.turnToken <- struct{}{}
		t.forget()
	}
}

// forget removes a caller from its queue, and the queue if that was its last caller.
func (t *turn) forget() {
	t.queues.mu.Lock()
	defer t.queues.mu.Unlock()
	if t.queue.waiting--; t.queue.waiting > 0 {
		return
	}
	byCell := t.queues.queues
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
	for _, q := range w.queues[c] {
		if len(q.wakeUp) == 0 { // else a signal is pending already
			q.wakeUp <- struct{}{}
		}
	}
}
