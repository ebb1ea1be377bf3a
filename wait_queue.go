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

// waitQueues are the queues of callers that wait for the same cell: only the first of a
// queue calls the store. The zero waitQueues are ready.
//
// Callers that keep different headroom stand in different queues: one that may take the last
// of a limit does not wait behind one that may not.
type waitQueues struct {
	mu     sync.Mutex
	queues map[law.Cell][]*waitQueue // guarded by mu
}

type waitQueue struct {
	keep    Headroom
	waiting int           // guarded by waitQueues.mu
	first   chan struct{} // holds one, which the first has; the others wait for it in order
	woken   chan struct{} // what they wait for may be there
}

// turn is being the first of a queue, which ends with leave. The zero turn is none.
type turn struct {
	queues *waitQueues
	cell   law.Cell
	queue  *waitQueue
}

// take waits for the turn of a caller that waits for the charge c. One that is not the first calls
// look before it waits, which returns for how long it waits at most. An error of look is
// that of take, ErrDeadline if the turn does not come in time.
func (w *waitQueues) take(ctx context.Context, c *Charge, look func() (time.Duration, error)) (turn, error) {
	cell := law.Cell{Limit: c.Limit.Name(), Key: c.Key}
	w.mu.Lock()
	q := w.queue(cell, c.Keep)
	q.waiting++
	w.mu.Unlock()
	mine := turn{w, cell, q}
	if sched.Wait(0, q.first, nil, nil) == 0 {
		return mine, nil
	}
	patience, err := look()
	if err == nil {
		switch sched.Wait(patience, q.first, ctx.Done(), nil) {
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
	mine.forget()
	return turn{}, err
}

// queue returns the queue of a cell and a headroom. The caller holds mu.
func (w *waitQueues) queue(cell law.Cell, keep Headroom) *waitQueue {
	queues := w.queues[cell]
	for _, q := range queues {
		if q.keep == keep {
			return q
		}
	}
	q := &waitQueue{keep: keep, first: make(chan struct{}, 1), woken: make(chan struct{}, 1)}
	q.first <- struct{}{}
	if w.queues == nil {
		w.queues = map[law.Cell][]*waitQueue{}
	}
	w.queues[cell] = append(queues, q)
	return q
}

func (t *turn) leave() {
	if t.queue != nil {
		t.queue.first <- struct{}{}
		t.forget()
	}
}

// forget takes a caller out of the queue, and the queue with the last.
func (t *turn) forget() {
	t.queues.mu.Lock()
	defer t.queues.mu.Unlock()
	if t.queue.waiting--; t.queue.waiting > 0 {
		return
	}
	all := t.queues.queues
	if left := slices.DeleteFunc(all[t.cell], func(q *waitQueue) bool { return q == t.queue }); len(left) > 0 {
		all[t.cell] = left
	} else {
		delete(all, t.cell)
	}
}

// wake lets the first of each queue of a cell try at once.
func (w *waitQueues) wake(c law.Cell) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.queues[c] {
		if len(q.woken) == 0 { // else it is woken already
			q.woken <- struct{}{}
		}
	}
}
