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

// SettleFunc returns the actual cost of a request. It is safe for concurrent use.
type SettleFunc func(*Response) (headgate.Cost, error)

// SettleByHeader takes the cost from a header of the answer. Without it the charge stays as it is.
func SettleByHeader(name string) SettleFunc {
	return func(r *Response) (headgate.Cost, error) {
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

// ownID returns an id under which the store knows a request that has none. A reset of a key forgets the
// ids of what it was charged, so that nothing of that is given back once more.
func ownID() string { return "http-" + rand.Text() }

// decide takes, and says what has to be done after the handler.
func (m *middleware) decide(ctx context.Context, c *charged) (err error) {
	switch {
	case m.cfg.Mode == Advise:
		c.decision, err = m.limiter.Check(ctx, c.charges...)
	case m.cfg.OnlyFailures:
		return m.attempt(ctx, c)
	case c.id != "":
		return m.takeOnce(ctx, c, c.id)
	case m.settles || m.cfg.RefundFailures:
		return m.takeOnce(ctx, c, ownID())
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
			return correct(ctx, once.Cancel, c.charges)
		}
		actual, wrong := c.actual(resp)
		if len(actual) == 0 {
			return wrong
		}
		return errors.Join(wrong, correct(ctx, once.Settle, actual))
	}
	return nil
}

// correct cancels or settles charges by a method of [headgate.Once]. That does all or nothing; if the key of one of
// several was reset since, the others are corrected nevertheless.
func correct(ctx context.Context, by func(context.Context, ...headgate.Charge) ([]headgate.Cost, error),
	charges []headgate.Charge,
) error {
	_, err := by(ctx, charges...)
	if len(charges) == 1 || !errors.Is(err, headgate.ErrUnknownID) {
		return err
	}
	var errs []error
	for _, c := range charges {
		_, err := by(ctx, c)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
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

// attempt takes the charges of a request that may succeed, so that they can be given back, and blocks no key.
func (m *middleware) attempt(ctx context.Context, c *charged) error {
	once := m.limiter.Once(ownID(), m.cfg.Life)
	held, err := once.Reserve(ctx, aMoment, c.charges...)
	if err != nil {
		return err
	}
	if !held.Refundable {
		return unfit(ctx, once, c, held.Decision.Allowed)
	}
	if c.decision = held.Decision; c.decision.Allowed {
		c.finish = func(ctx context.Context, resp *Response) error { return m.afterAttempt(ctx, resp, c, once) }
	}
	return nil
}

// unfit cancels what a request was charged whose limits are not fit for OnlyFailures: one was given by name,
// and the limiter, which finds names and overrides, says now what it is.
func unfit(ctx context.Context, once headgate.Once, c *charged, allowed bool) error {
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
func (m *middleware) afterAttempt(ctx context.Context, resp *Response, c *charged, once headgate.Once) error {
	if !m.failed(resp) {
		return correct(ctx, once.Cancel, c.charges)
	}
	var errs []error
	for _, charge := range c.charges {
		errs = append(errs, m.blockFull(ctx, charge))
	}
	return errors.Join(errs...)
}

// blockFull blocks the key of a charge that has failed if failures fill the limit. Requests in flight
// must not count for that, since they may succeed, and the level does not distinguish them from failures. So the
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
	failed, err := m.limiter.Reserve(ctx, aMoment, counted) // which is not given back
	if err != nil || !fills(&failed.Decision, charge.Cost) {
		return err
	}
	once := m.limiter.Once(ownID(), m.cfg.Life)
	one, err := once.Take(ctx, charge)
	if err == nil && one.Allowed { // an older failure has been forgotten
		_, err = once.Cancel(ctx, charge)
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
			m.reportError(r, err)
		}
	}()
	next.ServeHTTP(writer, r)
	panicked = false
}
