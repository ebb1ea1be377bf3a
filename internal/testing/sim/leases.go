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
	charges := []charge{c.randomCharge(c.w.leaseLimit)}
	charges[0].Cost = headgate.Cost{}
	id := c.recordCall(history.Call{Verb: history.Acquire, AutoRenew: true}, charges)
	lease, err := c.n.limiter.Acquire(ctx, headgateCharges(charges)...)
	c.holdLease(lease, err, id, charges)
}

// holdLease records the answer of a call that acquires a lease. It holds the lease for a while, and then releases or
// detaches it.
func (c *caller) holdLease(lease *headgate.Lease, err error, id int, charges []charge) {
	if err != nil {
		c.recordErr(id, err)
		return
	}
	c.w.rec.Decision(c.n.name, id, lease.Decision, nil)
	if !lease.Decision.Allowed {
		return
	}
	isLost := sched.Wait(c.w.s.between(1, 40*time.Second), lease.Lost(), nil, nil) == 0
	if !isLost && c.w.s.chance(300) {
		c.detach(lease, id, charges)
		return
	}
	release := c.recordCall(history.Call{Verb: history.Release, Of: id}, charges)
	ctx, cancel := sched.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c.recordErr(release, lease.Release(ctx))
}

// detach detaches a lease, and later renews or releases it by its id, up to twice.
func (c *caller) detach(lease *headgate.Lease, id int, charges []charge) {
	leases := lease.Detach()
	if leases == nil {
		return
	}
	for range c.w.s.rng.IntN(3) {
		c.w.s.sleep(c.w.s.between(1, 15*time.Second))
		ctx, cancel := sched.WithTimeout(context.Background(), 5*time.Second)
		verb, act := history.Renew, c.n.limiter.Renew
		if c.w.s.chance(400) {
			verb, act = history.Release, c.n.limiter.Release
		}
		call := c.recordCall(history.Call{Verb: verb, Of: id}, charges)
		c.recordErr(call, act(ctx, leases...))
		cancel()
	}
}

// checkWait checks that a call which waits for at most maxWait has ended soon after maxWait.
func (c *caller) checkWait(verb string, begin, maxWait time.Duration) {
	const answerTime = 40 * time.Second // maximum, with a store that is slow or away
	if took := c.w.s.now() - begin; took > maxWait+answerTime {
		c.w.broken = append(c.w.broken, fmt.Sprintf("%s of %s has taken %s", verb, maxWait, took))
	}
}

// await waits for a lease and holds it, and checks that callers of one Limiter get leases in the order of their calls.
func (c *caller) await() {
	if c.w.leaseLimit == nil {
		return
	}
	charges := []charge{c.randomCharge(c.w.leaseLimit)}
	charges[0].Cost = headgate.Cost{}
	l, ok := c.n.limiter.(*headgate.Limiter)
	if !ok {
		return
	}
	maxWait := c.w.s.between(1, time.Minute)
	ctx, cancel := sched.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	self := &waiter{c.n.p, charges[0].Key, charges[0].Keep, c.w.s.now()}
	c.w.waiters[self] = struct{}{}
	id := c.recordCall(history.Call{Verb: history.Acquire, AutoRenew: true, Wait: maxWait.Microseconds()}, charges)
	lease, err := l.AwaitAtMost(ctx, maxWait, headgateCharges(charges)...)
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
	c.holdLease(lease, err, id, charges)
}

type waiter struct {
	process *process
	key     string
	keep    headgate.Headroom // waiters with different headroom stand in different queues
	since   time.Duration
}

const idLife = 2 * time.Hour // of the requests with an id
