package headgate

import (
	"context"

	"github.com/headgate/headgate/law"
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
		d.derive(&r.params, &b, nil)
	}
	return decided
}
