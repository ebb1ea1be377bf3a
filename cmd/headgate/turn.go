package main

import (
	"context"
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
	if !bounded {
		wait = headgate.Never
	}
	if w.charge.Limit.Held() {
		return w.limiter.AwaitAtMost(ctx, wait, w.charge)
	}
	return nil, w.limiter.WaitAtMost(ctx, wait, w.charge)
}

// askWithin is how long a store may take to answer.
const askWithin = 10 * time.Second
