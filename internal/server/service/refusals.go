package service

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/auth"
)

// Limits on the refusals that are kept to explain why a key is refused.
const (
	keptRefusals  = 1000 // of all keys together
	shownRefusals = 20   // of one key
	perRequest    = 10   // charges of one request, so that one cannot push out all others
)

// refusals are the last charges that were refused here, of all keys. The zero value has none. It is
// safe for concurrent use, and takes memory from the first refusal on: keptRefusals entries, each
// with a key and the name of a limit.
type refusals struct {
	mu   sync.Mutex
	last []refusal // a ring; guarded by mu
	next int       // in last, which is the oldest; guarded by mu
}

// refusal is a charge that was refused.
type refusal struct {
	at         int64 // the store's decision time, microseconds
	limit, key string
	cost       headgate.Cost // zero: 1
	keep       headgate.Headroom
	retryAfter time.Duration
}

// add remembers the charges for which a request was refused. A decision that allows is left out.
func (r *refusals) add(d *headgate.Decision, charges []headgate.Charge) {
	if d.Allowed {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(charges) == 1 {
		r.put(refusal{d.At.UnixMicro(), d.LimitName, d.Key, charges[0].Cost, charges[0].Keep, d.RetryAfter})
		return
	}
	n := 0
	for i := range d.Each {
		if f := &d.Each[i]; !f.Allowed && n < perRequest {
			c := &charges[f.Charge]
			r.put(refusal{d.At.UnixMicro(), f.LimitName, f.Key, c.Cost, c.Keep, f.RetryAfter})
			n++
		}
	}
}

// put remembers one in the place of the oldest. The caller holds mu.
func (r *refusals) put(one refusal) {
	if r.last == nil {
		r.last = make([]refusal, keptRefusals)
	}
	r.last[r.next] = one
	r.next = (r.next + 1) % len(r.last)
}

// of returns the last refusals of a key by limits that the caller may touch, newest first; not nil.
func (r *refusals) of(key string, caller *auth.Caller) []api.Refusal {
	list := []api.Refusal{}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.last {
		one := &r.last[(r.next-1-i+2*len(r.last))%len(r.last)]
		if one.limit == "" || len(list) == shownRefusals { // there are no older ones, or enough
			break
		}
		if one.key == key && caller.Touches(one.limit) == nil {
			list = append(list, one.wire())
		}
	}
	return list
}

func (r *refusal) wire() api.Refusal {
	cost := r.cost
	if cost.IsZero() {
		cost = headgate.Units(1)
	}
	return api.Refusal{
		At: r.at, Limit: r.limit, Cost: json.Number(cost.String()), Keep: r.keep.String(),
		RetryAfterMS: retryAfter(r.retryAfter),
	}
}
