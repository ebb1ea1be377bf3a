package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/internal/testing/history"
)

// hold acquires a lease, holds it for a while, and releases it.
func (c *caller) hold(ctx context.Context) {
	if c.w.held == nil {
		return
	}
	g := []charge{c.charge(c.w.held)}
	g[0].Cost = headgate.Cost{}
	id := c.call(history.Call{Verb: history.Acquire, Kept: true}, g)
	lease, err := c.n.ask.Acquire(ctx, plain(g)...)
	c.keep(lease, err, id, g)
}

// keep records the answer to a call for a lease, and holds what was acquired for a while.
func (c *caller) keep(lease *headgate.Lease, err error, id int, g []charge) {
	if err != nil {
		c.done(id, err)
		return
	}
	c.w.rec.Decided(c.n.name, id, lease.Decision, nil)
	if !lease.Decision.Allowed {
		return
	}
	lost := sched.Wait(c.w.s.between(1, 40*time.Second), lease.Lost(), nil, nil) == 0
	if !lost && c.w.s.chance(300) {
		c.detach(lease, id, g)
		return
	}
	over := c.call(history.Call{Verb: history.Release, Of: id}, g)
	within, cancel := sched.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c.done(over, lease.Release(within))
}

// detach hands a lease over, to be renewed and released some time later.
func (c *caller) detach(lease *headgate.Lease, id int, g []charge) {
	held := lease.Detach()
	if held == nil {
		return
	}
	for range c.w.s.rng.IntN(3) {
		c.w.s.sleep(c.w.s.between(1, 15*time.Second))
		ctx, cancel := sched.WithTimeout(context.Background(), 5*time.Second)
		verb, act := history.Renew, c.n.ask.Renew
		if c.w.s.chance(400) {
			verb, act = history.Release, c.n.ask.Release
		}
		over := c.call(history.Call{Verb: verb, Of: id}, g)
		c.done(over, act(ctx, held...))
		cancel()
	}
}

// patience checks that a call which waits for a time at most has ended soon after.
func (c *caller) patience(verb string, begin, most time.Duration) {
	const answers = 40 * time.Second // of a store that is slow, or away
	if took := c.w.s.now() - begin; took > most+answers {
		c.w.broken = append(c.w.broken, fmt.Sprintf("%s of %s has taken %s", verb, most, took))
	}
}

// await waits for a lease. Callers of one Limiter get it in the order in which they came.
func (c *caller) await() {
	if c.w.held == nil {
		return
	}
	g := []charge{c.charge(c.w.held)}
	g[0].Cost = headgate.Cost{}
	l, ok := c.n.ask.(*headgate.Limiter)
	if !ok {
		return
	}
	most := c.w.s.between(1, time.Minute)
	ctx, cancel := sched.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	me := &waiter{c.n.p, g[0].Key, g[0].Keep, c.w.s.now()}
	c.w.waiting[me] = struct{}{}
	id := c.call(history.Call{Verb: history.Acquire, Kept: true, Wait: most.Microseconds()}, g)
	lease, err := l.AwaitAtMost(ctx, most, plain(g)...)
	delete(c.w.waiting, me)
	c.patience("AwaitAtMost", me.since, most)
	for other := range c.w.waiting {
		if err == nil && other.of == me.of && other.key == me.key && other.keep == me.keep &&
			other.since < me.since-2*time.Second {
			c.w.broken = append(c.w.broken,
				fmt.Sprintf("%s: call %d has a lease of %q, and one that came %s earlier waits",
					c.n.name, id, me.key, me.since-other.since))
			break
		}
	}
	c.keep(lease, err, id, g)
}

type waiter struct {
	of    *process
	key   string
	keep  headgate.Headroom // waiters with different headroom stand in different lines
	since time.Duration
}

// idLife is for how long stores remember the ids of requests.
const idLife = 2 * time.Hour
