package headgate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// unclear reports whether it is to be found out which limit of a charge holds: only its name is
// known, or it holds for a time.
func (c Charge) unclear() bool { return c.Limit.OnlyName() || c.Limit.r.timed() }

// whole is bound for a call that may ask several questions: its deadline is that of all of them.
// A call with limits that are clear asks one question, which has a deadline of its own. One that
// waits has none but that of its context.
func (l *Limiter) whole(ctx context.Context, charges []Charge) (context.Context, bound) {
	return l.wholeBy(ctx, l.timeout, charges)
}

// wholeBy is whole for a call that may take so long.
func (l *Limiter) wholeBy(ctx context.Context, most time.Duration, charges []Charge) (context.Context, bound) {
	if _, waits := ctx.(patient); waits || !slices.ContainsFunc(charges, Charge.unclear) {
		return ctx, bound{}
	}
	return l.boundBy(ctx, most)
}

// meant returns charges with the limits that hold now in the place of names: all of one
// version. Those of the caller stay as they are.
func (l *Limiter) meant(ctx context.Context, charges []Charge, t tries) ([]Charge, error) {
	if !slices.ContainsFunc(charges, Charge.unclear) {
		return charges, nil
	}
	meant := slices.Clone(charges) // and not the same name: charges would escape, in each call
	if err := l.find(ctx, meant); err != nil {
		return nil, err
	}
	l.presentAll(meant, t)
	return meant, nil
}

// meantOne is meant for one limit.
func (l *Limiter) meantOne(ctx context.Context, limit Limit, key string, t tries) (Limit, error) {
	if limit.OnlyName() {
		if l.names == nil {
			return Limit{}, limit.r.errNameOnly()
		}
		var err error
		if limit, err = l.names.Find(ctx, limit.r.name, key); err != nil {
			return Limit{}, unfound(err)
		}
	}
	return l.present(limit, t, 0), nil
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

// presentAll puts what limits are now in their place, as far as this process knows.
func (l *Limiter) presentAll(charges []Charge, t tries) {
	for i := range charges {
		charges[i].Limit = l.present(charges[i].Limit, t, i)
	}
}

// present returns what the limit of the charge i is now, as far as this process knows.
func (l *Limiter) present(limit Limit, t tries, i int) Limit {
	if !limit.r.timed() {
		return limit
	}
	ahead := l.ahead.Load()
	if t.late != nil && i < len(t.late.ahead) {
		ahead = t.late.ahead[i]
	}
	return Limit{limit.r.at(l.clock() + ahead)}
}

// errUntimely is the error of a request that was asked by a limit that does not hold at the
// store's time. Nothing was done.
var errUntimely = fmt.Errorf("%w: the store's time keeps leaving the time for which a limit holds", store.ErrSetup)

// untimely is errUntimely, and how far the times at which the charges are decided are ahead of
// this machine's clock. They can differ: several servers have several clocks, and a cell may
// stand ahead of its own.
type untimely struct{ ahead []int64 }

func (u *untimely) Error() string { return errUntimely.Error() }

func (u *untimely) Unwrap() error { return errUntimely }

// mostTries is how often a request is made again by the limits that hold at the store's time.
const mostTries = 3

// tries are those of one request. The zero tries are none.
type tries struct {
	n    int
	late *untimely // why it is made again; nil: it is not
}

// again reports whether the request is to be made again, by the limits that hold at the store's time.
func (t *tries) again(err error) bool {
	if err == nil {
		return false
	}
	t.n++
	late, ok := errors.AsType[*untimely](err)
	t.late = late
	return ok && t.n <= mostTries
}

// untimely learns the store's time from outcomes of one request. It returns nil if each of its limits
// held then.
func (l *Limiter) untimely(ops []law.Op, outs []law.Outcome) *untimely {
	late := func(i int) bool {
		now := outs[i].Clock
		return outs[i].Stale && (now < ops[i].From || ops[i].Until != 0 && now >= ops[i].Until)
	}
	here := l.clock()
	for i := range ops {
		if !late(i) {
			continue
		}
		l.ahead.Store(outs[i].Clock - here)
		u := &untimely{make([]int64, len(ops))}
		for k := range ops {
			if u.ahead[k] = l.ahead.Load(); outs[k].Clock > 0 {
				u.ahead[k] = ops[k].DecidedAt(&outs[k]) - here
			}
		}
		return u
	}
	return nil
}
