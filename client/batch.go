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

// maxBody is how many bytes of requests, as [part.setRequest] counts them, fill a batch. With maxCallerBytes more it is
// below 4 MiB, which a server reads at most, even if every byte is escaped to six.
const maxBody = 512 << 10

// maxChargeOverhead bounds the bytes of a charge on the wire without its limit and its key.
const maxChargeOverhead = 64

// part is one request of a batch, and its answer: a flight.Load.
type part struct {
	request    api.Request
	size       int // bytes of the request before they are escaped
	charges    int
	maxCharges int // charges that fill a batch
	answer     api.Answer
}

// Size returns the charges of the request, or, if its bytes fill more of a batch, the number
// of charges that fill as much.
func (p *part) Size() int { return max(p.charges, p.size*p.maxCharges/maxBody) }

// Keys returns 0: the server keeps the requests of one key apart.
func (p *part) Keys() int { return 0 }

func (p *part) Key(int) struct{} { return struct{}{} }

func (p *part) Clear() { *p = part{maxCharges: p.maxCharges} }

// newRequest encodes charges for the wire.
func newRequest(charges []headgate.Charge) api.Request {
	if len(charges) == 1 {
		return api.Request{Charge: newCharge(&charges[0])}
	}
	r := api.Request{Charges: make([]api.Charge, len(charges))}
	for i := range charges {
		r.Charges[i] = newCharge(&charges[i])
	}
	return r
}

func newCharge(c *headgate.Charge) api.Charge {
	w := api.Charge{Limit: c.Limit.Name(), Key: c.Key, Keep: c.Keep.String(), Alternative: c.Alternative}
	if !c.Cost.IsZero() {
		w.Cost = json.Number(c.Cost.String())
	}
	return w
}

func newDecision(w *api.Decision, charges []headgate.Charge) (headgate.Decision, error) {
	d := headgate.Decision{
		Allowed: w.Allowed, LimitName: w.Limit, Key: w.Key,
		RetryAfter: parseRetryAfter(w.RetryAfterMS), ResetAfter: fromMillis(w.ResetAfterMS),
		At: time.UnixMicro(w.At).UTC(), EntryNumber: w.Entry,
		Replayed: w.Replayed, Applied: w.Applied, Alternative: w.Alternative, Crossed: w.Crossed,
	}
	if len(charges) == 1 {
		d.Key = charges[0].Key
	}
	var amountErr error
	amount := func(n json.Number) (units int64, nanos int32) {
		units, nanos, err := api.Amount(n)
		amountErr = cmp.Or(amountErr, err)
		return units, nanos
	}
	d.Capacity, d.CapacityNanos = amount(w.Capacity)
	d.Remaining, d.RemainingNanos = amount(w.Remaining)
	for i := range w.Each {
		f := &w.Each[i]
		each := headgate.ChargeDecision{
			Charge: f.Charge, Allowed: f.Allowed, LimitName: f.Limit, Key: f.Key,
			RetryAfter: parseRetryAfter(f.RetryAfterMS), ResetAfter: fromMillis(f.ResetAfterMS),
			Applied: f.Applied, Crossed: f.Crossed,
		}
		each.Capacity, each.CapacityNanos = amount(f.Capacity)
		each.Remaining, each.RemainingNanos = amount(f.Remaining)
		d.Each = append(d.Each, each)
	}
	for _, via := range []headgate.Via{headgate.ViaPrefetch, headgate.ViaLocal, headgate.ViaFallback} {
		if w.Via != "" && w.Via == via.String() {
			d.Via = via
		}
	}
	if amountErr != nil {
		return headgate.Decision{}, fmt.Errorf("server: %w: %w", store.ErrUnknownOutcome, amountErr)
	}
	return d, nil
}

func parseRetryAfter(ms *int64) time.Duration {
	if ms == nil {
		return headgate.Never
	}
	return fromMillis(*ms)
}

// fromMillis converts milliseconds to a duration, headgate.Never at most.
func fromMillis(ms int64) time.Duration {
	if ms > int64(headgate.Never/time.Millisecond) {
		return headgate.Never
	}
	return time.Duration(ms) * time.Millisecond
}
