package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/headgate/headgate"
)

// tellWithin is how long the store may take to be told of an answer.
const tellWithin = 5 * time.Second

// Backoff is an answer of a server that asks to hold back.
type Backoff struct {
	Key    string
	Status int           // of the answer
	Field  string        // that asks for it, as "Retry-After"
	For    time.Duration // from the arrival of the answer, at most Config.MaxRetryAfter
	// Err: the store could not be told, or had not answered when the request's
	// context ended. Other replicas may not know.
	Err error
}

// heed tells the store if an answer asks to hold back, and returns until when:
// zero if it does not.
func (t *RoundTripper) heed(ctx context.Context, key string, resp *http.Response) (end time.Time) {
	arrived := time.Now() //nolint:forbidigo // the delay counts from the receipt of the answer
	h := Backoff{Key: key, Status: resp.StatusCode}
	h.For, h.Field = holdOf(resp.StatusCode, resp.Header, arrived)
	if h.For <= 0 {
		return time.Time{}
	}
	h.For = min(h.For, t.cfg.MaxRetryAfter)
	end = arrived.Add(h.For)
	w := t.wishes.add(key, end, fmt.Sprintf("the server answered %d: %s", h.Status, h.Field), func(w *wish) {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellWithin)
		defer cancel()
		w.err = wrap(t.block(within, key, w.end, w.reason))
	})
	select {
	case <-w.told:
		h.Err = w.err
	case <-ctx.Done():
		h.Err = ctx.Err()
	}
	if t.cfg.OnBackoff != nil {
		t.cfg.OnBackoff(h)
	}
	return end
}

// block blocks a key until end, unless it is blocked for longer.
func (t *RoundTripper) block(ctx context.Context, key string, end time.Time, reason string) error {
	d := left(end)
	s, err := t.limiter.Inspect(ctx, t.limit, key)
	if err != nil && !errors.Is(err, headgate.ErrUnsupported) {
		return err
	}
	if !s.BlockedUntil.IsZero() && s.BlockedUntil.Sub(s.At) >= d {
		return nil
	}
	if d = left(end); d <= 0 {
		return nil
	}
	_, err = t.limiter.Block(ctx, t.limit, key, d, reason)
	return err
}

// left returns how long it is until end, in microseconds, rounded up.
func left(end time.Time) time.Duration {
	return (time.Until(end) + time.Microsecond - 1).Truncate(time.Microsecond)
}

// wish is a block that the store is to be told of.
type wish struct {
	end    time.Time
	reason string
	err    error         // what came of it; set before told is closed
	told   chan struct{} // closed when the store was told
}

// wishes are told one at a time for each key, so that between a look at the
// block of a key and its change nobody here sets a later one. Those that come in
// the meantime become one, the latest.
type wishes struct {
	mu   sync.Mutex
	keys map[string]*wish // guarded by mu: the next one, or nil, of those of which one is being told
}

// add adds a wish, which tell tells the store of.
func (s *wishes) add(key string, end time.Time, reason string, tell func(*wish)) *wish {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys == nil {
		s.keys = map[string]*wish{}
	}
	w, telling := s.keys[key]
	switch {
	case w == nil:
		w = &wish{end: end, reason: reason, told: make(chan struct{})}
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

// run tells the store of a wish, and of the next one, until there is none.
func (s *wishes) run(key string, w *wish, tell func(*wish)) {
	for w != nil {
		tell(w)
		close(w.told)
		s.mu.Lock()
		w = s.keys[key]
		s.keys[key] = nil
		if w == nil {
			delete(s.keys, key)
		}
		s.mu.Unlock()
	}
}
