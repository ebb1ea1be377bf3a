package outgoing

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/headgate/headgate"
)

// MaxBlock is for how long a store can block a key at most.
const MaxBlock = 3660 * 24 * time.Hour

// storeTimeout is how long the store may take to block a key.
const storeTimeout = 5 * time.Second

// Holder blocks keys whose servers ask to hold back. It is safe for concurrent use and created with [NewHolder].
type Holder struct {
	limiter headgate.Operator
	queue   blockQueue
}

// NewHolder returns a Holder that blocks keys in the store of l.
func NewHolder(l headgate.Operator) *Holder {
	return &Holder{limiter: l, queue: blockQueue{pending: map[cell]*block{}}}
}

// Hold blocks a key of a limit until end, unless the key is blocked for longer. It returns when the block is stored, or
// with the error of the context if the context ends first; a goroutine then still tries to store it, for 5 s.
func (h *Holder) Hold(ctx context.Context, limit headgate.Limit, key string, end time.Time, reason string) error {
	b := h.queue.add(cell{limit.Name(), key}, end, reason, func(b *block) {
		storeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
		defer cancel()
		b.err = h.storeBlock(storeCtx, limit, key, b.end, b.reason)
	})
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// storeBlock blocks a key in the store until end, unless the key is blocked for longer.
func (h *Holder) storeBlock(ctx context.Context, limit headgate.Limit, key string, end time.Time, reason string) error {
	d := remaining(end)
	s, err := h.limiter.Inspect(ctx, limit, key)
	if err != nil && !errors.Is(err, headgate.ErrUnsupported) {
		return err
	}
	if !s.BlockedUntil.IsZero() && s.BlockedUntil.Sub(s.At) >= d {
		return nil
	}
	if d = remaining(end); d <= 0 {
		return nil
	}
	_, err = h.limiter.Block(ctx, limit, key, d, reason)
	return err
}

// remaining returns how long it is until end, rounded up to microseconds.
func remaining(end time.Time) time.Duration {
	return (time.Until(end) + time.Microsecond - 1).Truncate(time.Microsecond)
}

// block is a block that is to be stored.
type block struct {
	end    time.Time
	reason string
	err    error         // result of storing; set before done is closed
	done   chan struct{} // closed when storing has ended
}

// blockQueue stores the blocks of each key one at a time, so that between the Inspect and the Block of a key this
// Holder sets no later block. Blocks that are added in the meantime are merged into one with the latest end.
type blockQueue struct {
	mu      sync.Mutex
	pending map[cell]*block // guarded by mu: the next block, or nil, of each key of which a block is being stored
}

// cell is a key of a limit.
type cell struct{ limit, key string }

// add queues a block, or merges it into the pending one, and returns that. store passes a block to the store.
func (q *blockQueue) add(key cell, end time.Time, reason string, store func(*block)) *block {
	q.mu.Lock()
	defer q.mu.Unlock()
	next, storing := q.pending[key]
	switch {
	case next == nil:
		next = &block{end: end, reason: reason, done: make(chan struct{})}
	case end.After(next.end):
		next.end, next.reason = end, reason
	}
	q.pending[key] = next
	if !storing {
		q.pending[key] = nil
		go q.run(key, next, store)
	}
	return next
}

// run stores a block, and then the pending ones of the key, until there is none.
func (q *blockQueue) run(key cell, next *block, store func(*block)) {
	for next != nil {
		store(next)
		close(next.done)
		q.mu.Lock()
		next = q.pending[key]
		q.pending[key] = nil
		if next == nil {
			delete(q.pending, key)
		}
		q.mu.Unlock()
	}
}
