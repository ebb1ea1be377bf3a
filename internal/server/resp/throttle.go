package resp

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/service"
)

const throttleName = "CL.THROTTLE"

// throttle answers CL.THROTTLE commands. They are decided as one batch, in order.
func (c *conn) throttle(list [][][]byte) {
	ctx, err := c.caller()
	if err != nil {
		for range list {
			if c.forbidden(throttleName, err); c.done {
				return
			}
		}
		return
	}
	requests := make([]headgate.Request, 0, len(list))
	wrong := make([]error, len(list))
	for i, words := range list {
		var r headgate.Request
		if r, wrong[i] = c.asked(ctx, words[1:]); wrong[i] == nil {
			requests = append(requests, r)
		}
	}
	answers := make([]headgate.BatchResult, len(requests))
	if len(requests) > 0 {
		err = c.decide(ctx, requests, answers)
	}
	for i := range list {
		if wrong[i] != nil {
			c.failed(throttleName, wrong[i])
			continue
		}
		a, check := &answers[0], requests[0].Check
		answers, requests = answers[1:], requests[1:]
		switch {
		case err != nil:
			c.failed(throttleName, err)
		case a.Err != nil:
			c.failed(throttleName, a.Err)
		default:
			c.five(&a.Decision, check)
		}
	}
}

// decide takes from the store, within the bounds of time and memory.
func (c *conn) decide(ctx context.Context, requests []headgate.Request, answers []headgate.BatchResult) error {
	share := c.server.config.Load.Share()
	defer share.Release()
	if err := share.Enter(); err != nil {
		return err
	}
	if err := share.HoldObjects(len(requests)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(service.By(ctx, service.ProtocolRESP), decideWithin)
	defer cancel()
	got, err := c.server.service.Each(ctx, requests)
	copy(answers, got)
	return err
}

// asked returns the request for the arguments key, max_burst, count, period and quantity of CL.THROTTLE. A quantity of
// 0 charges nothing.
func (c *conn) asked(ctx context.Context, args [][]byte) (r headgate.Request, err error) {
	if len(args) != 4 && len(args) != 5 {
		return r, headgate.Invalid("CL.THROTTLE", "takes key, max_burst, count, period and perhaps quantity; "+
			"there are %d arguments", len(args))
	}
	var n [4]int64
	n[3] = 1
	for i, text := range args[1:] {
		from := int64(1)
		if name := numbers[i]; name == "max_burst" || name == "quantity" {
			from = 0
		}
		n[i], err = strconv.ParseInt(string(text), 10, 64)
		if err != nil || n[i] < from || n[i] == math.MaxInt64 {
			return r, headgate.Invalid(numbers[i], "%.30q is not a whole number from %d on", text, from)
		}
	}
	r.Check = n[3] == 0
	r.Charges, err = c.server.service.Charges(ctx, &api.Request{Charge: api.Charge{
		Limit: fmt.Sprintf("gcra %d/%ds burst %d", n[1], n[2], n[0]+1), Key: string(args[0]),
		Cost: json.Number(strconv.FormatInt(max(1, n[3]), 10)),
	}})
	return r, err
}

// numbers names the numeric arguments, in order.
var numbers = [...]string{"max_burst", "count", "period", "quantity"}

// five answers with the integers of redis-cell: whether the command is limited (0 or 1), the limit, what remains, the
// seconds until a retry can succeed (-1 if the command is allowed or can never succeed), and the seconds until the key
// is unused again. Seconds are rounded up, so that a client that waits that long is not limited again.
func (c *conn) five(d *headgate.Decision, check bool) {
	limited, retry := int64(0), int64(-1)
	if !d.Allowed && !check {
		limited = 1
		if d.RetryAfter != headgate.Never {
			retry = max(1, httplimit.WholeSeconds(d.RetryAfter))
		}
	}
	c.array(5)
	for _, n := range [...]int64{limited, d.Capacity, d.Remaining, retry, httplimit.WholeSeconds(d.ResetAfter)} {
		c.number(n)
	}
}
