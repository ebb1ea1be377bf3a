package forwardauth

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/lograte"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/edge"
	"github.com/headgate/headgate/internal/server/rules"
)

// errNoRules is the error if the query names no limit and the server has no rules. If the request passed, nothing would
// be limited, and the operator would not notice.
var errNoRules = headgate.Invalid("limit", "is missing, and this server has no rules that would say what to charge; "+
	"ask %s?limit=NAME&key=KEY", Path)

// chargeByRules decides the charges of the rule that matches the original request.
func (h *Handler) chargeByRules(ctx context.Context, w http.ResponseWriter, r *http.Request, refusalStatus int) error {
	ruleSet := h.service.Rules()
	original, m, err := h.matchRules(ctx, r, ruleSet)
	if err != nil {
		return err
	}
	if m.Rule == "" && m.Listed == rules.NotListed && ruleSet.Len() == 0 {
		return errNoRules
	}
	if h.answerUncharged(ctx, w, &m, original, refusalStatus) {
		return nil
	}
	caller := auth.CallerOf(ctx)
	if err := checkLimits(caller, m.Charges); err != nil {
		return err
	}
	request := headgate.Request{Charges: m.Charges, Check: m.Mode == rules.Advise}
	if !request.Check {
		if m.ID == "" && len(m.Settle) > 0 {
			m.ID = "auth:" + rand.Text()
		}
		request.ID, request.Life = caller.ID(m.ID), m.Life
	}
	d, err := h.service.Decide(ctx, &request)
	if err == nil && d.Allowed && !d.Replayed && !request.Check { // replays do not settle
		setReceipt(w, m.ID, &m)
	}
	if m.Mode != rules.Enforce {
		h.answerUnenforced(ctx, w, &m, original, &d, err)
		return nil
	}
	if replay := d.Allowed && d.Replayed && !m.Replays; replay || errors.Is(err, headgate.ErrReused) {
		return replayProblem(refusalStatus)
	}
	if err != nil {
		if ProblemOf(err).Status == http.StatusBadRequest {
			h.logBadRequest(ctx, m.Rule, original.Method, err)
		}
		return err
	}
	h.answer(w, &d, m.Charges, refusalStatus)
	return nil
}

// matchRules returns the original request, and the rule that matches it.
func (h *Handler) matchRules(ctx context.Context, r *http.Request, ruleSet *rules.Rules) (
	original *rules.Request, m rules.Match, err error,
) {
	original, err = h.originalRequest(r)
	switch {
	case err != nil && original != nil && ruleSet.Len() > 0 && !ruleSet.Enforces(): // only its target is wrong
		return original, rules.Match{Mode: rules.Shadow, Problem: err}, nil
	case err != nil:
		h.logBadRequest(ctx, "", r.Method, err)
		return nil, m, err
	}
	if m, err = ruleSet.Match(original); err != nil {
		h.logBadRequest(ctx, m.Rule, original.Method, err)
	}
	return original, m, err
}

// logBadRequest logs why a request is refused with 400. nginx drops the body of the answer, and an operator who forgot
// to pass on a header that a rule needs would see no other reason.
func (h *Handler) logBadRequest(ctx context.Context, rule, method string, err error) {
	h.config.Log.LogAttrs(ctx, slog.LevelWarn, "refused with 400, and not charged", slog.String(lograte.Class, "wrong "+rule),
		slog.String("rule", rule), slog.String("method", shortMethod(method)), slog.Any("error", err))
}

// checkLimits returns auth.ErrForbidden if a caller may not touch the limits of all charges.
func checkLimits(caller *auth.Caller, charges []headgate.Charge) error {
	for i := range charges {
		if err := caller.CheckLimit(charges[i].Limit.Name()); err != nil {
			return err
		}
	}
	return nil
}

// answerUncharged answers a request without charges: one that a list allows or blocks, that no rule charges, or that
// lacks what a rule that is not enforced needs. It returns false if there are charges.
func (h *Handler) answerUncharged(ctx context.Context, w http.ResponseWriter, m *rules.Match, r *rules.Request,
	refusalStatus int,
) bool {
	switch {
	case m.Problem != nil:
		h.logShadowRefusal(ctx, m, r, m.Problem.Error())
	case m.Listed == rules.Blocked && m.Mode == rules.Enforce:
		writeBlocked(w, refusalStatus)
		return true
	case m.Listed == rules.Blocked && m.Mode == rules.Shadow:
		h.logShadowRefusal(ctx, m, r, "its block list")
	case m.Listed == rules.NotListed && len(m.Charges) > 0:
		return false
	}
	allow(w)
	return true
}

// answerUnenforced lets a request pass whatever the decision, since its rule is not enforced.
func (h *Handler) answerUnenforced(ctx context.Context, w http.ResponseWriter, m *rules.Match, r *rules.Request,
	d *headgate.Decision, err error,
) {
	switch {
	case err != nil:
		h.config.Log.LogAttrs(ctx, slog.LevelWarn, "a rule that is not enforced failed", slog.String("rule", m.Rule),
			slog.Any("error", err))
	case m.Mode == rules.Advise:
		h.config.Fields.write(w.Header(), d, h.service.KnownLimits(m.Charges))
	case !d.Allowed:
		h.logShadowRefusal(ctx, m, r, d.LimitName)
	}
	allow(w)
}

// logShadowRefusal logs that a rule would have refused a request if it were enforced.
func (h *Handler) logShadowRefusal(ctx context.Context, m *rules.Match, r *rules.Request, by string) {
	h.config.Log.LogAttrs(ctx, slog.LevelInfo, "would be refused", slog.String("rule", m.Rule), slog.String("by", by),
		slog.String("method", shortMethod(r.Method)), slog.String("client", r.Client.String()))
}

// shortMethod cuts the method of an end user's request to 20 bytes, for the log.
func shortMethod(method string) string { return method[:min(len(method), 20)] }

// writeBlocked refuses a client that a list blocks. The status is 403 instead of 429, since a retry is pointless.
func writeBlocked(w http.ResponseWriter, refusalStatus int) {
	if refusalStatus == http.StatusTooManyRequests {
		refusalStatus = http.StatusForbidden
	}
	edge.WriteProblem(w, &api.Problem{
		Title: "Blocked", Status: refusalStatus, Detail: "A list of addresses blocks this client.",
	})
}

// replayProblem returns the problem of an id that was admitted before. Its status is 409 instead of 429. Proxies that
// understand only 401 and 403 have set the other status themselves.
func replayProblem(refusalStatus int) error {
	if refusalStatus == http.StatusTooManyRequests {
		refusalStatus = http.StatusConflict
	}
	return &api.Problem{
		Type: api.IDReused, Title: "Conflict", Status: refusalStatus,
		Detail: "A request with this id was let through before. Nothing was charged.", Field: "id",
	}
}
