package envoy_test

import (
	"math"
	"testing"
	"time"

	descriptorpb "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

const ( // files of one domain each
	shopFile = `
domain: shop
descriptors:
  - key: table
    value: orders
    rate_limit: {unit: second, requests_per_unit: 5}
  - key: table
    value: default
    rate_limit: {unit: second, requests_per_unit: 7}
`
	mailFile = `
domain: mail
descriptors:
  - key: kind
    value: newsletter
    descriptors:
      - key: address
        rate_limit: {unit: day, requests_per_unit: 2}
  - key: address
    rate_limit: {unit: day, requests_per_unit: 10}
`
	edgeFile = `
domain: edge
descriptors:
  - key: remote_address
    rate_limit: {unit: second, requests_per_unit: 4}
  - key: remote_address
    value: 192.0.2.5
    rate_limit: {unit: second, requests_per_unit: 0}
`
	flatFile   = "domain: flat\ndescriptors:\n  - {key: k, value: v, rate_limit: {requests_per_unit: 3, unit: second}}\n"
	nestedFile = `
domain: nested
descriptors:
  - key: k
    value: v
    descriptors:
      - {key: sub, rate_limit: {requests_per_unit: 3, unit: second}}
`
	insideFile = `
domain: inside
descriptors:
  - {key: ldap, rate_limit: {unlimited: true}}
  - {key: azure, rate_limit: {unit: minute, requests_per_unit: 6}}
  - {key: free}
`
	shadowFile = `
domain: shadow
descriptors:
  - key: service
    descriptors:
      - {key: user, value: a, shadow_mode: true, rate_limit: {unit: second, requests_per_unit: 2}}
      - {key: user, value: b, rate_limit: {unit: second, requests_per_unit: 4}}
`
	replacingFile = `
domain: replacing
descriptors:
  - key: k1
    value: v1
    descriptors:
      - {key: user, value: bo, rate_limit: {name: narrow, unit: second, requests_per_unit: 2}}
  - key: k2
    value: v2
    descriptors:
      - {key: user, value: bo, rate_limit: {replaces: [{name: narrow}], unit: second, requests_per_unit: 5}}
`
	detailedFile = `
domain: detailed
descriptors:
  - {key: k, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: k, value: v, rate_limit: {unit: minute, requests_per_unit: 6}}
`
	wildFile = `
domain: wild
descriptors:
  - {key: path, value: /api/exact, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: path, value: /api/*, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: path, value: "*/img/*.png", rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: path, value: /shared/*, share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 4}}
  - {key: path, rate_limit: {unit: minute, requests_per_unit: 5}}
`
	quotasFile = `
domain: quotas
descriptors:
  - {key: plan, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: credit, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 4}}
  - {key: hard, rate_limit: {unit: hour, requests_per_unit: 3}}
`
)

// TestDocumentedAnswers sends the requests that envoyproxy/ratelimit documents. Each case has its own store.
func TestDocumentedAnswers(t *testing.T) {
	t.Parallel()
	list := func(pairs ...string) []*descriptorpb.RateLimitDescriptor {
		return []*descriptorpb.RateLimitDescriptor{desc(pairs...)}
	}
	const sent = 20
	for name, c := range map[string]struct {
		file   string
		domain string
		list   []*descriptorpb.RateLimitDescriptor
		want   int // how many of 20 requests pass
	}{
		"a value has its limit":                         {shopFile, "shop", list("table", "orders"), 5},
		"another value has its own":                     {shopFile, "shop", list("table", "default"), 7},
		"a value that is not listed has none":           {shopFile, "shop", list("table", "users"), sent},
		"a key that is not listed has none":             {shopFile, "shop", list("view", "orders"), sent},
		"keys differ by case":                           {shopFile, "shop", list("Table", "orders"), sent},
		"values differ by case":                         {shopFile, "shop", list("table", "Orders"), sent},
		"a domain that is not known has no limits":      {shopFile, "bakery", list("table", "orders"), sent},
		"an inner descriptor has a limit":               {mailFile, "mail", list("kind", "newsletter", "address", "a@x"), 2},
		"a placeholder has none":                        {mailFile, "mail", list("kind", "newsletter"), sent},
		"another outer value has none":                  {mailFile, "mail", list("kind", "bill", "address", "a@x"), sent},
		"a key alone counts for each value":             {mailFile, "mail", list("address", "a@x"), 10},
		"the tightest of several descriptors decides":   {mailFile, "mail", append(list("kind", "newsletter", "address", "a@x"), desc("address", "a@x")), 2},
		"any address":                                   {edgeFile, "edge", list("remote_address", "192.0.2.1"), 4},
		"an address of its own goes before":             {edgeFile, "edge", list("remote_address", "192.0.2.5"), 0},
		"too deep a request matches nothing":            {flatFile, "flat", list("k", "v", "sub", "x"), sent},
		"a request of the same depth matches":           {nestedFile, "nested", list("k", "v", "sub", "x"), 3},
		"too shallow a request matches nothing":         {nestedFile, "nested", list("k", "v"), sent},
		"the order of entries counts":                   {nestedFile, "nested", list("sub", "x", "k", "v"), sent},
		"unlimited passes":                              {insideFile, "inside", list("ldap", "x"), sent},
		"a limit beside an unlimited one":               {insideFile, "inside", list("azure", "x"), 6},
		"no limit and nothing below passes":             {insideFile, "inside", list("free", "x"), sent},
		"shadow mode passes":                            {shadowFile, "shadow", list("service", "auth", "user", "a"), sent},
		"beside shadow mode":                            {shadowFile, "shadow", list("service", "auth", "user", "b"), 4},
		"shadow mode leaves the others as they are":     {shadowFile, "shadow", append(list("service", "auth", "user", "a"), desc("service", "auth", "user", "b")), 4},
		"a named limit":                                 {replacingFile, "replacing", list("k1", "v1", "user", "bo"), 2},
		"the limit that replaces":                       {replacingFile, "replacing", list("k2", "v2", "user", "bo"), 5},
		"a limit is replaced":                           {replacingFile, "replacing", append(list("k1", "v1", "user", "bo"), desc("k2", "v2", "user", "bo")), 5},
		"detailed metrics change no limit":              {detailedFile, "detailed", list("k", "other"), 3},
		"detailed metrics beside a value":               {detailedFile, "detailed", list("k", "v"), 6},
		"the exact value goes before a wildcard":        {wildFile, "wild", list("path", "/api/exact"), 1},
		"a wildcard at the end":                         {wildFile, "wild", list("path", "/api/users"), 2},
		"wildcards in the middle":                       {wildFile, "wild", list("path", "/x/img/a.png"), 3},
		"the first wildcard that matches counts":        {wildFile, "wild", list("path", "/api/img/a.png"), 2},
		"a wildcard that shares":                        {wildFile, "wild", list("path", "/shared/a"), 4},
		"the key alone comes last":                      {wildFile, "wild", list("path", "/img/a.gif"), 5},
		"an empty value is the key alone":               {wildFile, "wild", list("path", ""), 5},
		"a quota that is used up passes beside another": {quotasFile, "quotas", append(list("plan", "x"), desc("credit", "x")), 4},
		"all quotas used up":                            {quotasFile, "quotas", list("plan", "x"), 2},
		"an ordinary limit decides beside quotas":       {quotasFile, "quotas", append(list("credit", "x"), desc("hard", "x")), 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startRig(t, noHeaders, c.file)
			if got := r.countPassed(sent, c.domain, c.list...); got != c.want {
				t.Errorf("%d of %d requests passed, want %d", got, sent, c.want)
			}
		})
	}
}

func TestEachValueHasItsOwnCount(t *testing.T) {
	t.Parallel()
	r := startRig(t, noHeaders, wildFile, mailFile)
	for _, path := range []string{"/api/a", "/api/b", "/other", "/another"} {
		want := 2
		if path[1] != 'a' || path == "/another" {
			want = 5 // the key alone counts, and not /api/*
		}
		if got := r.countPassed(9, "wild", desc("path", path)); got != want {
			t.Errorf("%s: %d passed, want %d", path, got, want)
		}
	}
	got := r.countPassed(3, "wild", desc("path", "/shared/a")) + r.countPassed(3, "wild", desc("path", "/shared/b"))
	if got != 4 {
		t.Errorf("%d passed under share_threshold, want 4 together", got)
	}
	// Different values that are joined to a key do not become the same key.
	r.countPassed(9, "mail", desc("kind", "newsletter", "address", "a|b"))
	if got := r.countPassed(9, "mail", desc("kind", "newsletter", "address", `a\|b`)); got != 2 {
		t.Errorf("%d passed, want 2 for a key of its own", got)
	}
}

func TestEachStatusHasTheFiguresOfItsLimit(t *testing.T) {
	t.Parallel()
	r := startRig(t, noHeaders, mailFile, insideFile)
	answer := r.send("mail", 0, desc("address", "a"), desc("nobody", "x"), desc("kind", "newsletter", "address", "a"))
	s := answer.GetStatuses()
	if len(s) != 3 || answer.GetOverallCode() != rls.RateLimitResponse_OK {
		t.Fatalf("got %v, want OK with 3 statuses", answer)
	}
	for i, want := range []struct{ requests, remaining uint32 }{{10, 9}, {0, 0}, {2, 1}} {
		if got := s[i].GetCurrentLimit().GetRequestsPerUnit(); got != want.requests {
			t.Errorf("status %d: %d requests a unit, want %d", i, got, want.requests)
		}
		if got := s[i].GetLimitRemaining(); got != want.remaining {
			t.Errorf("status %d: %d remaining, want %d", i, got, want.remaining)
		}
	}
	if s[1].GetCurrentLimit() != nil || s[1].GetDurationUntilReset() != nil {
		t.Errorf("the status of a descriptor without a limit: %v, want no figures", s[1])
	}
	if got := s[0].GetCurrentLimit().GetUnit(); got != rls.RateLimitResponse_RateLimit_DAY {
		t.Errorf("unit %v, want DAY", got)
	}
	r.countPassed(1, "mail", desc("kind", "newsletter", "address", "a"))
	answer = r.send("mail", 0, desc("address", "a"), desc("kind", "newsletter", "address", "a"))
	const over = rls.RateLimitResponse_OVER_LIMIT
	if s := answer.GetStatuses(); s[0].GetCode() != rls.RateLimitResponse_OK || s[1].GetCode() != over ||
		answer.GetOverallCode() != over {
		t.Errorf("got %v", answer)
	}
	if got := answer.GetStatuses()[0].GetLimitRemaining(); got != 8 {
		t.Errorf("%d remain, want 8: a descriptor is charged although another is over its limit", got)
	}
	free := r.send("inside", 0, desc("ldap", "x")).GetStatuses()[0]
	if free.GetLimitRemaining() != math.MaxUint32 || free.GetCurrentLimit() != nil {
		t.Errorf("unlimited: %v, want the largest number remaining", free)
	}
}

func TestStatusesNameTheirLimits(t *testing.T) {
	t.Parallel()
	r := startRig(t, noHeaders, replacingFile)
	if got := r.send("replacing", 0, desc("k1", "v1", "user", "bo")).GetStatuses()[0].GetCurrentLimit().GetName(); got != "narrow" {
		t.Errorf("name %q, want narrow", got)
	}
}

func TestBurstsAtTheBoundary(t *testing.T) {
	t.Parallel()
	const file = "domain: d\ndescriptors:\n  - {key: k, rate_limit: {unit: minute, requests_per_unit: 10}}\n"
	for name, c := range map[string]struct {
		file string
		want int // how many pass just after the boundary
	}{
		"by default":     {file, 10},
		"sliding-window": {"algorithm: sliding-window\n" + file, 0},
		"sliding-log":    {"algorithm: sliding-log\n" + file, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startRig(t, noHeaders, c.file)
			r.advance(59 * time.Second)
			if got := r.countPassed(20, "d", desc("k", "x")); got != 10 {
				t.Fatalf("%d passed before the boundary, want 10", got)
			}
			r.advance(time.Second)
			if got := r.countPassed(20, "d", desc("k", "x")); got != c.want {
				t.Errorf("%d passed just after the boundary, want %d", got, c.want)
			}
			r.advance(2 * time.Minute)
			if got := r.countPassed(20, "d", desc("k", "x")); got != 10 {
				t.Errorf("%d passed in a later window, want 10", got)
			}
		})
	}
}

func TestUnits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit      string
		period     time.Duration
		unit       rls.RateLimitResponse_RateLimit_Unit
		multiplier uint32 // 0: not set
	}{
		{"{unit: second, requests_per_unit: 2}", time.Second, rls.RateLimitResponse_RateLimit_SECOND, 0},
		{"{unit: MINUTE, requests_per_unit: 2}", time.Minute, rls.RateLimitResponse_RateLimit_MINUTE, 0},
		{"{unit: hour, requests_per_unit: 2}", time.Hour, rls.RateLimitResponse_RateLimit_HOUR, 0},
		{"{unit: day, requests_per_unit: 2}", 24 * time.Hour, rls.RateLimitResponse_RateLimit_DAY, 0},
		{"{unit: week, requests_per_unit: 2}", 7 * 24 * time.Hour, rls.RateLimitResponse_RateLimit_WEEK, 0},
		{"{unit: month, requests_per_unit: 2}", 30 * 24 * time.Hour, rls.RateLimitResponse_RateLimit_MONTH, 0},
		{"{unit: year, requests_per_unit: 2}", 365 * 24 * time.Hour, rls.RateLimitResponse_RateLimit_YEAR, 0},
		{"{unit: minute, requests_per_unit: 2, unit_multiplier: 10}", 10 * time.Minute, rls.RateLimitResponse_RateLimit_MINUTE, 10},
		{`{headgate: "fixed-window 2/10m"}`, 10 * time.Minute, rls.RateLimitResponse_RateLimit_MINUTE, 10},
		{`{headgate: "fixed-window 2/7d"}`, 7 * 24 * time.Hour, rls.RateLimitResponse_RateLimit_WEEK, 0},
		{`{headgate: "fixed-window 2/month Europe/Berlin"}`, 30 * 24 * time.Hour, rls.RateLimitResponse_RateLimit_MONTH, 0},
	} {
		t.Run(c.limit, func(t *testing.T) {
			t.Parallel()
			r := startRig(t, noHeaders, "domain: d\nalgorithm: fixed-window\ndescriptors:\n  - {key: k, rate_limit: "+c.limit+"}\n")
			r.advance(-time.Duration(r.clock.Load()%c.period.Microseconds()) * time.Microsecond) // to a window's start
			s := r.send("d", 0, desc("k", "x")).GetStatuses()[0]
			l := s.GetCurrentLimit()
			if l.GetRequestsPerUnit() != 2 || l.GetUnit() != c.unit ||
				l.GetUnitMultiplier().GetValue() != c.multiplier {
				t.Errorf("got the limit %v, want 2 in %d %v", l, c.multiplier, c.unit)
			}
			calendar := c.limit == `{headgate: "fixed-window 2/month Europe/Berlin"}` // its months differ
			if got := s.GetDurationUntilReset().AsDuration(); got != c.period && !calendar {
				t.Errorf("reset after %v, want %v", got, c.period)
			}
			if got := r.countPassed(9, "d", desc("k", "x")); got != 1 {
				t.Errorf("%d more passed, want 1", got)
			}
		})
	}
}
