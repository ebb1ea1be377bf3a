package grpclimit

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/grpcstatus"
)

// backOff blocks a key, and calls OnBackoff, if the server has ended a call with a status that asks to hold back.
func (c *Client) backOff(call *Call, key string, err error) {
	if err == nil || errors.Is(err, headgate.ErrDenied) { // an interceptor below this one has refused the call
		return
	}
	arrivedAt := time.Now() //nolint:forbidigo // the delay counts from the receipt of the status
	code, delay := backoffOf(err)
	if delay <= 0 {
		return
	}
	b := Backoff{Method: call.Method, Key: key, Code: code, For: min(delay, httplimit.DefaultMaxRetryAfter)}
	reason := fmt.Sprintf("the server answered %s: RetryInfo", code)
	b.Err = c.holder.Hold(call.Context, c.limit, key, arrivedAt.Add(b.For), reason)
	if c.cfg.OnBackoff != nil {
		c.cfg.OnBackoff(b)
	}
}

// backoffOf returns the code of an error and the delay of its RetryInfo. The delay is 0 without a RetryInfo, or if
// the code is not about further calls.
func backoffOf(err error) (codes.Code, time.Duration) {
	st := status.Convert(err)
	switch code := st.Code(); code {
	case codes.ResourceExhausted, codes.Unavailable:
		return code, grpcstatus.RetryDelay(st)
	default:
		return code, 0
	}
}
