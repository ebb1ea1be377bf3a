package outgoing

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/headgate/headgate"
)

// Longest is how long a store can block a key.
const Longest = 3660 * 24 * time.Hour

// recordTimeout is how long the store may take to record an answer.
const recordTimeout = 5 * time.Second

// Holder blocks keys whose servers ask to hold back. It is safe for concurrent use. Create one with [NewHolder].
type Holder struct {
	limiter headgate.Operator
	wishes  wishes
}

// NewHolder returns a Holder that blocks keys by l.
func NewHolder(l headgate.Operator) *Holder {
	return &Holder{limiter: l, wishes: wishes{keys: map[cell]*wish{}}}
}

// Hold blocks a key of a limit until end, unless it is blocked for longer. It returns when that is recorded, or
// with the error of the context if that ends first; a goroutine then still records it, for 5 s.
func (o *Holder) Hold(ctx context.Context, limit headgate.Limit, key string, end time.Time, reason string) error {
	w := o.wishes.add(cell{limit.Name(), key}, end, reason, func(w *wish) {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
		defer cancel()
		w.err = o.block(within, limit, key, w.end, w.reason)
	})
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// block blocks a key until end, unless it is blocked for longer.
func (o *Holder) block(ctx context.Context, limit headgate.Limit, key string, end time.Time, reason string) error {
	d := left(end)
	s, err := o.limiter.Inspect(ctx, limit, key)
	if err != nil && !errors.Is(err, headgate.ErrUnsupported) {
		return err
	}
	if !s.BlockedUntil.IsZero() && s.BlockedUntil.Sub(s.At) >= d {
		return nil
	}
	if d = left(end); d <= 0 {
		return nil
	}
	_, err = o.limiter.Block(ctx, limit, key, d, reason)
	return err
}

// left returns how long it is until end, in microseconds, rounded up.
func left(end time.Time) time.Duration {
	return (time.Until(end) + time.Microsecond - 1).Truncate(time.Microsecond)
}

// wish is a block that the store is to record.
type wish struct {
	end    time.Time
	reason string
	err    error         // what came of it; set before done is closed
	done   chan struct{} // closed when the store has recorded it
}

// wishes are recorded one at a time for each key, so that between a look at the
// block of a key and its change nobody here sets a later one. Those that come in
// the meantime become one, the latest.
type wishes struct {
	mu   sync.Mutex
	keys map[cell]*wish // guarded by mu: the next one, or nil, of those of which one is being recorded
}

// cell is a key of a limit.
type cell struct{ limit, key string }

// add adds a wish, which tell passes to the store.
func (s *wishes) add(key cell, end time.Time, reason string, tell func(*wish)) *wish {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, telling := s.keys[key]
	switch {
	case w == nil:
		w = &wish{end: end, reason: reason, done: make(chan struct{})}
	case end.After(w.end):
		w.end, w.reason = end, reason
	}
	s.keys[key] = w
	if !telling {
		s.keys[key] = nil
		go s.run(key, w, tell)
	}
	return w
}

// run passes a wish to the store, and the next one, until there is none.
func (s *wishes) run(key cell, w *wish, tell func(*wish)) {
	for w != nil {
		tell(w)
		close(w.done)
		s.mu.Lock()
		w = s.keys[key]
		s.keys[key] = nil
		if w == nil {
			delete(s.keys, key)
		}
		s.mu.Unlock()
	}
}
