package httplimit

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/httpkey"
	"github.com/headgate/headgate/law"
)

// SettleFunc returns the actual cost of a request. It is safe for concurrent use.
type SettleFunc func(*Response) (headgate.Cost, error)

// SettleByHeader takes the cost from a header of the answer. Without it the charge stays as it is.
func SettleByHeader(name string) SettleFunc {
	return func(r *Response) (headgate.Cost, error) { return headerCost(name, r.Header) }
}

// finishTimeout is how long the store may take to correct charges after the handler.
const finishTimeout = 5 * time.Second

// minWait is the shortest wait of a reservation. Unlike a Take, a refused reservation blocks no key.
const minWait = time.Microsecond

// storeID returns the id under which the store remembers a request: the client's with all keys, hashed if too long.
func storeID(id string, charges []headgate.Charge) string {
	parts := []string{"http", id}
	for _, c := range charges {
		parts = append(parts, c.Key)
	}
	if id = httpkey.Join(parts...); len(id) <= law.MaxID {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "http-sha256:" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// randomID returns an id for a request without one. A reset of a key forgets the ids of its charges, so that
// none of them is given back a second time.
func randomID() string { return "http-" + rand.Text() }

// decide charges a request, or checks it in mode Advise, and sets what has to run after the handler.
func (m *middleware) decide(ctx context.Context, c *chargedRequest) (err error) {
	switch {
	case m.cfg.Mode == Advise:
		c.decision, err = m.limiter.Check(ctx, c.charges...)
	case m.cfg.OnlyFailures:
		return m.takeRefundable(ctx, c)
	case c.id != "":
		return m.takeOnce(ctx, c, c.id)
	case m.settles || m.cfg.RefundFailures:
		return m.takeOnce(ctx, c, randomID())
	default:
		c.decision, err = m.limiter.Take(ctx, c.charges...)
	}
	return err
}

// takeOnce takes the charges under an id, by which they are settled or refunded after the handler.
func (m *middleware) takeOnce(ctx context.Context, c *chargedRequest, id string) (err error) {
	once := m.limiter.Once(id, m.cfg.Life)
	c.decision, err = once.Take(ctx, c.charges...)
	if err != nil || !c.decision.Allowed || c.decision.Replayed { // of a replay, the first request settles
		return err
	}
	c.finish = func(ctx context.Context, resp *Response) error {
		if m.cfg.RefundFailures && m.failed(resp) {
			return correct(ctx, once.Cancel, c.charges)
		}
		actual, settleErr := c.actualCharges(resp)
		if len(actual) == 0 {
			return settleErr
		}
		return errors.Join(settleErr, correct(ctx, once.Settle, actual))
	}
	return nil
}

// correct calls a method of [headgate.Once], Cancel or Settle, with the charges. The method corrects all or none, so
// if the key of one was reset in between, correct calls it again for each charge alone.
func correct(ctx context.Context, method func(context.Context, ...headgate.Charge) ([]headgate.Cost, error),
	charges []headgate.Charge,
) error {
	_, err := method(ctx, charges...)
	if len(charges) == 1 || !errors.Is(err, headgate.ErrUnknownID) {
		return err
	}
	var errs []error
	for _, c := range charges {
		_, err := method(ctx, c)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// actualCharges returns the charges that a SettleFunc corrects, with their actual costs.
func (c *chargedRequest) actualCharges(resp *Response) (list []headgate.Charge, err error) {
	for i, charge := range c.charges {
		if c.settleFuncs[i] == nil {
			continue
		}
		cost, settleErr := c.settleFuncs[i](resp)
		err = errors.Join(err, settleErr)
		if settleErr == nil && !cost.IsZero() {
			charge.Cost = cost
			list = append(list, charge)
		}
	}
	return list, err
}

// takeRefundable charges a request for OnlyFailures: a success gets its charges back. A refusal blocks no key.
func (m *middleware) takeRefundable(ctx context.Context, c *chargedRequest) error {
	once := m.limiter.Once(randomID(), m.cfg.Life)
	reservation, err := once.Reserve(ctx, minWait, c.charges...)
	if err != nil {
		return err
	}
	if !reservation.Refundable {
		return rejectUnfit(ctx, once, c, reservation.Decision.Allowed)
	}
	if c.decision = reservation.Decision; c.decision.Allowed {
		c.finish = func(ctx context.Context, resp *Response) error { return m.finishRefundable(ctx, resp, c, once) }
	}
	return nil
}

// rejectUnfit cancels charges whose limit, looked up by its name, does not fit OnlyFailures, and returns an error.
func rejectUnfit(ctx context.Context, once headgate.Once, c *chargedRequest, allowed bool) error {
	names := make([]string, len(c.charges))
	for i := range c.charges {
		names[i] = c.charges[i].Limit.Name()
	}
	err := invalid("OnlyFailures", "needs sliding-log or sliding-window; in the catalog, %s is not one of them",
		strings.Join(names, " or "))
	if allowed {
		err = errors.Join(err, correct(ctx, once.Cancel, c.charges))
	}
	return err
}

// failed reports whether a request counts as a failure.
func (m *middleware) failed(resp *Response) bool {
	switch {
	case m.cfg.Failed != nil:
		return m.cfg.Failed(resp)
	case m.cfg.OnlyFailures:
		return resp.Status >= http.StatusBadRequest || resp.Status == 0 // 0: what is sent is unknown
	}
	return resp.Status >= http.StatusInternalServerError && !resp.Gone
}

// finishRefundable gives the charges of a success back. After a failure it blocks each key that failures have filled.
func (m *middleware) finishRefundable(
	ctx context.Context, resp *Response, c *chargedRequest, once headgate.Once,
) error {
	if !m.failed(resp) {
		return correct(ctx, once.Cancel, c.charges)
	}
	var errs []error
	for _, charge := range c.charges {
		errs = append(errs, m.blockIfFull(ctx, charge))
	}
	return errors.Join(errs...)
}

// blockIfFull blocks the key of a failed charge if failures fill the limit. Requests in flight must not count for
// that, since they may succeed, and the level does not distinguish them from failures. So if the limit has a block,
// failures are counted a second time, under a derived key.
//
// To block, it takes a charge that the limit refuses. So the block follows overrides, and needs no right but to take.
func (m *middleware) blockIfFull(ctx context.Context, charge headgate.Charge) error {
	if !charge.Limit.OnlyName() && charge.Limit.Params().Block == 0 || !charge.Keep.IsZero() {
		return nil
	}
	counted := charge
	counted.Key = httpkey.DeriveKey(charge.Key, "failures")
	failure, err := m.limiter.Reserve(ctx, minWait, counted) // never given back
	if err != nil || !fillsLimit(&failure.Decision, charge.Cost) {
		return err
	}
	once := m.limiter.Once(randomID(), m.cfg.Life)
	probe, err := once.Take(ctx, charge)
	if err == nil && probe.Allowed { // an older failure has left the window
		_, err = once.Cancel(ctx, charge)
	}
	return err
}

// fillsLimit reports whether a decision was a refusal, or has left no room for another charge of this cost.
func fillsLimit(d *headgate.Decision, cost headgate.Cost) bool {
	return !d.Allowed || float64(d.Remaining) < cmp.Or(cost, headgate.Units(1)).Float64()
}

// serveAndFinish serves a request, and then settles or refunds its charges.
func (m *middleware) serveAndFinish(next http.Handler, w http.ResponseWriter, r *http.Request, c *chargedRequest) {
	if c.finish == nil {
		next.ServeHTTP(w, r)
		return
	}
	var rec recorder
	writer, panicked := rec.wrap(w), true
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), finishTimeout)
		defer cancel()
		if err := c.finish(ctx, rec.response(r, w.Header(), panicked)); err != nil {
			m.reportError(r, err)
		}
	}()
	next.ServeHTTP(writer, r)
	panicked = false
}
