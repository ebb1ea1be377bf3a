package prefetch

import (
	"sync"

	"github.com/headgate/headgate/law"
)

// localTokens holds what a node has taken up front of one cell. Times are on the
// clock of Store.now, but for those of outcomes.
type localTokens struct {
	params law.Params

	mu     sync.Mutex
	dead   bool    // reset, blocked, changed or given back
	grants []grant // with something left, the oldest first
	total  int64   // credits in grants

	// What the store said last, and when it was asked: what callers see.
	out  law.Outcome
	sent int64

	fetch  *fetch // under way, or nil
	wanted int64  // credits that callers wait for
	used   int64  // credits taken and handed out since the last fetch
}

// grant is the rest of a grant of the store.
type grant struct {
	op      law.Op // it was taken by
	out     law.Outcome
	left    int64
	expires int64
}

// fetch is a call of the store that others wait for.
type fetch struct {
	done  chan struct{}
	err   error       // it has failed
	cost  int64       // of each
	short bool        // the store has refused some or all
	out   law.Outcome // then: the refusal
}

// refused reports whether the answer to a fetch holds for another op too.
func (f *fetch) refused(op *law.Op) bool { return f.short && op.Cost == f.cost }

func newLocalTokens(p law.Params) *localTokens { return &localTokens{params: p} }

// hand hands a charge out, if there is enough left.
func (h *localTokens) hand(p *law.Params, cost, now int64) (out law.Outcome, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.params != *p {
		return out, false
	}
	return h.pay(cost, now)
}

func (h *localTokens) pay(cost, now int64) (out law.Outcome, ok bool) {
	if h.dead || cost <= 0 || h.total < cost {
		return out, false
	}
	h.expire(now)
	if h.total < cost {
		return out, false
	}
	h.total -= cost
	h.used += cost
	for due := cost; due > 0; {
		first := &h.grants[0]
		paid := min(due, first.left)
		first.left -= paid
		if due -= paid; first.left == 0 {
			h.shift()
		}
	}
	out = h.out
	out.Granted, out.RetryAt, out.Via = 1, 0, law.ViaPrefetch
	out.Used -= h.total
	out.Clock += now - h.sent
	return out, true
}

// expire drops the grants whose life is over.
func (h *localTokens) expire(now int64) {
	for len(h.grants) > 0 && h.grants[0].expires <= now {
		h.total -= h.grants[0].left
		h.shift()
	}
}

// shift drops the first grant, and keeps the place of the others.
func (h *localTokens) shift() {
	n := copy(h.grants, h.grants[1:])
	h.grants[n] = grant{}
	h.grants = h.grants[:n]
}

// ask hands a charge out, or says what to wait for, or that the caller is to
// take count charges from the store, or that the localTokens has ended.
func (h *localTokens) ask(op *law.Op, now int64) (out law.Outcome, wait *fetch, count int64, ended bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dead {
		return out, nil, 0, true
	}
	if out, ok := h.pay(op.Cost, now); ok {
		return out, nil, 0, false
	}
	if h.fetch != nil {
		h.wanted += op.Cost
		return out, h.fetch, 0, false
	}
	h.fetch = &fetch{done: make(chan struct{}), cost: op.Cost}
	return out, nil, min(1+h.size(now)/op.Cost, law.Max/op.Cost), false
}

// size returns how many credits to take beyond those that are requested: what other callers wait for, and as many as go
// in a life at the pace since the last fetch, but at most four times what has gone since then, and never more than the
// prefetch holds.
func (h *localTokens) size(now int64) int64 {
	p := &h.params
	since := max(1, now-h.sent)
	size := h.wanted + int64(float64(h.used)*min(growth, float64(p.PrefetchLife)/float64(since)))
	return min(size, p.Prefetch-h.total)
}

// growth bounds by how much a prefetch is larger than what has gone since the one
// before: two calls that happen to come together are not a pace.
const growth = 4

// failed ends a fetch with an error for all who wait; nil lets the next go.
func (h *localTokens) failed(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fetch.err = err
	close(h.fetch.done)
	h.fetch = nil
}

// fetched takes what a fetch has brought, and returns the caller's own part.
func (h *localTokens) fetched(op *law.Op, out *law.Outcome, sent int64) (mine law.Outcome) {
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
		f.short, f.out = true, *out
		f.out.Granted = 0
	}
	if granted == 0 {
		return *out
	}
	mine = law.Split(op, out, 0)
	left := (granted - 1) * op.Cost
	if h.dead {
		return mine // what came with it is lost
	}
	h.out, h.sent, h.used = *out, sent, op.Cost
	if left > 0 {
		h.grants = append(h.grants, grant{op: *op, out: *out, left: left, expires: sent + h.life(out)})
		h.total += left
	}
	return mine
}

// life returns how long what an outcome brought may be handed out. The tokens of a fixed window, which a step empties,
// end with it.
func (h *localTokens) life(out *law.Outcome) int64 {
	p := &h.params
	if p.Drain >= p.Capacity {
		return min(p.PrefetchLife, out.State.EmptyAt-max(out.Clock, out.State.At))
	}
	return p.PrefetchLife
}

// leave takes back the wish of a caller that waits no more.
func (h *localTokens) leave(cost int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wanted -= cost
}

// end makes the localTokens hand out nothing any more.
func (h *localTokens) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dead = true
}

// giveBack ends the localTokens and appends the returns of what is left.
func (h *localTokens) giveBack(now int64, back []law.Op) []law.Op {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dead {
		return back
	}
	h.dead = true
	h.expire(now)
	for i := range h.grants {
		l := &h.grants[i]
		op := law.Back(&l.op, &l.out, l.left)
		op.Group = uint32(len(back) + 1)
		back = append(back, op)
	}
	return back
}
