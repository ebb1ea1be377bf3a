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
	Draft  bool // RateLimit and RateLimit-Policy, and Retry-After where the request is over a limit
}

// ParseHeaders reads names of kinds of headers: x-ratelimit and draft.
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

// unlimitedRemaining is what remains of something unlimited.
const unlimitedRemaining = 1<<32 - 1

// response writes what was decided.
func (p *plan) response(headers Headers) *rls.RateLimitResponse {
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
	if quotas > 0 && quotas == quotasOver { // there is no quota left to use
		r.OverallCode = rls.RateLimitResponse_OVER_LIMIT
	}
	if headers != (Headers{}) {
		r.ResponseHeadersToAdd = p.fields(headers, r.OverallCode == rls.RateLimitResponse_OVER_LIMIT)
	}
	return r
}

// status writes what was decided about a descriptor.
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
	if !t.told {
		return s
	}
	s.LimitRemaining = clamp(t.d.Remaining)
	reset := t.d.ResetAfter
	if t.over {
		if !t.rule.shadow {
			s.Code = rls.RateLimitResponse_OVER_LIMIT
		}
		if t.d.RetryAfter > 0 {
			reset = t.d.RetryAfter
		}
	}
	if reset != headgate.Never {
		s.DurationUntilReset = durationpb.New(reset)
	}
	return s
}

// fields writes the headers of a response: about the limit that has to be waited for longest, or else the one
// with the least left. Limits in shadow mode say nothing to clients.
func (p *plan) fields(headers Headers, over bool) []*corepb.HeaderValue {
	var about *task
	for i := range p.tasks {
		t := &p.tasks[i]
		if !t.told || t.rule.shadow {
			continue
		}
		switch {
		case about == nil,
			t.over && !about.over,
			t.over && t.d.RetryAfter > about.d.RetryAfter,
			!about.over && t.d.Remaining < about.d.Remaining:
			about = t
		}
	}
	if about == nil {
		return nil
	}
	d := about.d
	d.LimitName, d.Each = about.rule.title, nil
	h := http.Header{}
	if headers.Draft {
		httplimit.SetHeader(h, &d, about.rule.limit)
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
