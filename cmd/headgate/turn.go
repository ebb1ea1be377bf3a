package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/stores"
)

// waiter is a charge that can be waited for.
type waiter struct {
	limiter *headgate.Limiter
	charge  headgate.Charge
	place   stores.Place
}

// chargeOf opens the store, and makes a charge of what the command line says.
func chargeOf(cmd *cobra.Command, limit, key, cost, keep string) (w waiter, closeStore func() error, err error) {
	c, err := loadConfig(cmd)
	if err != nil {
		return w, nil, err
	}
	if headgate.ValidName(limit) != nil { // what is wrong with a notation is found before a store is opened
		if _, err := c.Resolve(limit); err != nil {
			return w, nil, err
		}
	}
	w.charge.Key = key
	if w.charge.Cost, err = headgate.ParseCost(cost); err != nil {
		return w, nil, err
	}
	if err := w.charge.Keep.UnmarshalText([]byte(keep)); err != nil {
		return w, nil, err
	}
	p, s, err := openBy(cmd, c, stores.Options{})
	if err != nil {
		return w, nil, err
	}
	if w.charge.Limit, err = c.Resolve(limit); err == nil && w.charge.Limit.OnlyName() {
		w.charge.Limit, err = newCatalogNames(cmd.Context(), s, c).Find(cmd.Context(), limit, key)
	}
	if err != nil {
		s.Close()
		return w, nil, err
	}
	w.limiter, w.place = headgate.New(s, nil), p
	return w, s.Close, nil
}

// start waits for a turn, for so long at most if bounded. A turn that is held
// until it is released is returned.
func (w waiter) start(ctx context.Context, wait time.Duration, bounded bool) (*headgate.Lease, error) {
	if !bounded {
		wait = headgate.Never
	}
	if w.charge.Limit.Concurrency() {
		return w.limiter.AwaitAtMost(ctx, wait, w.charge)
	}
	return nil, w.limiter.WaitAtMost(ctx, wait, w.charge)
}

// askWithin is how long a store may take to answer.
const askWithin = 10 * time.Second
