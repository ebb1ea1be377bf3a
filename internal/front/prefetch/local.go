package prefetch

import (
	"sync"

	"github.com/headgate/headgate/law"
)

// localTokens holds the tokens of one cell that a node has taken up front. Times are on the
// clock of Store.now, except in outcomes.
type localTokens struct {
	params law.Params

	mu        sync.Mutex
	discarded bool    // reset, blocked, changed or given back
	grants    []grant // with credits left, the oldest first
	available int64   // credits in grants

	out  law.Outcome // the last outcome of the store, from which the outcomes of callers are made
	sent int64       // when the call of out was sent

	fetch       *fetch // under way, or nil
	waitingCost int64  // credits that callers wait for
	spent       int64  // credits handed out since the last fetch
}

// grant is the rest of a grant of the store.
type grant struct {
	op      law.Op // the op that took the grant
	out     law.Outcome
	left    int64
	expires int64
}

// fetch is a call of the store that other callers wait for.
type fetch struct {
	done    chan struct{}
	err     error       // set if the call failed
	cost    int64       // cost of each charge
	partial bool        // the store has refused some or all charges
	out     law.Outcome // if partial: the refusal
}

// alsoRefuses reports whether the refusal of a fetch holds for another op too.
func (f *fetch) alsoRefuses(op *law.Op) bool { return f.partial && op.Cost == f.cost }

func newLocalTokens(p law.Params) *localTokens { return &localTokens{params: p} }

// handOut grants a charge out of the tokens, if enough are left.
func (h *localTokens) handOut(p *law.Params, cost, now int64) (out law.Outcome, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.params != *p {
		return out, false
	}
	return h.deduct(cost, now)
}

// deduct takes the cost from the oldest grants, if enough are left, and returns the outcome for the caller.
func (h *localTokens) deduct(cost, now int64) (out law.Outcome, ok bool) {
	if h.discarded || cost <= 0 || h.available < cost {
		return out, false
	}
	h.expire(now)
	if h.available < cost {
		return out, false
	}
	h.available -= cost
	h.spent += cost
	for due := cost; due > 0; {
		oldest := &h.grants[0]
		paid := min(due, oldest.left)
		oldest.left -= paid
		if due -= paid; oldest.left == 0 {
			h.shift()
		}
	}
	out = h.out
	out.Granted, out.RetryAt, out.Via = 1, 0, law.ViaPrefetch
	out.Used -= h.available
	out.Clock += now - h.sent
	return out, true
}

// expire drops the grants whose life is over.
func (h *localTokens) expire(now int64) {
	for len(h.grants) > 0 && h.grants[0].expires <= now {
		h.available -= h.grants[0].left
		h.shift()
	}
}

// shift drops the first grant, and keeps the place of the others.
func (h *localTokens) shift() {
	n := copy(h.grants, h.grants[1:])
	h.grants[n] = grant{}
	h.grants = h.grants[:n]
}

// request grants a charge, or returns the fetch to wait for, or the count of charges that the caller has
// to take from the store, or reports that the localTokens was discarded.
func (h *localTokens) request(op *law.Op, now int64) (out law.Outcome, wait *fetch, count int64, discarded bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.discarded {
		return out, nil, 0, true
	}
	if out, ok := h.deduct(op.Cost, now); ok {
		return out, nil, 0, false
	}
	if h.fetch != nil {
		h.waitingCost += op.Cost
		return out, h.fetch, 0, false
	}
	h.fetch = &fetch{done: make(chan struct{}), cost: op.Cost}
	return out, nil, min(1+h.fetchSize(now)/op.Cost, law.Max/op.Cost), false
}

// fetchSize returns how many credits to take beyond those that are requested: those that other callers wait for, and as
// many as are spent in a life at the pace since the last fetch, but at most maxGrowth times what was spent since then,
// and never more than the prefetch holds.
func (h *localTokens) fetchSize(now int64) int64 {
	p := &h.params
	since := max(1, now-h.sent)
	size := h.waitingCost + int64(float64(h.spent)*min(maxGrowth, float64(p.PrefetchLife)/float64(since)))
	return min(size, p.Prefetch-h.available)
}

// maxGrowth bounds how much larger a prefetch is than what was spent since the one
// before: two calls that happen to come together say nothing of the pace.
const maxGrowth = 4

// failFetch ends a fetch with an error for all who wait for it. If err is nil, one of them fetches next.
func (h *localTokens) failFetch(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fetch.err = err
	close(h.fetch.done)
	h.fetch = nil
}

// finishFetch stores the tokens that a fetch has brought, and returns the outcome of the caller's own charge.
func (h *localTokens) finishFetch(op *law.Op, out *law.Outcome, sent int64) (ownOutcome law.Outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.fetch
	h.fetch = nil
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
	left := (granted - 1) * op.Cost
	if h.discarded {
		return ownOutcome // the other tokens are lost
	}
	h.out, h.sent, h.spent = *out, sent, op.Cost
	if left > 0 {
		h.grants = append(h.grants, grant{op: *op, out: *out, left: left, expires: sent + h.life(out)})
		h.available += left
	}
	return ownOutcome
}

// life returns how long the tokens of an outcome may be handed out. The tokens of a fixed window, which a step empties,
// end with the window.
func (h *localTokens) life(out *law.Outcome) int64 {
	p := &h.params
	if p.Drain >= p.Capacity {
		return min(p.PrefetchLife, out.State.EmptyAt-max(out.Clock, out.State.At))
	}
	return p.PrefetchLife
}

// stopWaiting removes the cost of a caller that does not wait any more.
func (h *localTokens) stopWaiting(cost int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waitingCost -= cost
}

// discard makes the tokens unusable.
func (h *localTokens) discard() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.discarded = true
}

// giveBack discards the tokens, and appends the ops that return them to the store.
func (h *localTokens) giveBack(now int64, back []law.Op) []law.Op {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.discarded {
		return back
	}
	h.discarded = true
	h.expire(now)
	for i := range h.grants {
		l := &h.grants[i]
		op := law.Back(&l.op, &l.out, l.left)
		op.Group = uint32(len(back) + 1)
		back = append(back, op)
	}
	return back
}
