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

// Backoff describes an answer of a server and how long it asks to hold back.
type Backoff struct {
	Key    string
	Status int           // of the answer
	Field  string        // that asks for it, as "Retry-After"; empty if none does
	For    time.Duration // from the arrival of the answer, at most MaxRetryAfter; 0 if no field asks for it
	// Err: the store could not be told, or had not answered when the request's
	// context ended. Other replicas may not know.
	Err error
}

// Observer blocks keys in the store when a response asks to hold back, for programs that do not send their requests
// through a [RoundTripper]. The block holds for all replicas that share the store. Create one with [NewObserver].
// It is safe for concurrent use.
type Observer struct {
	limiter headgate.Operator
	most    time.Duration
	wishes  wishes
}

// NewObserver returns an observer by which one answer can hold back a key for at most maxRetryAfter; zero:
// [DefaultMaxRetryAfter].
func NewObserver(l headgate.Operator, maxRetryAfter time.Duration) *Observer {
	if maxRetryAfter <= 0 {
		maxRetryAfter = DefaultMaxRetryAfter
	}
	return &Observer{limiter: l, most: min(maxRetryAfter, longest)}
}

// Observe blocks a key of a limit if a response with this status and header asks to hold back, unless the key is
// already blocked for longer. Delays count from the call. A response without such a field blocks nothing, whatever its
// status. Names in h must be canonical, see [http.CanonicalHeaderKey].
func (o *Observer) Observe(ctx context.Context, limit headgate.Limit, key string, status int, h http.Header) Backoff {
	b, _ := o.observe(ctx, limit, key, status, h)
	return b
}

// observe is Observe, and returns the end of the pause: zero if there is none.
func (o *Observer) observe(ctx context.Context, limit headgate.Limit, key string, status int, fields http.Header) (
	b Backoff, end time.Time,
) {
	arrived := time.Now() //nolint:forbidigo // the delay counts from the receipt of the answer
	b = Backoff{Key: key, Status: status}
	if b.For, b.Field = holdOf(status, fields, arrived); b.For <= 0 {
		return Backoff{Key: key, Status: status}, time.Time{}
	}
	b.For = min(b.For, o.most)
	end = arrived.Add(b.For)
	reason := fmt.Sprintf("the server answered %d: %s", status, b.Field)
	w := o.wishes.add(cell{limit.Name(), key}, end, reason, func(w *wish) {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellWithin)
		defer cancel()
		w.err = wrap(o.block(within, limit, key, w.end, w.reason))
	})
	select {
	case <-w.told:
		b.Err = w.err
	case <-ctx.Done():
		b.Err = ctx.Err()
	}
	return b, end
}

// heed tells the store if an answer asks to hold back, and returns until when: zero if it does not.
func (t *RoundTripper) heed(ctx context.Context, key string, resp *http.Response) (end time.Time) {
	b, end := t.observer.observe(ctx, t.limit, key, resp.StatusCode, resp.Header)
	if !end.IsZero() && t.cfg.OnBackoff != nil {
		t.cfg.OnBackoff(b)
	}
	return end
}

// block blocks a key until end, unless it is blocked for longer.
func (o *Observer) block(ctx context.Context, limit headgate.Limit, key string, end time.Time, reason string) error {
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
	keys map[cell]*wish // guarded by mu: the next one, or nil, of those of which one is being told
}

// cell is a key of a limit.
type cell struct{ limit, key string }

// add adds a wish, which tell tells the store of.
func (s *wishes) add(key cell, end time.Time, reason string, tell func(*wish)) *wish {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys == nil {
		s.keys = map[cell]*wish{}
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
func (s *wishes) run(key cell, w *wish, tell func(*wish)) {
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
