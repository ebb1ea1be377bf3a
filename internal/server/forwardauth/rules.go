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

// errNoRules: nothing says what to charge. If the request passed, nothing would be limited, and
// nobody would notice.
var errNoRules = headgate.Invalid("limit", "is missing, and this server has no rules that would say what to charge; "+
	"ask %s?limit=NAME&key=KEY", Path)

// byRules charges what the rules say.
func (h *Handler) byRules(ctx context.Context, w http.ResponseWriter, r *http.Request, refused int) error {
	inForce := h.service.Rules()
	original, m, err := h.match(ctx, r, inForce)
	if err != nil {
		return err
	}
	if m.Rule == "" && m.Listed == rules.NotListed && inForce.Len() == 0 {
		return errNoRules
	}
	if h.uncharged(ctx, w, &m, original, refused) {
		return nil
	}
	caller := auth.From(ctx)
	if err := checkTouches(caller, m.Charges); err != nil {
		return err
	}
	ask := headgate.Request{Charges: m.Charges, Check: m.Mode == rules.Advise}
	if !ask.Check {
		if m.ID == "" && len(m.Settle) > 0 {
			m.ID = "auth:" + rand.Text()
		}
		ask.ID, ask.Life = caller.ID(m.ID), m.Life
	}
	d, err := h.service.Decide(ctx, &ask)
	if err == nil && d.Allowed && !d.Replayed && !ask.Check { // replays do not settle
		setReceipt(w, m.ID, &m)
	}
	if m.Mode != rules.Enforce {
		h.pass(ctx, w, &m, original, &d, err)
		return nil
	}
	if again := d.Allowed && d.Replayed && !m.Replays; again || errors.Is(err, headgate.ErrReused) {
		return replayed(refused)
	}
	if err != nil {
		if Problem(err).Status == http.StatusBadRequest {
			h.logBadRequest(ctx, m.Rule, original.Method, err)
		}
		return err
	}
	h.answer(w, &d, m.Charges, refused)
	return nil
}

// match returns the request that a proxy asks about, and what applies to it.
func (h *Handler) match(ctx context.Context, r *http.Request, inForce *rules.Rules) (
	original *rules.Request, m rules.Match, err error,
) {
	original, err = h.original(r)
	switch {
	case err != nil && original != nil && inForce.Len() > 0 && !inForce.Enforces(): // only its target is wrong
		return original, rules.Match{Mode: rules.Shadow, Problem: err}, nil
	case err != nil:
		h.logBadRequest(ctx, "", r.Method, err)
		return nil, m, err
	}
	if m, err = inForce.Match(original); err != nil {
		h.logBadRequest(ctx, m.Rule, original.Method, err)
	}
	return original, m, err
}

// logBadRequest logs why a request is refused with 400. nginx drops the body of the answer, and an operator who
// forgot to pass on a header that a rule needs would see no other reason.
func (h *Handler) logBadRequest(ctx context.Context, rule, method string, err error) {
	h.config.Log.LogAttrs(ctx, slog.LevelWarn, "refused with 400, and not charged", slog.String(lograte.Class, "wrong "+rule),
		slog.String("rule", rule), slog.String("method", short(method)), slog.Any("error", err))
}

// checkTouches refuses a caller that may not touch the limits of all charges.
func checkTouches(caller *auth.Caller, charges []headgate.Charge) error {
	for i := range charges {
		if err := caller.Touches(charges[i].Limit.Name()); err != nil {
			return err
		}
	}
	return nil
}

// uncharged answers if nothing is charged, else returns false.
func (h *Handler) uncharged(ctx context.Context, w http.ResponseWriter, m *rules.Match, r *rules.Request,
	refused int,
) bool {
	switch {
	case m.Problem != nil:
		h.report(ctx, m, r, m.Problem.Error())
	case m.Listed == rules.Blocked && m.Mode == rules.Enforce:
		block(w, refused)
		return true
	case m.Listed == rules.Blocked && m.Mode == rules.Shadow:
		h.report(ctx, m, r, "its block list")
	case m.Listed == rules.NotListed && len(m.Charges) > 0:
		return false
	}
	allow(w)
	return true
}

// pass lets a request pass whatever the decision: its rule is not enforced.
func (h *Handler) pass(ctx context.Context, w http.ResponseWriter, m *rules.Match, r *rules.Request,
	d *headgate.Decision, err error,
) {
	switch {
	case err != nil:
		h.config.Log.LogAttrs(ctx, slog.LevelWarn, "a rule that is not enforced failed", slog.String("rule", m.Rule),
			slog.Any("error", err))
	case m.Mode == rules.Advise:
		h.config.Fields.set(w.Header(), d, h.service.Limited(m.Charges))
	case !d.Allowed:
		h.report(ctx, m, r, d.LimitName)
	}
	allow(w)
}

// report logs that a rule in shadow mode would have refused a request.
func (h *Handler) report(ctx context.Context, m *rules.Match, r *rules.Request, by string) {
	h.config.Log.LogAttrs(ctx, slog.LevelInfo, "would be refused", slog.String("rule", m.Rule), slog.String("by", by),
		slog.String("method", short(r.Method)), slog.String("client", r.Client.String()))
}

// short truncates an end user's text.
func short(text string) string { return text[:min(len(text), 20)] }

// block refuses a client that a list blocks: with 403, since a retry is pointless, unless
// the proxy asks for 401.
func block(w http.ResponseWriter, refused int) {
	if refused == http.StatusTooManyRequests {
		refused = http.StatusForbidden
	}
	edge.WriteProblem(w, &api.Problem{
		Title: "Blocked", Status: refused, Detail: "A list of addresses blocks this client.",
	})
}

// replayed returns the problem of an id that was admitted before. Proxies that take only 401 and 403 get the status
// they take.
func replayed(refused int) error {
	if refused == http.StatusTooManyRequests {
		refused = http.StatusConflict
	}
	return &api.Problem{
		Type: api.IDReused, Title: "Conflict", Status: refused,
		Detail: "A request with this id was let through before. Nothing was charged.", Field: "id",
	}
}
