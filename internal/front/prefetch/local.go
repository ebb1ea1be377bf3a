package prefetch

import (
	"sync"

	"github.com/headgate/headgate/law"
)

// localTokens holds the tokens of one cell that this process has taken up front. Times are on the clock of Store.now,
// except in outcomes.
type localTokens struct {
	params law.Params

	mu            sync.Mutex
	discarded     bool    // reset, blocked, changed or given back
	grants        []grant // those with credits, the oldest first
	unusedCredits int64   // the sum of their credits

	out    law.Outcome // the last outcome of the store, from which the outcomes of callers are made
	sentAt int64       // when the call of out was sent

	fetch          *fetch // the call that is under way, or nil
	waitingCredits int64  // what callers wait for
	spentCredits   int64  // handed out since the last fetch, its caller's own charge included
}

// grant holds the tokens of one call of the store that are not handed out yet.
type grant struct {
	op      law.Op // the op that took the grant
	out     law.Outcome
	credits int64
	expires int64
}

// fetch is a call of the store that other callers wait for.
type fetch struct {
	done    chan struct{} // closed at the end
	err     error         // set if the call failed, for its waiters too
	cost    int64         // cost of each charge
	partial bool          // the store has refused some or all charges
	out     law.Outcome   // if partial: the refusal
}

// alsoRefuses reports whether the refusal of a fetch holds for another op too.
func (f *fetch) alsoRefuses(op *law.Op) bool { return f.partial && op.Cost == f.cost }

// handOut grants a charge out of the tokens, if enough are left.
func (t *localTokens) handOut(p *law.Params, cost, now int64) (out law.Outcome, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.params != *p {
		return out, false
	}
	return t.deduct(cost, now)
}

// deduct takes the cost from the oldest grants, if they suffice, and returns the outcome for the caller.
func (t *localTokens) deduct(cost, now int64) (out law.Outcome, ok bool) {
	if t.discarded || cost <= 0 || t.unusedCredits < cost {
		return out, false
	}
	t.expire(now)
	if t.unusedCredits < cost {
		return out, false
	}
	t.unusedCredits -= cost
	t.spentCredits += cost
	for due := cost; due > 0; {
		oldest := &t.grants[0]
		paid := min(due, oldest.credits)
		oldest.credits -= paid
		if due -= paid; oldest.credits == 0 {
			t.shift()
		}
	}
	out = t.out
	out.Granted, out.RetryAt, out.Via = 1, 0, law.ViaPrefetch
	out.Used -= t.unusedCredits
	out.Clock += now - t.sentAt
	return out, true
}

// expire drops the grants whose life is over.
func (t *localTokens) expire(now int64) {
	for len(t.grants) > 0 && t.grants[0].expires <= now {
		t.unusedCredits -= t.grants[0].credits
		t.shift()
	}
}

// shift drops the first grant, and keeps the place of the others.
func (t *localTokens) shift() {
	n := copy(t.grants, t.grants[1:])
	t.grants[n] = grant{}
	t.grants = t.grants[:n]
}

// request grants a charge, or returns the fetch to wait for, or the count of charges that the caller has to take from
// the store, or reports that the tokens were discarded.
func (t *localTokens) request(op *law.Op, now int64) (out law.Outcome, wait *fetch, count int64, discarded bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.discarded {
		return out, nil, 0, true
	}
	if out, ok := t.deduct(op.Cost, now); ok {
		return out, nil, 0, false
	}
	if t.fetch != nil {
		t.waitingCredits += op.Cost
		return out, t.fetch, 0, false
	}
	t.fetch = &fetch{done: make(chan struct{}), cost: op.Cost}
	return out, nil, min(1+t.fetchSize(now)/op.Cost, law.Max/op.Cost), false
}

// fetchSize returns how many credits to take beyond those that are requested: those that other callers wait for, and as
// many as are spent in a life at the pace since the last fetch, but at most maxGrowth times what was spent since then,
// and never more than the prefetch holds.
func (t *localTokens) fetchSize(now int64) int64 {
	p := &t.params
	since := max(1, now-t.sentAt)
	size := t.waitingCredits + int64(float64(t.spentCredits)*min(maxGrowth, float64(p.PrefetchLife)/float64(since)))
	return min(size, p.Prefetch-t.unusedCredits)
}

// maxGrowth bounds how much larger a prefetch is than what was spent since the one before: two calls that happen to
// come together say nothing of the pace.
const maxGrowth = 4

// failFetch ends a fetch with an error for all who wait for it. If err is nil, one of them fetches next.
func (t *localTokens) failFetch(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fetch.err = err
	close(t.fetch.done)
	t.fetch = nil
}

// finishFetch stores the tokens that a fetch has brought, and returns the outcome of the caller's own charge.
func (t *localTokens) finishFetch(op *law.Op, out *law.Outcome, sentAt int64) (ownOutcome law.Outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.fetch
	t.fetch = nil
	defer close(f.done)
	if out.Err != nil || out.Stale {
		return *out
	}
	granted := out.Granted
	if granted < op.Count {
		f.partial, f.out = true, *out
		f.out.Granted = 0
	}
	if granted == 0 {
		return *out
	}
	ownOutcome = law.Split(op, out, 0)
	credits := (granted - 1) * op.Cost
	if t.discarded {
		return ownOutcome // the other tokens are lost
	}
	t.out, t.sentAt, t.spentCredits = *out, sentAt, op.Cost
	if credits > 0 {
		t.grants = append(t.grants, grant{op: *op, out: *out, credits: credits, expires: sentAt + t.life(out)})
		t.unusedCredits += credits
	}
	return ownOutcome
}

// life returns how long the tokens of an outcome may be handed out. The tokens of a fixed window, which a step empties,
// end with the window.
func (t *localTokens) life(out *law.Outcome) int64 {
	p := &t.params
	if p.Drain >= p.Capacity {
		return min(p.PrefetchLife, out.State.EmptyAt-max(out.Clock, out.State.At))
	}
	return p.PrefetchLife
}

// stopWaiting subtracts the cost of a caller that no longer waits.
func (t *localTokens) stopWaiting(cost int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waitingCredits -= cost
}

func (t *localTokens) discard() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.discarded = true
}

// giveBack discards the tokens, and appends the ops that return them to the store.
func (t *localTokens) giveBack(now int64, back []law.Op) []law.Op {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.discarded {
		return back
	}
	t.discarded = true
	t.expire(now)
	for i := range t.grants {
		g := &t.grants[i]
		op := law.Back(&g.op, &g.out, g.credits)
		op.Group = uint32(len(back) + 1)
		back = append(back, op)
	}
	return back
}
