package service

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/netip"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/rules"
)

// Explain returns which rule decides a request, and the decision that it would get now. It charges nothing.
func (s *Service) Explain(ctx context.Context, r *api.Explain) (*api.Explanation, error) {
	q, err := parseExplain(r)
	if err != nil {
		return nil, err
	}
	e := s.Rules().Explain(q)
	m := &e.Match
	out := &api.Explanation{
		Allowed: true, Why: e.Why, Rule: m.Rule, At: e.At, Listed: m.Listed.String(), Once: m.ID != "",
		Charges: make([]api.ExplainCharge, len(m.Charges)), Rules: e.Verdicts,
	}
	if m.Rule != "" {
		out.Mode = m.Mode.String()
	}
	enforced := m.Mode == rules.Enforce
	if m.Listed == rules.Blocked {
		out.Allowed = !enforced
	}
	if problem := cmp.Or(m.Problem, e.Err); problem != nil {
		out.Allowed, out.Problem = !enforced, ProblemOf(problem)
	}
	for i := range m.Charges {
		if err := s.checkLimit(auth.CallerOf(ctx), m.Charges[i].Limit.Name()); err != nil {
			return nil, err
		}
		out.Charges[i] = chargeOf(m, i)
	}
	if len(m.Charges) == 0 {
		return out, nil
	}
	d, err := s.limiter.Check(ctx, m.Charges...)
	if err != nil {
		return nil, err
	}
	out.Decision = decisionOf(&d, len(m.Charges) > 1)
	out.Allowed = d.Allowed || !enforced
	return out, nil
}

// chargeOf converts the charge at index i of a match for the API.
func chargeOf(m *rules.Match, i int) api.ExplainCharge {
	c := &m.Charges[i]
	cost := cmp.Or(c.Cost, headgate.Units(1))
	out := api.ExplainCharge{Charge: api.Charge{
		Limit: c.Limit.Name(), Key: c.Key, Cost: json.Number(cost.String()), Keep: c.Keep.String(),
	}}
	for _, settle := range m.Settle {
		switch {
		case settle.Charge != i:
		case settle.Header != "":
			out.Settle = "header:" + settle.Header
		default:
			out.Settle = "json:" + settle.JSON
		}
	}
	return out
}

// parseExplain returns the HTTP request that is to be explained.
func parseExplain(r *api.Explain) (*rules.Request, error) {
	q := &rules.Request{Method: r.Method, Host: r.Host, Header: http.Header{}}
	switch {
	case r.Method == "":
		return nil, headgate.Invalid("method", "is missing")
	case r.URI == "":
		return nil, headgate.Invalid("uri", "is missing")
	}
	target, err := rules.ParseTarget("uri", r.URI)
	if err != nil {
		return nil, err
	}
	q.Path, q.Query, q.Host = target.Path, target.Query, cmp.Or(target.Host, q.Host)
	for _, line := range r.Headers {
		name, value, ok := strings.Cut(line, ":")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, headgate.Invalid("headers", "%.100q is not a header such as X-Api-Key: k1", line)
		}
		if value = strings.TrimSpace(value); http.CanonicalHeaderKey(name) == "Host" {
			q.Host = value
			continue
		}
		q.Header.Add(name, value)
	}
	if r.Client != "" {
		a, err := netip.ParseAddr(r.Client)
		if err != nil {
			return nil, headgate.Invalid("client", "%.100q is not an address", r.Client)
		}
		q.Client = a
	}
	return q, nil
}
