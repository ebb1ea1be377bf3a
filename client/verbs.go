package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/pause"
	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/store"
)

var (
	_ headgate.Taker    = (*Client)(nil)
	_ headgate.Filler   = (*Client)(nil)
	_ headgate.Waiter   = (*Client)(nil)
	_ headgate.Reserver = (*Client)(nil)
	_ headgate.Settler  = (*Client)(nil)
	_ headgate.Leaser   = (*Client)(nil)
	_ headgate.Operator = (*Client)(nil)
)

// FillUp implements [headgate.Filler].
func (c *Client) FillUp(ctx context.Context, charge headgate.Charge) (f headgate.FillUpResult, err error) {
	charges := []headgate.Charge{charge}
	if _, err := checkSize(charges); err != nil {
		return f, err
	}
	in := newRequest(charges)
	var out api.Filled
	if err := c.Call(ctx, http.MethodPost, "/v1/fill-up", &in, &out); err != nil {
		return f, err
	}
	amounts, err := parseCosts("/v1/fill-up", []json.Number{out.Accepted, out.Level})
	if err != nil {
		return f, err
	}
	f.Accepted, f.Level, f.Brim = amounts[0], amounts[1], out.Brim
	f.Decision, err = newDecision(&out.Decision, charges)
	return f, err
}

// reservationLife is the life of the id of a reservation that is made without an id of the caller.
const reservationLife = 24 * time.Hour

// Reserve implements [headgate.Reserver]. It makes an id, which the server remembers for a day after the start; later
// the reservation cannot be settled or cancelled.
func (c *Client) Reserve(ctx context.Context, wait time.Duration, charges ...headgate.Charge) (
	*headgate.Reservation, error,
) {
	return c.reserve(ctx, wait, charges, sched.RandomText(), reservationLife)
}

func (c *Client) reserve(ctx context.Context, wait time.Duration, charges []headgate.Charge, id string,
	life time.Duration,
) (*headgate.Reservation, error) {
	if wait < 0 {
		return nil, headgate.Invalid("wait", "%s is negative", wait)
	}
	in, err := requestWithID(charges, id, life)
	if err != nil {
		return nil, err
	}
	reserve := api.Reserve{Request: in}
	if wait > 0 {
		reserve.Wait = formatPeriod(min(wait, longestPeriod))
	}
	var out api.Reserved
	if err := c.Call(ctx, http.MethodPost, "/v1/reserve", &reserve, &out); err != nil {
		return nil, err
	}
	var start time.Time
	var delay time.Duration
	if out.StartAt != nil && out.DelayMS != nil {
		start, delay = time.UnixMicro(*out.StartAt).UTC(), fromMillis(*out.DelayMS)
	}
	d, err := newDecision(&out.Decision, charges)
	if err != nil {
		return nil, err
	}
	r := headgate.NewReservation(d, start, delay, len(charges),
		func(ctx context.Context, actual []headgate.Cost) ([]headgate.Cost, error) {
			if actual == nil {
				return c.settle(ctx, "/v1/cancel", id, charges, nil)
			}
			return c.settle(ctx, "/v1/settle", id, charges, actual)
		})
	r.Refundable = out.Refundable
	return r, nil
}

// longestPeriod is the longest period that a server accepts.
const longestPeriod = 3660 * 24 * time.Hour

func formatPeriod(d time.Duration) string {
	return strconv.FormatInt(max(1, d.Microseconds()), 10) + "us"
}

// requestWithID encodes charges under an id for the wire. The server remembers the id for life; 0: for its default.
func requestWithID(charges []headgate.Charge, id string, life time.Duration) (api.Request, error) {
	if _, err := checkSize(charges); err != nil {
		return api.Request{}, err
	}
	switch {
	case id == "":
		return api.Request{}, headgate.Invalid("id", "is empty")
	case life < 0 || life > longestPeriod:
		return api.Request{}, headgate.Invalid("life", "%s is not within 0 and %s", life, longestPeriod)
	}
	in := newRequest(charges)
	if in.ID = id; life > 0 {
		in.Life = formatPeriod(life)
	}
	return in, nil
}

// settle settles charges at their actual costs, or cancels them.
func (c *Client) settle(ctx context.Context, path, id string, charges []headgate.Charge, actual []headgate.Cost) (
	[]headgate.Cost, error,
) {
	in := api.Settle{ID: id, Charges: make([]api.Charge, len(charges))}
	for i := range charges {
		w := api.Charge{Limit: charges[i].Limit.Name(), Key: charges[i].Key}
		if actual != nil {
			w.Cost = json.Number(actual[i].String())
		}
		in.Charges[i] = w
	}
	var out api.Settled
	if err := c.Call(ctx, http.MethodPost, path, &in, &out); err != nil {
		return nil, err
	}
	return parseCosts(path, out.Corrected)
}

func parseCosts(path string, texts []json.Number) (list []headgate.Cost, err error) {
	list = make([]headgate.Cost, len(texts))
	for i, text := range texts {
		if list[i], err = parseCost(text); err != nil {
			return nil, fmt.Errorf("server: %w: answer of %s: %w", store.ErrUnknownOutcome, path, err)
		}
	}
	return list, nil
}

// Once implements [headgate.Settler].
func (c *Client) Once(id string, life time.Duration) headgate.Once { return once{c, id, life} }

// once implements headgate.Once by calls to a server.
type once struct {
	c    *Client
	id   string
	life time.Duration
}

func (o once) Take(ctx context.Context, charges ...headgate.Charge) (headgate.Decision, error) {
	in, err := requestWithID(charges, o.id, o.life)
	if err != nil {
		return headgate.Decision{}, err
	}
	return o.c.decideAlone(ctx, "/v1/take", &in, charges)
}

func (o once) Reserve(ctx context.Context, wait time.Duration, charges ...headgate.Charge) (
	*headgate.Reservation, error,
) {
	return o.c.reserve(ctx, wait, charges, o.id, o.life)
}

func (o once) Debit(ctx context.Context, charge headgate.Charge) (d headgate.DebitResult, err error) {
	charges := []headgate.Charge{charge}
	in, err := requestWithID(charges, o.id, o.life)
	if err != nil {
		return d, err
	}
	var out api.Debited
	if err := o.c.Call(ctx, http.MethodPost, "/v1/debit", &in, &out); err != nil {
		return d, err
	}
	amounts, err := parseCosts("/v1/debit", []json.Number{out.Charged, out.Level})
	if err != nil {
		return d, err
	}
	d = headgate.DebitResult{Charged: amounts[0], Level: amounts[1], Over: out.Over}
	d.Decision, err = newDecision(&out.Decision, charges)
	return d, err
}

func (o once) Extend(ctx context.Context, charges ...headgate.Charge) (e headgate.ExtendResult, err error) {
	in, err := requestWithID(charges, o.id, o.life)
	if err != nil {
		return e, err
	}
	var out api.Extended
	if err := o.c.Call(ctx, http.MethodPost, "/v1/extend", &in, &out); err != nil {
		return e, err
	}
	if e.Charged, err = parseCosts("/v1/extend", out.Charged); err != nil {
		return e, err
	}
	e.Decision, err = newDecision(&out.Decision, charges)
	return e, err
}

func (o once) Settle(ctx context.Context, charges ...headgate.Charge) ([]headgate.Cost, error) {
	actual := make([]headgate.Cost, len(charges))
	for i := range charges {
		if actual[i] = charges[i].Cost; actual[i].IsZero() {
			actual[i] = headgate.Units(1)
		}
	}
	return o.c.settle(ctx, "/v1/settle", o.id, charges, actual)
}

func (o once) Cancel(ctx context.Context, charges ...headgate.Charge) ([]headgate.Cost, error) {
	return o.c.settle(ctx, "/v1/cancel", o.id, charges, nil)
}

// Wait implements [headgate.Waiter]. If a limit cannot reserve a start, callers retry after the retry-after of their
// refusal, in no particular order.
func (c *Client) Wait(ctx context.Context, charges ...headgate.Charge) error {
	return c.wait(ctx, pause.Patience{MaxWait: headgate.Never}, charges)
}

// WaitAtMost implements [headgate.Waiter].
func (c *Client) WaitAtMost(ctx context.Context, wait time.Duration, charges ...headgate.Charge) error {
	if wait < 0 {
		return headgate.Invalid("wait", "%s is negative", wait)
	}
	if wait == 0 {
		d, err := c.Take(ctx, charges...)
		if err == nil && !d.Allowed {
			err = &headgate.DeniedError{Decision: d}
		}
		return err
	}
	return c.wait(ctx, pause.Patience{MaxWait: wait}, charges)
}

// wait checks and reserves until the charges are admitted, and then sleeps until their start.
func (c *Client) wait(ctx context.Context, p pause.Patience, charges []headgate.Charge) error {
	reserve := func() (*headgate.Reservation, error) { return c.Reserve(ctx, p.Left(ctx), charges...) }
	if len(charges) > 0 && charges[0].Alternative != 0 { // alternatives are taken, not reserved
		reserve = func() (*headgate.Reservation, error) {
			d, err := c.Take(ctx, charges...)
			return &headgate.Reservation{Decision: d}, err
		}
	}
	for {
		// The retry-after of a check is when the cost would pass, after a refusal it is when to retry.
		checkDecision, err := c.Check(ctx, charges...)
		switch {
		case err != nil:
			return err
		case checkDecision.RetryAfter == headgate.Never:
			return &headgate.DeniedError{Decision: checkDecision}
		case checkDecision.RetryAfter > p.Left(ctx):
			return fmt.Errorf("%w: %w", headgate.ErrDeadline, &headgate.DeniedError{Decision: checkDecision})
		}
		p.Answered()
		r, err := reserve()
		if errors.Is(err, headgate.ErrUnsupported) { // the charges have no common start: take all of them now, or none
			reserve = func() (*headgate.Reservation, error) { return c.Reserve(ctx, 0, charges...) }
			continue
		}
		if err != nil {
			return err
		}
		switch {
		case r.Decision.Allowed && r.StartAt.IsZero(): // it was taken
			return nil
		case r.Decision.Allowed:
			return r.Sleep(ctx)
		}
		if err := pause.Sleep(ctx, min(r.Decision.RetryAfter, max(checkDecision.RetryAfter, firstPause))); err != nil {
			return err
		}
	}
}
