package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/api"
	"github.com/headgate/headgate/store"
)

// Inspect is [headgate.Limiter.Inspect].
func (c *Client) Inspect(ctx context.Context, limit headgate.Limit, key string) (headgate.Status, error) {
	var out api.Status
	err := c.Call(ctx, http.MethodPost, "/v1/inspect", api.Subject{Limit: limit.Name(), Key: key}, &out)
	if err != nil {
		return headgate.Status{}, err
	}
	return status(&out)
}

// Block is [headgate.Limiter.Block].
func (c *Client) Block(ctx context.Context, limit headgate.Limit, key string, d time.Duration, reason string) (
	headgate.Status, error,
) {
	if d < 0 {
		return headgate.Status{}, headgate.Invalid("for", "%s is negative; 0 lifts a block", d)
	}
	in := api.Block{Subject: api.Subject{Limit: limit.Name(), Key: key}, For: "0", Reason: reason}
	if d > 0 {
		in.For = period(d)
	}
	var out api.Status
	if err := c.Call(ctx, http.MethodPost, "/v1/block", in, &out); err != nil {
		return headgate.Status{}, err
	}
	return status(&out)
}

// Reset is [headgate.Limiter.Reset].
func (c *Client) Reset(ctx context.Context, limit headgate.Limit, key string) (existed bool, err error) {
	var out api.Reset
	err = c.Call(ctx, http.MethodPost, "/v1/reset", api.Subject{Limit: limit.Name(), Key: key}, &out)
	return out.Existed, err
}

// status returns what the wire says of a key.
func status(w *api.Status) (s headgate.Status, err error) {
	s = headgate.Status{
		Limit: w.Limit, Key: w.Key, Exists: w.Exists, Shared: w.Shared, Remaining: -1, At: time.UnixMicro(w.At).UTC(),
		Reason: w.Reason,
	}
	if s.Used, err = cost(w.Used); err == nil {
		s.Capacity, err = cost(w.Capacity)
	}
	if w.Remaining != nil {
		s.Remaining = *w.Remaining
	}
	if w.EmptyAt != nil {
		s.EmptyAt = time.UnixMicro(*w.EmptyAt).UTC()
	}
	if w.BlockedUntil != nil {
		s.BlockedUntil = time.UnixMicro(*w.BlockedUntil).UTC()
	}
	for _, a := range w.History {
		attempt := headgate.Attempt{Number: a.Number, At: time.UnixMicro(a.At).UTC(), Allowed: a.Allowed}
		if err == nil {
			attempt.Cost, err = cost(a.Cost)
		}
		s.History = append(s.History, attempt)
	}
	if err != nil {
		return headgate.Status{}, fmt.Errorf("server: %w: %w", store.ErrSetup, err)
	}
	return s, nil
}

// cost reads a cost off the wire; absent it is zero.
func cost(n json.Number) (headgate.Cost, error) {
	switch n {
	case "":
		return headgate.Cost{}, nil
	case "0":
		return headgate.Units(0), nil
	}
	return headgate.ParseCost(n.String())
}
