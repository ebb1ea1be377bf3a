package client

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/store"
)

// maxBody is how many bytes of requests make a batch full, as [part.load] counts them. With one more share
// it stays below what a server reads, 4 MiB, also if all is escaped, which takes six bytes for one.
const maxBody = 512 << 10

// maxChargeOverhead bounds what a charge takes on the wire beside its limit and its key.
const maxChargeOverhead = 64

// part is a caller's part of a batch: the request, and then the answer.
type part struct {
	request api.Request
	size    int // bytes of the request before they are escaped
	charges int
	most    int // charges that fill a batch
	answer  api.Answer
}

// Size implements flight.Load. It counts charges; bytes count instead, as a part of the charges
// that fill a batch, if they fill more of it.
func (p *part) Size() int { return max(p.charges, p.size*p.most/maxBody) }

// Keys implements flight.Load. The server keeps those of one key apart.
func (p *part) Keys() int { return 0 }

// Key implements flight.Load.
func (p *part) Key(int) struct{} { return struct{}{} }

// Clear implements flight.Load.
func (p *part) Clear() { *p = part{most: p.most} }

// load makes it the request of a caller, whose limits and keys have a size.
func (p *part) load(check bool, charges []headgate.Charge, size int) {
	p.request = request(charges)
	p.request.Check = check
	p.charges, p.size = len(charges), size+maxChargeOverhead*len(charges)
}

// request returns charges for the wire.
func request(charges []headgate.Charge) api.Request {
	if len(charges) == 1 {
		return api.Request{Charge: charge(&charges[0])}
	}
	r := api.Request{Charges: make([]api.Charge, len(charges))}
	for i := range charges {
		r.Charges[i] = charge(&charges[i])
	}
	return r
}

func charge(c *headgate.Charge) api.Charge {
	w := api.Charge{Limit: c.Limit.Name(), Key: c.Key, Keep: c.Keep.String()}
	if !c.Cost.IsZero() {
		w.Cost = json.Number(c.Cost.String())
	}
	return w
}

// decision returns what the wire says about charges.
func decision(w *api.Decision, charges []headgate.Charge) (headgate.Decision, error) {
	d := headgate.Decision{
		Allowed: w.Allowed, LimitName: w.Limit, Key: w.Key,
		RetryAfter: retryAfter(w.RetryAfterMS), ResetAfter: millis(w.ResetAfterMS),
		At: time.UnixMicro(w.At).UTC(), EntryNumber: w.Entry,
		Replayed: w.Replayed, Applied: w.Applied,
	}
	if len(charges) == 1 {
		d.Key = charges[0].Key
	}
	var wrong error
	figure := func(n json.Number) (units int64, nanos int32) {
		units, nanos, err := api.Amount(n)
		wrong = cmp.Or(wrong, err)
		return units, nanos
	}
	d.Capacity, d.CapacityNanos = figure(w.Capacity)
	d.Remaining, d.RemainingNanos = figure(w.Remaining)
	for i := range w.Each {
		f := &w.Each[i]
		to := headgate.ChargeDecision{
			Charge: f.Charge, Allowed: f.Allowed, LimitName: f.Limit, Key: f.Key,
			RetryAfter: retryAfter(f.RetryAfterMS), ResetAfter: millis(f.ResetAfterMS),
			Applied: f.Applied,
		}
		to.Capacity, to.CapacityNanos = figure(f.Capacity)
		to.Remaining, to.RemainingNanos = figure(f.Remaining)
		d.Each = append(d.Each, to)
	}
	for _, via := range []headgate.Via{headgate.ViaPrefetch, headgate.ViaLocal, headgate.ViaFallback} {
		if w.Via != "" && w.Via == via.String() {
			d.Via = via
		}
	}
	if wrong != nil {
		return headgate.Decision{}, fmt.Errorf("server: %w: %w", store.ErrUnknownOutcome, wrong)
	}
	return d, nil
}

func retryAfter(ms *int64) time.Duration {
	if ms == nil {
		return headgate.Never
	}
	return millis(*ms)
}

// millis saturates.
func millis(ms int64) time.Duration {
	if ms > int64(headgate.Never/time.Millisecond) {
		return headgate.Never
	}
	return time.Duration(ms) * time.Millisecond
}
