package httplimit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/httpkey"
	"github.com/headgate/headgate/internal/lograte"
)

// middleware serves for NewHandler.
type middleware struct {
	limiter HandlerLimiter
	cfg     HandlerConfig
	settles bool // a charge has a SettleFunc
	logger  *slog.Logger
}

// charged is a request with its charges.
type charged struct {
	charges  []headgate.Charge
	settle   []SettleFunc // of each charge
	id       string       // the client's; empty: none
	decision headgate.Decision
	finish   func(context.Context, *Response) error // what is done after the handler; nil: nothing
}

// serve answers one request.
func (m *middleware) serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	if m.cfg.Skip != nil && m.cfg.Skip(r) {
		next.ServeHTTP(w, r)
		return
	}
	c, err := m.read(r)
	if err != nil {
		if m.cfg.Mode == Enforce {
			m.wrong(w, r, err)
			return
		}
		m.reportError(r, err)
		next.ServeHTTP(w, r)
		return
	}
	if len(c.charges) == 0 {
		next.ServeHTTP(w, r)
		return
	}
	if err := m.decide(r.Context(), c); err != nil {
		m.undecided(next, w, r, err)
		return
	}
	m.report(r, &c.decision)
	if m.answered(w, r, c) {
		return
	}
	m.pass(next, w, r.WithContext(context.WithValue(r.Context(), decisionKey{}, &c.decision)), c)
}

type decisionKey struct{}

// DecisionFrom returns what the middleware around a handler has decided about its request, from the request's context:
// of several, the innermost one. False: none has decided, such as where Skip or FailOpen served the request. With
// [Shadow] and [Advise] it may be a refusal.
func DecisionFrom(ctx context.Context) (headgate.Decision, bool) {
	d, ok := ctx.Value(decisionKey{}).(*headgate.Decision)
	if !ok {
		return headgate.Decision{}, false
	}
	return *d, true
}

// read returns what a request is charged.
func (m *middleware) read(r *http.Request) (*charged, error) {
	c := &charged{charges: make([]headgate.Charge, 0, len(m.cfg.Charges))}
	for i := range m.cfg.Charges {
		if err := m.readCharge(r, &m.cfg.Charges[i], c); err != nil {
			return nil, err
		}
	}
	if m.cfg.ID == nil {
		return c, nil
	}
	id, err := m.cfg.ID(r)
	if err == nil && id != "" {
		c.id = idOf(id, c.charges)
	}
	return c, err
}

// readCharge adds a charge, unless it is left out.
func (m *middleware) readCharge(r *http.Request, from *Charge, to *charged) (err error) {
	charge := headgate.Charge{Limit: from.Limit, Keep: from.Keep}
	if from.LimitFor != nil {
		if charge.Limit, err = from.LimitFor(r); err != nil || charge.Limit.IsZero() {
			return err
		}
		if m.cfg.OnlyFailures && !refundable(charge.Limit) {
			return fmt.Errorf("httplimit: OnlyFailures needs sliding-log or sliding-window, not %s", charge.Limit)
		}
	}
	if from.Cost != nil {
		charge.Cost, err = from.Cost(r)
		if err != nil || charge.Cost == headgate.Units(0) {
			return err
		}
	}
	key, err := from.Key(r)
	if err != nil {
		return err
	}
	charge.Key = httpkey.Join(key)
	to.charges, to.settle = append(to.charges, charge), append(to.settle, from.Settle)
	return nil
}

// answered refuses a request, or one that was charged before, and reports whether it has; else it
// writes the fields of a request that is served.
func (m *middleware) answered(w http.ResponseWriter, r *http.Request, c *charged) bool {
	if m.cfg.Mode == Shadow {
		return false
	}
	d, h := &c.decision, w.Header()
	m.fields(h, c)
	switch {
	case m.cfg.Mode == Advise:
		return false
	case !d.Allowed:
		m.refuse(w, r, d)
		return true
	case d.Replayed && c.id != "" && !m.cfg.ServeReplays:
		problem(w, http.StatusConflict, "A request with this id was admitted before. This one has charged nothing.")
		return true
	}
	return false
}

// refuse answers a request that a limit refuses.
func (m *middleware) refuse(w http.ResponseWriter, r *http.Request, d *headgate.Decision) {
	SetRetryAfter(w.Header(), d, m.cfg.NoRetryBeyond)
	switch {
	case m.cfg.Refuse != nil:
		m.cfg.Refuse(w, r, d)
	case !m.refuseCall(w, r, d):
		WriteRefusal(w, d, m.cfg.Status)
	}
}

func (m *middleware) fields(h http.Header, c *charged) {
	limits := make([]headgate.Limit, len(c.charges))
	for i := range c.charges {
		limits[i] = c.charges[i].Limit
	}
	SetHeader(h, &c.decision, limits...)
	if m.cfg.NoFields {
		delete(h, "Ratelimit")
		delete(h, "Ratelimit-Policy")
	}
	SetLegacyHeader(h, &c.decision, m.cfg.Legacy)
}

// undecided answers a request about which the limiter has not decided.
func (m *middleware) undecided(next http.Handler, w http.ResponseWriter, r *http.Request, err error) {
	invalid, wrong := errors.AsType[*headgate.InvalidError](err)
	switch {
	case m.cfg.Mode != Enforce:
		m.reportError(r, err)
		next.ServeHTTP(w, r)
	case errors.Is(err, headgate.ErrReused):
		problem(w, http.StatusConflict,
			"A request with this id and another cost was admitted before. This one has charged nothing.")
	case wrong && invalid.Field == "cost":
		m.wrong(w, r, err)
	case errors.Is(err, headgate.ErrInvalid), errors.Is(err, headgate.ErrUnsupported):
		m.reportError(r, err)
		problem(w, http.StatusInternalServerError, "")
	case r.Context().Err() != nil: // else leaving early would be a way past the limit
		WriteUnavailable(w)
	case m.cfg.FailOpen:
		m.reportError(r, err)
		next.ServeHTTP(w, r)
	default:
		m.reportError(r, err)
		WriteUnavailable(w)
	}
}

// wrong answers a request that cannot be charged.
func (m *middleware) wrong(w http.ResponseWriter, r *http.Request, err error) {
	long, tooLong := errors.AsType[*http.MaxBytesError](err)
	switch {
	case tooLong:
		problem(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("The body is longer than %d bytes.", long.Limit))
	case httpkey.Clients(err):
		problem(w, http.StatusBadRequest, err.Error())
	default:
		m.reportError(r, err)
		problem(w, http.StatusInternalServerError, "")
	}
}

func problem(w http.ResponseWriter, status int, detail string) {
	WriteProblem(w, &Problem{Title: http.StatusText(status), Status: status, Detail: detail})
}

// report passes a decision to the observer.
func (m *middleware) report(r *http.Request, d *headgate.Decision) {
	switch {
	case m.cfg.OnDecision != nil:
		m.cfg.OnDecision(r, d)
	case m.cfg.Mode != Enforce && !d.Allowed:
		m.logger.LogAttrs(r.Context(), slog.LevelWarn, "httplimit: a limit would refuse",
			slog.String(lograte.Class, d.LimitName), slog.String("limit", d.LimitName),
			slog.Duration("retry_after", d.RetryAfter))
	}
}

// reportError reports an error that is not the client's.
func (m *middleware) reportError(r *http.Request, err error) {
	if m.cfg.OnError != nil {
		m.cfg.OnError(r, err)
		return
	}
	m.logger.LogAttrs(r.Context(), slog.LevelError, "httplimit: no decision, or none in full", slog.Any("error", err))
}
