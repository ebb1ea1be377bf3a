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
	ctx, err := c.authorize()
	if err != nil {
		for range list {
			if c.replyForbidden(throttleName, err); c.closing {
				return
			}
		}
		return
	}
	requests := make([]headgate.Request, 0, len(list))
	parseErrs := make([]error, len(list))
	for i, words := range list {
		var r headgate.Request
		if r, parseErrs[i] = c.parseThrottle(ctx, words[1:]); parseErrs[i] == nil {
			requests = append(requests, r)
		}
	}
	answers := make([]headgate.BatchResult, len(requests))
	if len(requests) > 0 {
		err = c.decide(ctx, requests, answers)
	}
	for i := range list {
		if parseErrs[i] != nil {
			c.replyFailure(throttleName, parseErrs[i])
			continue
		}
		a, check := &answers[0], requests[0].Check
		answers, requests = answers[1:], requests[1:]
		switch {
		case err != nil:
			c.replyFailure(throttleName, err)
		case a.Err != nil:
			c.replyFailure(throttleName, a.Err)
		default:
			c.replyThrottle(&a.Decision, check)
		}
	}
}

// decide decides requests within the bounds of the load, and puts the results into answers, which is as long.
func (c *conn) decide(ctx context.Context, requests []headgate.Request, answers []headgate.BatchResult) error {
	share := c.server.config.Load.Share()
	defer share.Release()
	if err := share.Enter(); err != nil {
		return err
	}
	if err := share.HoldObjects(len(requests)); err != nil {
		return err
	}
	got, err := c.server.service.DecideBatch(service.WithProtocol(ctx, service.ProtocolRESP), requests)
	copy(answers, got)
	return err
}

// parseThrottle returns the request for the arguments of CL.THROTTLE: key, max_burst, count, period and quantity. A
// quantity of 0 charges nothing.
func (c *conn) parseThrottle(ctx context.Context, args [][]byte) (r headgate.Request, err error) {
	if len(args) != 4 && len(args) != 5 {
		return r, headgate.Invalid("CL.THROTTLE", "takes key, max_burst, count, period and perhaps quantity; "+
			"there are %d arguments", len(args))
	}
	var n [4]int64 // by throttleArgs
	n[3] = 1
	for i, text := range args[1:] {
		minValue := int64(1)
		if name := throttleArgs[i]; name == "max_burst" || name == "quantity" {
			minValue = 0
		}
		n[i], err = strconv.ParseInt(string(text), 10, 64)
		if err != nil || n[i] < minValue || n[i] == math.MaxInt64 { // max_burst + 1 would overflow
			return r, headgate.Invalid(throttleArgs[i], "%.30q is not a whole number from %d on", text, minValue)
		}
	}
	r.Check = n[3] == 0
	r.Charges, err = c.server.service.Charges(ctx, &api.Request{Charge: api.Charge{
		Limit: fmt.Sprintf("gcra %d/%ds burst %d", n[1], n[2], n[0]+1), Key: string(args[0]),
		Cost: json.Number(strconv.FormatInt(max(1, n[3]), 10)),
	}})
	return r, err
}

// throttleArgs names the numeric arguments, in order.
var throttleArgs = [...]string{"max_burst", "count", "period", "quantity"}

// replyThrottle writes the five integers of redis-cell: whether the command is limited (0 or 1; a check is never), the
// limit, what remains, the seconds until a retry can succeed (-1 if the command is not limited or can never succeed),
// and the seconds until the key is unused again. Seconds are rounded up, so that a client waits long enough.
func (c *conn) replyThrottle(d *headgate.Decision, check bool) {
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
