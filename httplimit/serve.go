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

// middleware charges requests, and serves those that are admitted, for NewHandler.
type middleware struct {
	limiter HandlerLimiter
	cfg     HandlerConfig
	settles bool // a charge has a SettleFunc
	logger  *slog.Logger
}

// chargedRequest is what one request is charged, and what was decided about it.
type chargedRequest struct {
	charges     []headgate.Charge
	settleFuncs []SettleFunc // one for each charge; nil: its cost is final
	id          string       // made from the idempotency key of HandlerConfig.ID; empty: there is none
	decision    headgate.Decision
	finish      func(context.Context, *Response) error // settles or refunds after the handler; may be nil
}

func (m *middleware) serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	if m.cfg.Skip != nil && m.cfg.Skip(r) {
		next.ServeHTTP(w, r)
		return
	}
	c, err := m.readCharges(r)
	if err != nil {
		if m.cfg.Mode == Enforce {
			m.answerInvalid(w, r, err)
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
		m.answerUndecided(next, w, r, err)
		return
	}
	m.reportDecision(r, &c.decision)
	if m.answerDecision(w, r, c) {
		return
	}
	m.serveAndFinish(next, w, r.WithContext(context.WithValue(r.Context(), decisionKey{}, &c.decision)), c)
}

type decisionKey struct{}

// DecisionFrom returns the decision of the middleware around a handler, from the request's context. Of several
// middlewares, the innermost one counts. It returns false if there is no decision, such as where Skip or FailOpen
// served the request. With [Shadow] and [Advise] the decision may be a refusal.
func DecisionFrom(ctx context.Context) (headgate.Decision, bool) {
	d, ok := ctx.Value(decisionKey{}).(*headgate.Decision)
	if !ok {
		return headgate.Decision{}, false
	}
	return *d, true
}

// readCharges finds the charges of a request and its idempotency key.
func (m *middleware) readCharges(r *http.Request) (*chargedRequest, error) {
	c := &chargedRequest{charges: make([]headgate.Charge, 0, len(m.cfg.Charges))}
	for i := range m.cfg.Charges {
		if err := m.appendCharge(r, &m.cfg.Charges[i], c); err != nil {
			return nil, err
		}
	}
	if m.cfg.ID == nil {
		return c, nil
	}
	id, err := m.cfg.ID(r)
	if err == nil && id != "" {
		c.id = storeID(id, c.charges)
	}
	return c, err
}

// appendCharge evaluates a configured charge for a request and appends the result. It appends nothing if LimitFor
// returns the zero Limit, or Cost returns headgate.Units(0).
func (m *middleware) appendCharge(r *http.Request, configured *Charge, request *chargedRequest) (err error) {
	charge := headgate.Charge{Limit: configured.Limit, Keep: configured.Keep}
	if configured.LimitFor != nil {
		if charge.Limit, err = configured.LimitFor(r); err != nil || charge.Limit.IsZero() {
			return err
		}
		if m.cfg.OnlyFailures && !refundable(charge.Limit) {
			return fmt.Errorf("httplimit: OnlyFailures needs sliding-log or sliding-window, not %s", charge.Limit)
		}
	}
	if configured.Cost != nil {
		charge.Cost, err = configured.Cost(r)
		if err != nil || charge.Cost == headgate.Units(0) {
			return err
		}
	}
	key, err := configured.Key(r)
	if err != nil {
		return err
	}
	charge.Key = httpkey.Join(key)
	request.charges = append(request.charges, charge)
	request.settleFuncs = append(request.settleFuncs, configured.Settle)
	return nil
}

// answerDecision writes the RateLimit fields, and answers a request that is refused or was charged before.
// It reports whether it has answered; if not, the request is to be served.
func (m *middleware) answerDecision(w http.ResponseWriter, r *http.Request, c *chargedRequest) bool {
	if m.cfg.Mode == Shadow {
		return false
	}
	d, h := &c.decision, w.Header()
	m.setFields(h, c)
	switch {
	case m.cfg.Mode == Advise:
		return false
	case !d.Allowed:
		m.refuse(w, r, d)
		return true
	case d.Replayed && c.id != "" && !m.cfg.ServeReplays:
		writeProblem(w, http.StatusConflict, "A request with this id was admitted before. This one charged nothing.")
		return true
	}
	return false
}

// refuse answers a refused request: with Refuse, in the protocol of the call, or with a problem.
func (m *middleware) refuse(w http.ResponseWriter, r *http.Request, d *headgate.Decision) {
	SetRetryAfter(w.Header(), d, m.cfg.NoRetryBeyond)
	switch {
	case m.cfg.Refuse != nil:
		m.cfg.Refuse(w, r, d)
	case !m.refuseCall(w, r, d):
		WriteRefusal(w, d, m.cfg.Status)
	}
}

func (m *middleware) setFields(h http.Header, c *chargedRequest) {
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

// answerUndecided serves or rejects a request for which the limiter returned an error.
func (m *middleware) answerUndecided(next http.Handler, w http.ResponseWriter, r *http.Request, err error) {
	invalidErr, isInvalid := errors.AsType[*headgate.InvalidError](err)
	switch {
	case m.cfg.Mode != Enforce:
		m.reportError(r, err)
		next.ServeHTTP(w, r)
	case errors.Is(err, headgate.ErrReused):
		writeProblem(w, http.StatusConflict,
			"A request with this id and another cost was admitted before. This one has charged nothing.")
	case isInvalid && invalidErr.Field == "cost":
		m.answerInvalid(w, r, err)
	case errors.Is(err, headgate.ErrInvalid), errors.Is(err, headgate.ErrUnsupported):
		m.reportError(r, err)
		writeProblem(w, http.StatusInternalServerError, "")
	case r.Context().Err() != nil: // before FailOpen, since a client could pass the limit by leaving early
		WriteUnavailable(w)
	case m.cfg.FailOpen:
		m.reportError(r, err)
		next.ServeHTTP(w, r)
	default:
		m.reportError(r, err)
		WriteUnavailable(w)
	}
}

// answerInvalid rejects a request whose limit, key, cost or id is wrong: with 413 or 400 if the client is at fault,
// else with 500.
func (m *middleware) answerInvalid(w http.ResponseWriter, r *http.Request, err error) {
	bodyErr, tooLong := errors.AsType[*http.MaxBytesError](err)
	switch {
	case tooLong:
		writeProblem(w, http.StatusRequestEntityTooLarge,
			fmt.Sprintf("The body is longer than %d bytes.", bodyErr.Limit))
	case httpkey.IsClientError(err):
		writeProblem(w, http.StatusBadRequest, err.Error())
	default:
		m.reportError(r, err)
		writeProblem(w, http.StatusInternalServerError, "")
	}
}

func writeProblem(w http.ResponseWriter, status int, detail string) {
	WriteProblem(w, &Problem{Title: http.StatusText(status), Status: status, Detail: detail})
}

// reportDecision passes a decision to OnDecision, or logs a refusal that is not enforced.
func (m *middleware) reportDecision(r *http.Request, d *headgate.Decision) {
	switch {
	case m.cfg.OnDecision != nil:
		m.cfg.OnDecision(r, d)
	case m.cfg.Mode != Enforce && !d.Allowed:
		m.logger.LogAttrs(r.Context(), slog.LevelWarn, "httplimit: a limit would refuse",
			slog.String(lograte.Class, d.LimitName), slog.String("limit", d.LimitName),
			slog.Duration("retry_after", d.RetryAfter))
	}
}

// reportError passes an error to OnError, or logs it.
func (m *middleware) reportError(r *http.Request, err error) {
	if m.cfg.OnError != nil {
		m.cfg.OnError(r, err)
		return
	}
	m.logger.LogAttrs(r.Context(), slog.LevelError, "httplimit: no decision, or none in full", slog.Any("error", err))
}
