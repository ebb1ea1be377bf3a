package client

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/pause"
	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/internal/server/api"
)

// Acquire implements [headgate.Leaser]. The client, not the server, renews the lease.
func (c *Client) Acquire(ctx context.Context, charges ...headgate.Charge) (*headgate.Lease, error) {
	if _, err := checkSize(charges); err != nil {
		return nil, err
	}
	in := newRequest(charges)
	var out api.Acquired
	sentAt := sched.Now()
	if err := c.Call(ctx, http.MethodPost, "/v1/acquire", &in, &out); err != nil {
		return nil, err
	}
	tokens := make([]headgate.LeaseToken, len(out.Held))
	for i, h := range out.Held {
		tokens[i] = headgate.LeaseToken{Key: h.Key, Number: h.Number}
		for k := range charges {
			if charges[k].Limit.Name() == h.Limit {
				tokens[i].Limit = charges[k].Limit
			}
		}
	}
	d, err := newDecision(&out.Decision, charges)
	if err != nil {
		return nil, err
	}
	return headgate.NewLease(c, d, tokens, fromMillis(out.TTLMS), sentAt)
}

// The first and the longest pause between attempts to acquire a lease, unless the retry-after is shorter.
const (
	firstPause   = 20 * time.Millisecond
	longestPause = time.Second
)

// Await implements [headgate.Leaser]. Waiting callers retry in no particular order.
func (c *Client) Await(ctx context.Context, charges ...headgate.Charge) (*headgate.Lease, error) {
	for retryPause := firstPause; ; retryPause = min(2*retryPause, longestPause) {
		lease, err := c.Acquire(ctx, charges...)
		if err != nil || lease.Decision.Allowed {
			return lease, err
		}
		denied := &headgate.DeniedError{Decision: lease.Decision}
		if lease.Decision.RetryAfter == headgate.Never {
			return nil, denied
		}
		if err := pause.Sleep(ctx, min(retryPause, lease.Decision.RetryAfter)); err != nil {
			return nil, fmt.Errorf("%w: %w", err, denied)
		}
	}
}

// Renew implements [headgate.Leaser].
func (c *Client) Renew(ctx context.Context, tokens ...headgate.LeaseToken) error {
	return c.callLeases(ctx, "/v1/renew", tokens)
}

// Release implements [headgate.Leaser].
func (c *Client) Release(ctx context.Context, tokens ...headgate.LeaseToken) error {
	return c.callLeases(ctx, "/v1/release", tokens)
}

// callLeases posts leases to a path, and returns headgate.ErrLeaseLost if one of them is lost.
func (c *Client) callLeases(ctx context.Context, path string, tokens []headgate.LeaseToken) error {
	if len(tokens) == 0 {
		return headgate.Invalid("held", "there is none")
	}
	in := api.Leases{Held: make([]api.LeaseToken, len(tokens))}
	for i, h := range tokens {
		in.Held[i] = api.LeaseToken{Limit: h.Limit.Name(), Key: h.Key, Number: h.Number}
	}
	var out api.Lost
	if err := c.Call(ctx, http.MethodPost, path, &in, &out); err != nil {
		return err
	}
	if out.Lost {
		return headgate.ErrLeaseLost
	}
	return nil
}
