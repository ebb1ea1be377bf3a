package envoy

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
)

// Headers says which headers Envoy adds to responses. The zero value adds none.
type Headers struct {
	Legacy bool // X-RateLimit-Limit, -Remaining and -Reset, in seconds from now
	Draft  bool // RateLimit and RateLimit-Policy, and Retry-After where the overall code is OVER_LIMIT
}

// ParseHeaders reads the names of kinds of headers: x-ratelimit and draft.
func ParseHeaders(names []string) (h Headers, err error) {
	for _, name := range names {
		switch name {
		case "x-ratelimit":
			h.Legacy = true
		case "draft":
			h.Draft = true
		default:
			return h, headgate.Invalid("envoy_headers", "%.100q is neither x-ratelimit nor draft", name)
		}
	}
	return h, nil
}

// unlimitedRemaining is what remains of an unlimited descriptor: the most that an answer can say.
const unlimitedRemaining = 1<<32 - 1

// response returns the decisions about all descriptors. The request is over the limit if any ordinary limit is, or if
// all of its quotas (quota_mode) are: one quota with room is enough. Limits in shadow mode do not count.
func (p *preparedRequest) response(headers Headers) *rls.RateLimitResponse {
	r := &rls.RateLimitResponse{
		OverallCode: rls.RateLimitResponse_OK,
		Statuses:    make([]*rls.RateLimitResponse_DescriptorStatus, len(p.tasks)),
	}
	quotas, quotasOver := 0, 0
	for i := range p.tasks {
		t := &p.tasks[i]
		r.Statuses[i] = t.status()
		over := t.over && !t.rule.shadow
		switch {
		case t.rule != nil && t.rule.quota && !t.rule.unlimited:
			quotas++
			if over {
				quotasOver++
			}
		case over:
			r.OverallCode = rls.RateLimitResponse_OVER_LIMIT
		}
	}
	if quotas > 0 && quotas == quotasOver {
		r.OverallCode = rls.RateLimitResponse_OVER_LIMIT
	}
	if headers != (Headers{}) {
		r.ResponseHeadersToAdd = p.fields(headers, r.OverallCode == rls.RateLimitResponse_OVER_LIMIT)
	}
	return r
}

// status writes the decision about a descriptor.
func (t *task) status() *rls.RateLimitResponse_DescriptorStatus {
	s := &rls.RateLimitResponse_DescriptorStatus{Code: rls.RateLimitResponse_OK}
	switch {
	case t.rule == nil:
		return s
	case t.rule.unlimited:
		s.LimitRemaining = unlimitedRemaining
		return s
	}
	s.CurrentLimit = t.rule.current
	if !t.decided {
		return s
	}
	s.LimitRemaining = clamp(t.decision.Remaining)
	reset := t.decision.ResetAfter
	if t.over {
		if !t.rule.shadow {
			s.Code = rls.RateLimitResponse_OVER_LIMIT
		}
		if t.decision.RetryAfter > 0 {
			reset = t.decision.RetryAfter
		}
	}
	if reset != headgate.Never {
		s.DurationUntilReset = durationpb.New(reset)
	}
	return s
}

// fields writes the headers of a response. They are about the limit with the longest wait, or if none is over, about
// the limit with the least remaining. Limits in shadow mode are left out.
func (p *preparedRequest) fields(headers Headers, over bool) []*corepb.HeaderValue {
	var selected *task
	for i := range p.tasks {
		t := &p.tasks[i]
		if !t.decided || t.rule.shadow {
			continue
		}
		switch {
		case selected == nil,
			t.over && !selected.over,
			t.over && t.decision.RetryAfter > selected.decision.RetryAfter,
			!selected.over && t.decision.Remaining < selected.decision.Remaining:
			selected = t
		}
	}
	if selected == nil {
		return nil
	}
	d := selected.decision
	d.LimitName, d.Each = selected.rule.title, nil
	h := http.Header{}
	if headers.Draft {
		httplimit.SetHeader(h, &d, selected.rule.limit)
		if over {
			httplimit.SetRetryAfter(h, &d, 0)
		}
	}
	if headers.Legacy {
		httplimit.SetLegacyHeader(h, &d, httplimit.LegacySeconds)
	}
	list := make([]*corepb.HeaderValue, 0, len(h))
	for _, name := range slices.Sorted(maps.Keys(h)) {
		list = append(list, &corepb.HeaderValue{Key: strings.ToLower(name), Value: h[name][0]})
	}
	return list
}
