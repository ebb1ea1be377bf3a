package service

import (
	"cmp"
	"encoding/json"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
)

// Bounds on the refusals that are recorded, to explain why a key is refused.
const (
	maxRefusals      = 1000 // kept refusals of all keys
	maxShownRefusals = 20   // refusals that are shown of one key
	maxPerRequest    = 10   // refusals that are kept of one request, so that it cannot push out all others
)

// refusals keeps the last charges of all keys that were refused here. The zero value is empty. It is safe for
// concurrent use, and allocates all its memory, maxRefusals entries, at the first refusal.
type refusals struct {
	mu   sync.Mutex
	ring []refusal // guarded by mu
	next int       // index in ring of the next and so of the oldest refusal; guarded by mu
}

type refusal struct {
	at         int64 // the store's decision time, microseconds
	limit, key string
	cost       headgate.Cost // zero: 1
	keep       headgate.Headroom
	retryAfter time.Duration
}

// add records the refused charges of a refusal. It ignores an admission.
func (r *refusals) add(d *headgate.Decision, charges []headgate.Charge) {
	if d.Allowed {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(charges) == 1 {
		r.replaceOldest(refusal{d.At.UnixMicro(), d.LimitName, d.Key, charges[0].Cost, charges[0].Keep, d.RetryAfter})
		return
	}
	n := 0
	for i := range d.Each {
		if f := &d.Each[i]; !f.Allowed && n < maxPerRequest {
			c := &charges[f.Charge]
			r.replaceOldest(refusal{d.At.UnixMicro(), f.LimitName, f.Key, c.Cost, c.Keep, f.RetryAfter})
			n++
		}
	}
}

// replaceOldest replaces the oldest refusal. The caller holds mu.
func (r *refusals) replaceOldest(newest refusal) {
	if r.ring == nil {
		r.ring = make([]refusal, maxRefusals)
	}
	r.ring[r.next] = newest
	r.next = (r.next + 1) % len(r.ring)
}

// ofKey returns the last maxShownRefusals refusals of a key by limits that include reports, newest first; never nil.
func (r *refusals) ofKey(key string, include func(limit string) bool) []api.Refusal {
	list := []api.Refusal{}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.ring {
		f := &r.ring[(r.next-1-i+2*len(r.ring))%len(r.ring)] // backwards from the newest, which is before next
		if f.limit == "" || len(list) == maxShownRefusals {  // no older refusals, or enough
			break
		}
		if f.key == key && include(f.limit) {
			list = append(list, f.apiRefusal())
		}
	}
	return list
}

func (r *refusal) apiRefusal() api.Refusal {
	cost := cmp.Or(r.cost, headgate.Units(1))
	return api.Refusal{
		At: r.at, Limit: r.limit, Cost: json.Number(cost.String()), Keep: r.keep.String(),
		RetryAfterMS: retryAfterMS(r.retryAfter),
	}
}
