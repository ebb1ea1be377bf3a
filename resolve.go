package headgate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// unresolved reports whether it is to be found out which limit of a charge holds: only its name is
// known, or it holds for a time.
func (c Charge) unresolved() bool { return c.Limit.OnlyName() || c.Limit.r.timed() }

// resolve returns charges with the limits that hold now in the place of names: all of one
// version. Those of the caller stay as they are.
func (l *Limiter) resolve(ctx context.Context, charges []Charge, r retries) ([]Charge, error) {
	resolved := make([]Charge, len(charges)) // not by slices.Clone, for which charges would be on the heap
	copy(resolved, charges)
	if err := l.find(ctx, resolved); err != nil {
		return nil, err
	}
	l.setCurrent(resolved, r)
	return resolved, nil
}

// resolveOne returns the limit that holds now for a key.
func (l *Limiter) resolveOne(ctx context.Context, limit Limit, key string) (Limit, error) {
	if limit.OnlyName() {
		if l.names == nil {
			return Limit{}, limit.r.errNameOnly()
		}
		var err error
		if limit, err = l.names.Find(ctx, limit.r.name, key); err != nil {
			return Limit{}, unfound(err)
		}
	}
	return l.current(limit, retries{}, 0), nil
}

// find puts limits in the place of names, if there are any.
func (l *Limiter) find(ctx context.Context, charges []Charge) error {
	i := slices.IndexFunc(charges, func(c Charge) bool { return c.Limit.OnlyName() })
	if i < 0 {
		return nil
	}
	if l.names == nil {
		return charges[i].Limit.r.errNameOnly()
	}
	if err := l.names.FindAll(ctx, charges); err != nil {
		return unfound(err)
	}
	return nil
}

// unfound is the error of a look-up: nothing was charged, also where the context has ended.
func unfound(err error) error {
	if store.Class(err) == nil {
		return fmt.Errorf("%w: the limit was not found out: %w", store.ErrUnavailable, err)
	}
	return err
}

// setCurrent puts what limits are now in their place, as far as this process knows.
func (l *Limiter) setCurrent(charges []Charge, r retries) {
	for i := range charges {
		charges[i].Limit = l.current(charges[i].Limit, r, i)
	}
}

// current returns what the limit of the charge i is now, as far as this process knows.
func (l *Limiter) current(limit Limit, r retries, i int) Limit {
	if !limit.r.timed() {
		return limit
	}
	ahead := l.ahead.Load()
	if r.stale != nil && i < len(r.stale.ahead) {
		ahead = r.stale.ahead[i]
	}
	return Limit{limit.r.at(l.clock() + ahead)}
}

// errStale is the error of a request that was asked by a limit that does not hold at the
// store's time. Nothing was done.
var errStale = fmt.Errorf("%w: the store's time keeps leaving the time for which a limit holds", store.ErrSetup)

// staleError is errStale, and how far the times at which the charges are decided are ahead of
// this machine's clock. They can differ: several servers have several clocks, and a cell may
// stand ahead of its own.
type staleError struct{ ahead []int64 }

func (e *staleError) Error() string { return errStale.Error() }

func (e *staleError) Unwrap() error { return errStale }

// mostRetries is how often a request is made again by the limits that hold at the store's time.
const mostRetries = 3

// retries are those of one request. The zero retries are none.
type retries struct {
	n     int
	stale *staleError // why it is made again; nil: it is not
}

// due reports whether the request is to be made again, by the limits that hold at the store's time.
func (r *retries) due(err error) bool {
	if err == nil {
		return false
	}
	r.n++
	stale, ok := errors.AsType[*staleError](err)
	r.stale = stale
	return ok && r.n <= mostRetries
}

// stale learns the store's time from outcomes of one request. It returns nil if each of its limits
// held then.
func (l *Limiter) stale(ops []law.Op, outs []law.Outcome) *staleError {
	stale := func(i int) bool {
		now := outs[i].Clock
		return outs[i].Stale && (now < ops[i].From || ops[i].Until != 0 && now >= ops[i].Until)
	}
	here := l.clock()
	for i := range ops {
		if !stale(i) {
			continue
		}
		l.ahead.Store(outs[i].Clock - here)
		e := &staleError{make([]int64, len(ops))}
		for k := range ops {
			if e.ahead[k] = l.ahead.Load(); outs[k].Clock > 0 {
				e.ahead[k] = ops[k].DecidedAt(&outs[k]) - here
			}
		}
		return e
	}
	return nil
}
