package headgate

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/store"
)

// DefaultTimeout is how long a Limiter waits for its store unless its Config says
// otherwise.
const DefaultTimeout = 5 * time.Second

// timeout returns how long to wait for a store; 0: as long as it takes. A store in
// this process answers at once, and a deadline would cost more than its answer.
func (cfg *Config) timeout(s store.Store) time.Duration {
	_, local := s.(store.Local)
	switch {
	case local || cfg != nil && cfg.Timeout < 0:
		return 0
	case cfg == nil || cfg.Timeout == 0:
		return DefaultTimeout
	}
	return cfg.Timeout
}

// patient is the context of one who waits: its deadline alone bounds the questions.
type patient struct{ context.Context }

// bound is the Limiter's own deadline of one question. The zero bound is none.
type bound struct {
	asked   context.Context // the caller's
	own     context.Context
	cancel  context.CancelFunc
	timeout time.Duration
}

// bound returns the context to ask the store with.
func (l *Limiter) bound(ctx context.Context) (context.Context, bound) {
	if p, ok := ctx.(patient); ok {
		return p.Context, bound{}
	}
	if l.timeout == 0 {
		return ctx, bound{}
	}
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= l.timeout {
		return ctx, bound{}
	}
	b := bound{asked: ctx, timeout: l.timeout}
	b.own, b.cancel = context.WithTimeout(ctx, l.timeout)
	return b.own, b
}

// end ends the deadline, and says of an error that came by it which setting that is.
// A context error alone does not tell whether the store was asked: its class is otherwise.
func (b *bound) end(err *error, otherwise error) {
	if b.cancel == nil {
		return
	}
	defer b.cancel()
	if *err == nil || b.own.Err() == nil || b.asked.Err() != nil {
		return
	}
	if store.Class(*err) == nil {
		*err = fmt.Errorf("%w: %w", otherwise, *err)
	}
	*err = fmt.Errorf("%w (no answer within %s, the Timeout of headgate.Config)", *err, b.timeout)
}
