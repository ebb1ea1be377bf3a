package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/store"
)

// Inspect implements [headgate.Operator].
func (c *Client) Inspect(ctx context.Context, limit headgate.Limit, key string) (headgate.Status, error) {
	var out api.Status
	in := api.InspectRequest{Subject: api.Subject{Limit: limit.Name(), Key: key}}
	if err := c.Call(ctx, http.MethodPost, "/v1/inspect", in, &out); err != nil {
		return headgate.Status{}, err
	}
	return parseStatus(&out)
}

// Usage implements [headgate.Operator]. Without limits it returns the usage of all limits for which the server has the
// key, as GET /v1/usage does.
func (c *Client) Usage(ctx context.Context, key string, limits ...headgate.Limit) ([]headgate.Usage, error) {
	q := api.UsageQuery{Key: key}
	for _, limit := range limits {
		if limit.IsZero() {
			return nil, headgate.Invalid("limit", "is missing")
		}
		q.Limits = append(q.Limits, limit.Name())
	}
	var out api.Usage
	if err := c.Call(ctx, http.MethodGet, "/v1/usage", &q, &out); err != nil {
		return nil, err
	}
	list := make([]headgate.Usage, len(out.Limits))
	for i := range out.Limits {
		w := &out.Limits[i]
		s, err := parseStatus(&w.Status)
		if err != nil {
			return nil, err
		}
		retry, reset := parseRetryAfter(w.RetryAfterMS), fromMillis(w.ResetAfterMS)
		list[i] = headgate.Usage{Status: s, RetryAfter: retry, ResetAfter: reset}
	}
	return list, nil
}

// Block implements [headgate.Operator].
func (c *Client) Block(ctx context.Context, limit headgate.Limit, key string, d time.Duration, reason string) (
	headgate.Status, error,
) {
	if d < 0 {
		return headgate.Status{}, headgate.Invalid("for", "%s is negative; 0 lifts a block", d)
	}
	in := api.Block{Subject: api.Subject{Limit: limit.Name(), Key: key}, For: "0", Reason: reason}
	if d > 0 {
		in.For = formatPeriod(d)
	}
	var out api.Status
	if err := c.Call(ctx, http.MethodPost, "/v1/block", in, &out); err != nil {
		return headgate.Status{}, err
	}
	return parseStatus(&out)
}

// Reset implements [headgate.Operator].
func (c *Client) Reset(ctx context.Context, limit headgate.Limit, key string) (existed bool, err error) {
	in := api.ResetRequest{Subject: api.Subject{Limit: limit.Name(), Key: key}}
	var out api.Reset
	err = c.Call(ctx, http.MethodPost, "/v1/reset", &in, &out)
	return out.Existed, err
}

// Refund gives back what is in use of a key, up to the cost of a charge, and returns how much that was: see
// [headgate.Limiter.Refund]. It needs the role admin.
func (c *Client) Refund(ctx context.Context, charge headgate.Charge) (returned headgate.Cost, err error) {
	in := api.Refund{Subject: api.Subject{Limit: charge.Limit.Name(), Key: charge.Key}}
	if !charge.Cost.IsZero() {
		in.Cost = json.Number(charge.Cost.String())
	}
	var out api.Refunded
	if err := c.Call(ctx, http.MethodPost, "/v1/refund", &in, &out); err != nil {
		return returned, err
	}
	return parseCost(out.Returned)
}

func parseStatus(w *api.Status) (s headgate.Status, err error) {
	s = headgate.Status{
		Limit: w.Limit, Key: w.Key, Exists: w.Exists, Remaining: -1, At: time.UnixMicro(w.At).UTC(),
		Reason: w.Reason, Rule: w.Rule, Applied: w.Applied,
	}
	if s.Used, err = parseCost(w.Used); err == nil {
		s.Capacity, err = parseCost(w.Capacity)
	}
	if w.Remaining != "" && err == nil {
		s.Remaining, s.RemainingNanos, err = api.Amount(w.Remaining)
	}
	if w.ResetAt != nil {
		s.EmptyAt = time.UnixMicro(*w.ResetAt).UTC()
	}
	if w.BlockedUntil != nil {
		s.BlockedUntil = time.UnixMicro(*w.BlockedUntil).UTC()
	}
	for _, a := range w.History {
		attempt := headgate.Attempt{Number: a.Number, At: time.UnixMicro(a.At).UTC(), Allowed: a.Allowed}
		if err == nil {
			attempt.Cost, err = parseCost(a.Cost)
		}
		s.History = append(s.History, attempt)
	}
	if err != nil {
		return headgate.Status{}, fmt.Errorf("server: %w: %w", store.ErrSetup, err)
	}
	return s, nil
}

// parseCost decodes a cost. An absent cost is zero.
func parseCost(n json.Number) (headgate.Cost, error) {
	if n == "" {
		return headgate.Cost{}, nil
	}
	return headgate.ParseCostUp(n.String())
}
