package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/config"
)

// waiter is a charge that can be waited for.
type waiter struct {
	limiter *headgate.Limiter
	charge  headgate.Charge
}

// chargeOf opens the store, and makes a charge of what the command line says.
func chargeOf(ctx context.Context, path, url, limit, key, cost string) (w waiter, closeStore func() error, err error) {
	c, err := loadConfig(path)
	if err != nil {
		return w, nil, err
	}
	if w.charge.Limit, err = c.Resolve(limit); err != nil {
		return w, nil, err
	}
	w.charge.Key = key
	if w.charge.Cost, err = headgate.ParseCost(cost); err != nil {
		return w, nil, err
	}
	s, err := openStore(ctx, config.Settle(url, "HEADGATE_STORE", c.Store, config.DefaultStore), storeOptions{})
	if err != nil {
		return w, nil, err
	}
	w.limiter = headgate.New(s, nil)
	return w, s.Close, nil
}

// start waits for a turn, for so long at most if bounded. A turn that is held
// until it is released is returned.
func (w waiter) start(ctx context.Context, wait time.Duration, bounded bool) (*headgate.Lease, error) {
	if w.charge.Limit.Held() {
		return w.acquire(ctx, wait, bounded)
	}
	return nil, w.wait(ctx, wait, bounded)
}

// acquire waits for a lease, for so long at most if bounded.
func (w waiter) acquire(ctx context.Context, wait time.Duration, bounded bool) (*headgate.Lease, error) {
	if !bounded {
		return w.limiter.Await(ctx, w.charge)
	}
	if err := notNegative(wait); err != nil {
		return nil, err
	}
	// The time that the store takes to answer is not part of the wait.
	asking, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	lease, err := w.limiter.Acquire(asking, w.charge)
	if err != nil || lease.Decision.Allowed {
		return lease, err
	}
	if lease.Decision.RetryAfter == headgate.Never || wait == 0 {
		return nil, &headgate.DeniedError{Decision: lease.Decision}
	}
	within, end := context.WithTimeout(ctx, wait)
	defer end()
	denied := &headgate.DeniedError{Decision: lease.Decision}
	if lease, err = w.limiter.Await(within, w.charge); errors.Is(err, context.DeadlineExceeded) {
		err = denied
	}
	return lease, err
}

func notNegative(wait time.Duration) error {
	if wait < 0 {
		return fmt.Errorf("%w: wait: %s is negative", headgate.ErrInvalid, wait)
	}
	return nil
}

// wait waits for the start of a charge, for so long at most if bounded.
func (w waiter) wait(ctx context.Context, wait time.Duration, bounded bool) error {
	if bounded {
		if err := notNegative(wait); err != nil {
			return err
		}
		asking, cancel := context.WithTimeout(ctx, askWithin) // as acquire
		defer cancel()
		r, err := w.limiter.Reserve(asking, wait, w.charge)
		if err != nil {
			return err
		}
		if r.Decision.Allowed {
			return r.Sleep(ctx)
		}
		if retry := r.Decision.RetryAfter; retry == headgate.Never || retry > wait {
			return &headgate.DeniedError{Decision: r.Decision}
		}
		var end context.CancelFunc
		ctx, end = context.WithTimeout(ctx, wait)
		defer end()
	}
	return w.limiter.Wait(ctx, w.charge)
}

// askWithin is how long a store may take to answer.
const askWithin = 10 * time.Second
