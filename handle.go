package headgate

import (
	"context"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// quick takes one charge, which leaves no headroom, without a batch, where the store can decide about it
// at once, and writes the decision into d, which is zero. If it reports false
// nothing was done, and ask is to be called, also to say what is wrong with the
// charge.
func (l *Limiter) quick(ctx context.Context, d *Decision, limit Limit, key string, cost Cost) bool {
	r := limit.r
	if l.direct == nil || r == nil || !r.plain {
		return false
	}
	credits := r.params.Unit
	if !cost.IsZero() {
		var err error
		if credits, err = cost.charged(&r.params); err != nil {
			return false
		}
	}
	b, decided := l.direct.TakeOne(ctx, law.Cell{Limit: r.name, Key: key}, &r.params, credits)
	if decided {
		d.LimitName, d.Key, d.Applied = r.name, key, r.applied
		d.Capacity, d.CapacityNanos = r.capacity, r.capacityNanos
		d.derive(&r.params, &b)
	}
	return decided
}

// Key returns a handle on one key of a limit, for callers that ask about the same
// one again and again: where the store is in this process it is found once and
// not each time. A handle needs no closing.
func (l *Limiter) Key(limit Limit, key string) *Handle {
	h := &Handle{l: l, limit: limit, key: key}
	if b, ok := l.store.(store.Pinner); ok && limit.r != nil && limit.r.plain && law.ValidKey(key) == nil {
		h.bound = b.Pin(law.Cell{Limit: limit.r.name, Key: key}, &limit.r.params)
	}
	return h
}

// Handle is one key of a limit. It is safe for concurrent use. Make one with
// [Limiter.Key].
type Handle struct {
	l     *Limiter
	limit Limit
	key   string
	bound store.Pin // nil: the store has no such thing
}

// Allow takes one unit.
func (h *Handle) Allow(ctx context.Context) (Decision, error) { return h.Take(ctx, Cost{}) }

// Take takes a cost; the zero Cost is 1. Errors are those of [Limiter.Take].
func (h *Handle) Take(ctx context.Context, cost Cost) (d Decision, err error) {
	if h.l.observer == nil && ctx.Err() == nil && h.quick(&d, cost) {
		return d, nil
	}
	return h.l.Take(ctx, Charge{Limit: h.limit, Key: h.key, Cost: cost})
}

// quick is that of Limiter.
func (h *Handle) quick(d *Decision, cost Cost) bool {
	if h.bound == nil {
		return false
	}
	r := h.limit.r
	credits := r.params.Unit
	if !cost.IsZero() {
		var err error
		if credits, err = cost.charged(&r.params); err != nil {
			return false
		}
	}
	b, decided := h.bound.TakeOne(credits)
	if decided {
		d.LimitName, d.Key, d.Applied = r.name, h.key, r.applied
		d.Capacity, d.CapacityNanos = r.capacity, r.capacityNanos
		d.derive(&r.params, &b)
	}
	return decided
}
