package httplimit

import (
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

// SettleFunc says what a request has cost in the end. It is safe for concurrent use.
type SettleFunc func(*Response) (headgate.Cost, error)

// SettleByHeader takes the cost from a header of the answer. Without it the charge stays as it is.
func SettleByHeader(name string) SettleFunc {
	return func(r *Response) (headgate.Cost, error) {
		if h := r.Header.Values(name); len(h) == 1 && h[0] == "0" {
			return headgate.Units(0), nil
		}
		return headerCost(name, r.Header)
	}
}

// finishWithin is how long the store may take to correct charges after the handler.
const finishWithin = 5 * time.Second

// aMoment is the shortest wait. A request that is ready to wait asks without block.
const aMoment = time.Microsecond

// idOf returns the id under which the store knows a request.
func idOf(id string, charges []headgate.Charge) string {
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

// decide asks for a decision, and says what has to be done after the handler.
func (m *middleware) decide(ctx context.Context, c *charged) (err error) {
	switch {
	case m.cfg.Mode == Advise:
		c.decision, err = m.limiter.Check(ctx, c.charges...)
	case m.cfg.OnlyFailures:
		return m.reserve(ctx, c, aMoment, m.afterAttempt)
	case c.id != "":
		return m.takeOnce(ctx, c, c.id)
	case m.settles:
		return m.takeOnce(ctx, c, "http-"+rand.Text()) // which can be settled also if the key was reset
	case m.cfg.RefundFailures:
		return m.reserve(ctx, c, 0, m.afterFailure)
	default:
		c.decision, err = m.limiter.Take(ctx, c.charges...)
	}
	return err
}

// takeOnce takes the charges under an id.
func (m *middleware) takeOnce(ctx context.Context, c *charged, id string) (err error) {
	once := m.limiter.Once(id, m.cfg.Life)
	c.decision, err = once.Take(ctx, c.charges...)
	if err != nil || !c.decision.Allowed || c.decision.Replayed { // the first one settles
		return err
	}
	c.finish = func(ctx context.Context, resp *Response) error {
		if m.cfg.RefundFailures && m.failed(resp) {
			_, err := once.Cancel(ctx, c.charges...)
			return err
		}
		actual, wrong := c.actual(resp)
		if len(actual) == 0 {
			return wrong
		}
		_, err := once.Settle(ctx, actual...)
		return errors.Join(wrong, err)
	}
	return nil
}

// actual returns the charges whose costs are corrected, with these costs.
func (c *charged) actual(resp *Response) (list []headgate.Charge, err error) {
	for i, charge := range c.charges {
		if c.settle[i] == nil {
			continue
		}
		cost, wrong := c.settle[i](resp)
		err = errors.Join(err, wrong)
		if wrong == nil && !cost.IsZero() {
			charge.Cost = cost
			list = append(list, charge)
		}
	}
	return list, err
}

// reserve takes the charges so that they can be given back.
func (m *middleware) reserve(ctx context.Context, c *charged, wait time.Duration,
	after func(context.Context, *Response, *charged, *headgate.Reservation) error,
) error {
	held, err := m.limiter.Reserve(ctx, wait, c.charges...)
	if err != nil {
		return err
	}
	if m.cfg.OnlyFailures && !held.Refundable {
		return m.unfit(ctx, c, held)
	}
	if c.decision = held.Decision; c.decision.Allowed {
		c.finish = func(ctx context.Context, resp *Response) error { return after(ctx, resp, c, held) }
	}
	return nil
}

// unfit cancels what a request was charged whose limits are not fit for OnlyFailures: one was given by name,
// and the limiter, which finds names, or the key's override, says now what it is.
func (m *middleware) unfit(ctx context.Context, c *charged, held *headgate.Reservation) error {
	names := make([]string, len(c.charges))
	for i := range c.charges {
		names[i] = c.charges[i].Limit.Name()
	}
	err := invalid("OnlyFailures", "needs sliding-log or sliding-window; one of %s is another algorithm in the catalogue",
		strings.Join(names, ", "))
	if held.Decision.Allowed {
		_, wrong := held.Cancel(ctx)
		err = errors.Join(err, wrong)
	}
	return err
}

// afterFailure gives back what a failure was charged.
func (m *middleware) afterFailure(ctx context.Context, resp *Response, _ *charged, held *headgate.Reservation) error {
	if !m.failed(resp) {
		return nil
	}
	_, err := held.Cancel(ctx)
	return err
}

// failed reports whether a request has failed.
func (m *middleware) failed(resp *Response) bool {
	switch {
	case m.cfg.Failed != nil:
		return m.cfg.Failed(resp)
	case m.cfg.OnlyFailures:
		return resp.Status >= http.StatusBadRequest || resp.Status == 0 // of which nobody knows what is sent
	}
	return resp.Status >= http.StatusInternalServerError && !resp.Gone
}

// afterAttempt gives back what a success was charged, and blocks the key that a failure has filled.
func (m *middleware) afterAttempt(ctx context.Context, resp *Response, c *charged, held *headgate.Reservation) error {
	if !m.failed(resp) {
		_, err := held.Cancel(ctx)
		return err
	}
	var errs []error
	for _, charge := range c.charges {
		errs = append(errs, m.blockFull(ctx, charge))
	}
	return errors.Join(errs...)
}

// blockFull blocks the key of a charge that has failed if failures fill the limit. Requests in flight
// must not count for that, since they may succeed, and the level does not tell them from failures. So the
// failures are counted a second time, under a key of their own, as long as there is a block.
//
// The block is that of the limit itself: a charge that it refuses. So it follows overrides, and a
// caller who may only take can have it.
func (m *middleware) blockFull(ctx context.Context, charge headgate.Charge) error {
	if !charge.Limit.OnlyName() && charge.Limit.Params().Block == 0 || !charge.Keep.IsZero() {
		return nil
	}
	counted := charge
	counted.Key = httpkey.Derived(charge.Key, "failures")
	failed, err := m.limiter.Reserve(ctx, aMoment, counted)
	if err != nil || !fills(&failed.Decision, charge.Cost) {
		return err
	}
	one, err := m.limiter.Reserve(ctx, 0, charge)
	if err == nil && one.Decision.Allowed { // an older failure has been forgotten
		_, err = one.Cancel(ctx)
	}
	return err
}

// fills reports whether a failure was the last one that the limit admits.
func fills(d *headgate.Decision, cost headgate.Cost) bool {
	next := cost.Float64()
	if cost.IsZero() {
		next = 1
	}
	return !d.Allowed || float64(d.Remaining) < next
}

// pass serves a request, and then corrects what it was charged.
func (m *middleware) pass(next http.Handler, w http.ResponseWriter, r *http.Request, c *charged) {
	if c.finish == nil {
		next.ServeHTTP(w, r)
		return
	}
	var rec recorder
	writer, panicked := rec.wrap(w), true
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), finishWithin)
		defer cancel()
		if err := c.finish(ctx, rec.response(r, w.Header(), panicked)); err != nil {
			m.tell(r, err)
		}
	}()
	next.ServeHTTP(writer, r)
	panicked = false
}
