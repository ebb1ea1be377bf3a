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
	if c.w.leaseLimit == nil {
		return
	}
	g := []charge{c.charge(c.w.leaseLimit)}
	g[0].Cost = headgate.Cost{}
	id := c.call(history.Call{Verb: history.Acquire, Kept: true}, g)
	lease, err := c.n.limiter.Acquire(ctx, headgateCharges(g)...)
	c.holdLease(lease, err, id, g)
}

// holdLease records the answer of a call that acquires a lease. It holds the lease for a while, and then releases or
// detaches it.
func (c *caller) holdLease(lease *headgate.Lease, err error, id int, g []charge) {
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
	release := c.call(history.Call{Verb: history.Release, Of: id}, g)
	ctx, cancel := sched.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c.done(release, lease.Release(ctx))
}

// detach detaches a lease, and renews or releases it by its id some time later.
func (c *caller) detach(lease *headgate.Lease, id int, g []charge) {
	held := lease.Detach()
	if held == nil {
		return
	}
	for range c.w.s.rng.IntN(3) {
		c.w.s.sleep(c.w.s.between(1, 15*time.Second))
		ctx, cancel := sched.WithTimeout(context.Background(), 5*time.Second)
		verb, act := history.Renew, c.n.limiter.Renew
		if c.w.s.chance(400) {
			verb, act = history.Release, c.n.limiter.Release
		}
		call := c.call(history.Call{Verb: verb, Of: id}, g)
		c.done(call, act(ctx, held...))
		cancel()
	}
}

// checkWait checks that a call which waits for maxWait at most has ended soon after.
func (c *caller) checkWait(verb string, begin, maxWait time.Duration) {
	const answerTime = 40 * time.Second // the longest, with a store that is slow or away
	if took := c.w.s.now() - begin; took > maxWait+answerTime {
		c.w.broken = append(c.w.broken, fmt.Sprintf("%s of %s has taken %s", verb, maxWait, took))
	}
}

// await waits for a lease. Callers of one Limiter get it in the order in which they came.
func (c *caller) await() {
	if c.w.leaseLimit == nil {
		return
	}
	g := []charge{c.charge(c.w.leaseLimit)}
	g[0].Cost = headgate.Cost{}
	l, ok := c.n.limiter.(*headgate.Limiter)
	if !ok {
		return
	}
	maxWait := c.w.s.between(1, time.Minute)
	ctx, cancel := sched.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	self := &waiter{c.n.p, g[0].Key, g[0].Keep, c.w.s.now()}
	c.w.waiters[self] = struct{}{}
	id := c.call(history.Call{Verb: history.Acquire, Kept: true, Wait: maxWait.Microseconds()}, g)
	lease, err := l.AwaitAtMost(ctx, maxWait, headgateCharges(g)...)
	delete(c.w.waiters, self)
	c.checkWait("AwaitAtMost", self.since, maxWait)
	for other := range c.w.waiters {
		if err == nil && other.process == self.process && other.key == self.key && other.keep == self.keep &&
			other.since < self.since-2*time.Second {
			c.w.broken = append(c.w.broken,
				fmt.Sprintf("%s: call %d has a lease of %q, and one that came %s earlier waits",
					c.n.name, id, self.key, self.since-other.since))
			break
		}
	}
	c.holdLease(lease, err, id, g)
}

type waiter struct {
	process *process
	key     string
	keep    headgate.Headroom // waiters with different headroom stand in different queues
	since   time.Duration
}

// idLife is how long stores remember the id of a request.
const idLife = 2 * time.Hour
