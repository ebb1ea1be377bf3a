package client

import (
	"encoding/json"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/api"
)

// maxBody is how many bytes of requests make a batch full. With one more share
// it stays below what a server reads, 4 MiB, also if all is escaped.
const maxBody = 1 << 20

// batch is the batch of one flight. Callers write their requests into its body.
type batch struct {
	most    int    // charges at which it is full
	body    []byte // the requests, a comma after each
	charges int
	slots   []slot
	left    int // slots whose callers are gone
	answers api.Answers
}

// slot says where the request of a caller is.
type slot struct {
	end  int32 // in the body, after its comma
	turn int32 // among the requests that were sent; -1: the caller left before
}

const head = `{"requests":[`

func (c *Client) newBatch() *batch { return &batch{most: c.cfg.MaxBatch} }

func (c *batch) Full() bool { return c.charges >= c.most || len(c.body) >= maxBody }

func (c *batch) Clear() {
	c.body, c.slots, c.charges, c.left, c.answers = c.body[:0], c.slots[:0], 0, 0, api.Answers{}
}

// join adds the request of a caller.
func (c *batch) join(check bool, charges []headgate.Charge) (n int) {
	if len(c.slots) == 0 {
		c.body = append(c.body[:0], head...)
	}
	r := request(charges)
	r.Check = check
	c.body = append(r.AppendJSON(c.body), ',')
	c.charges += len(charges)
	c.slots = append(c.slots, slot{end: int32(len(c.body))})
	return len(c.slots) - 1
}

// leave takes a caller out before departure.
func (c *batch) leave(n int) {
	c.slots[n].turn = -1
	c.left++
}

// depart ends the body, without the requests of callers that left, and returns
// how many requests it has.
func (c *batch) depart() int {
	turn, start, end := int32(0), len(head), len(head)
	for i := range c.slots {
		s := &c.slots[i]
		if s.turn >= 0 {
			s.turn = turn
			turn++
			if c.left > 0 {
				copy(c.body[end:], c.body[start:s.end])
			}
			end += int(s.end) - start
		}
		start = int(s.end)
	}
	c.body = append(c.body[:end-1], `]}`...)
	return int(turn)
}

// answer returns what became of the request of a caller.
func (c *batch) answer(n int, charges []headgate.Charge) (headgate.Decision, error) {
	a := &c.answers.Answers[c.slots[n].turn]
	if a.Decision == nil {
		return headgate.Decision{}, failure(a.Problem)
	}
	return decision(a.Decision, charges), nil
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
	w := api.Charge{Limit: c.Limit.Name(), Key: c.Key}
	if !c.Cost.IsZero() {
		w.Cost = json.Number(c.Cost.String())
	}
	return w
}

// decision returns what the wire says about charges.
func decision(w *api.Decision, charges []headgate.Charge) headgate.Decision {
	d := headgate.Decision{
		Allowed: w.Allowed, LimitName: w.Limit, Key: w.Key, Remaining: w.Remaining, RetryAfter: headgate.Never,
		ResetAfter: millis(w.ResetAfterMS), At: time.UnixMicro(w.At).UTC(), EntryNumber: w.Entry, Shared: w.Shared,
		Replayed: w.Replayed,
	}
	if len(charges) == 1 {
		d.Key = charges[0].Key
	}
	if w.RetryAfterMS != nil {
		d.RetryAfter = millis(*w.RetryAfterMS)
	}
	for _, via := range []headgate.Via{headgate.ViaPrefetch, headgate.ViaLocal} {
		if w.Via != "" && w.Via == via.String() {
			d.Via = via
		}
	}
	return d
}

// millis is saturated.
func millis(ms int64) time.Duration {
	if ms > int64(headgate.Never/time.Millisecond) {
		return headgate.Never
	}
	return time.Duration(ms) * time.Millisecond
}
