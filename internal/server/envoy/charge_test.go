package envoy_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	descriptorpb "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate/internal/server/envoy"
)

// hits sets the hits of a descriptor, and returns it. If n is negative, they are negative hits.
func hits(d *descriptorpb.RateLimitDescriptor, n int64) *descriptorpb.RateLimitDescriptor {
	d.IsNegativeHits = n < 0
	d.HitsAddend = wrapperspb.UInt64(uint64(max(n, -n)))
	return d
}

// hourly is a file with a limit of 10 an hour, without the brace at its end.
const hourly = "domain: d\ndescriptors:\n  - {key: k, rate_limit: {unit: hour, requests_per_unit: 10}"

func TestChargeModes(t *testing.T) {
	t.Parallel()
	type step struct {
		hits      int64
		passes    bool
		remaining uint32
	}
	for name, c := range map[string]struct {
		file  string
		steps []step
	}{
		"one hit over the limit charges nothing": {hourly + "}\n", []step{{8, true, 2}, {1, true, 1}, {1, true, 0}, {1, false, 0}, {-1, true, 1}, {1, true, 0}}},
		"more are charged always":                {hourly + "}\n", []step{{8, true, 2}, {5, false, 0}, {-2, true, 0}, {-2, true, 1}, {1, true, 0}}},
		"when_allowed":                           {hourly + ", charge: when_allowed}\n", []step{{8, true, 2}, {5, false, 2}, {2, true, 0}}},
		"always":                                 {hourly + ", charge: always}\n", []step{{10, true, 0}, {1, false, 0}, {-1, true, 0}, {-1, true, 1}}},
		"a check takes nothing":                  {hourly + "}\n", []step{{0, true, 10}, {9, true, 1}, {0, true, 1}, {1, true, 0}, {0, false, 0}}},
		"no more is given back than was used":    {hourly + "}\n", []step{{3, true, 7}, {-9, true, 10}, {-9, true, 10}, {11, false, 0}}},
		"a bucket gives back if asked to": {
			"domain: d\ndescriptors:\n  - {key: k, refunds: true, rate_limit: {headgate: token-bucket 10/1h}}\n",
			[]step{{3, true, 7}, {-2, true, 9}, {-9, true, 10}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startRig(t, noHeaders, c.file)
			for i, s := range c.steps {
				answer := r.send("d", 0, hits(desc("k", "x"), s.hits))
				if passes := answer.GetOverallCode() == rls.RateLimitResponse_OK; passes != s.passes {
					t.Errorf("step %d, %d hits: OK is %v, want %v", i, s.hits, passes, s.passes)
				}
				if got := answer.GetStatuses()[0].GetLimitRemaining(); got != s.remaining {
					t.Errorf("step %d, %d hits: %d remain, want %d", i, s.hits, got, s.remaining)
				}
			}
		})
	}
}

func TestHitsOfTheRequest(t *testing.T) {
	t.Parallel()
	r := startRig(t, noHeaders, hourly+"}\n")
	s := r.send("d", 3, desc("k", "x"), hits(desc("k", "y"), 2), hits(desc("k", "z"), 0)).GetStatuses()
	for i, want := range []uint32{7, 8, 10} {
		if got := s[i].GetLimitRemaining(); got != want {
			t.Errorf("descriptor %d: %d remain, want %d", i, got, want)
		}
	}
}

func TestAllOrNothing(t *testing.T) {
	t.Parallel()
	const file = `
domain: d
all_or_nothing: true
descriptors:
  - {key: a, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: b, rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: c, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
`
	r := startRig(t, noHeaders, file)
	if got := r.countPassed(9, "d", desc("a", "x"), desc("b", "x"), desc("c", "x")); got != 2 {
		t.Errorf("%d passed, want 2", got)
	}
	answer := r.send("d", 0, desc("a", "x"), desc("b", "x"))
	s := answer.GetStatuses()
	if s[1].GetCode() != rls.RateLimitResponse_OVER_LIMIT || s[0].GetCode() != rls.RateLimitResponse_OK {
		t.Errorf("got %v", answer)
	}
	if got := r.send("d", 0, desc("a", "x")).GetStatuses()[0].GetLimitRemaining(); got != 7 {
		t.Errorf("%d remain, want 7: a request that was over a limit has charged another", got)
	}
	if got := r.send("d", 5, desc("a", "x"), desc("b", "y")); got.GetOverallCode() != rls.RateLimitResponse_OVER_LIMIT {
		t.Errorf("5 hits of a limit of 2: %v", got)
	}
	if got := r.send("d", 0, hits(desc("a", "x"), 0)).GetStatuses()[0].GetLimitRemaining(); got != 7 {
		t.Errorf("%d remain, want 7", got)
	}
}

func TestOverrides(t *testing.T) {
	t.Parallel()
	r := startRig(t, noHeaders, hourly+", shadow_mode: true}\n")
	override := func(n uint32, unit typepb.RateLimitUnit, multiplier uint32,
		pairs ...string,
	) *descriptorpb.RateLimitDescriptor {
		d := desc(pairs...)
		d.Limit = &descriptorpb.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: n, Unit: unit}
		if multiplier > 0 {
			d.Limit.UnitMultiplier = wrapperspb.UInt32(multiplier)
		}
		return d
	}
	if got := r.countPassed(9, "d", override(3, typepb.RateLimitUnit_MINUTE, 10, "k", "x")); got != 3 {
		t.Errorf("%d passed, want 3, without the shadow mode of the rule", got)
	}
	s := r.send("d", 0, override(3, typepb.RateLimitUnit_MINUTE, 10, "k", "x")).GetStatuses()[0]
	l := s.GetCurrentLimit()
	if l.GetUnit() != rls.RateLimitResponse_RateLimit_MINUTE || l.GetUnitMultiplier().GetValue() != 10 ||
		l.GetRequestsPerUnit() != 3 {
		t.Errorf("got the limit %v, want 3 in 10 minutes", l)
	}
	if got := r.countPassed(9, "d", override(5, typepb.RateLimitUnit_MINUTE, 10, "k", "x")); got != 2 {
		t.Errorf("%d passed after the limit went from 3 to 5, want 2: what was used counts", got)
	}
	if got := r.countPassed(9, "d", override(4, typepb.RateLimitUnit_HOUR, 0, "no", "rule", "at", "all")); got != 4 {
		t.Errorf("%d passed without a rule, want 4", got)
	}
	if got := r.countPassed(9, "other", override(4, typepb.RateLimitUnit_HOUR, 0, "k", "x")); got != 9 {
		t.Errorf("%d passed in a domain that is not known, want all", got)
	}
	for name, d := range map[string]*descriptorpb.RateLimitDescriptor{
		"no unit":         override(1, typepb.RateLimitUnit_UNKNOWN, 0, "k", "x"),
		"multiplier of 0": override(1, typepb.RateLimitUnit_HOUR, 0, "k", "x"),
		"twenty years":    override(1, typepb.RateLimitUnit_YEAR, 20, "k", "x"),
	} {
		if name == "multiplier of 0" {
			d.Limit.UnitMultiplier = wrapperspb.UInt32(0)
		}
		if _, err := r.trySend("d", 0, d); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v, want InvalidArgument", name, err)
		}
	}
}

func TestWrongRequestsChargeNothing(t *testing.T) {
	t.Parallel()
	r := startRig(t, noHeaders, hourly+"}\n  - {key: log, rate_limit: {headgate: sliding-log 5/1h}}\n  - {key: tb, rate_limit: {headgate: 5/1h}}\n")
	descriptors := make([]*descriptorpb.RateLimitDescriptor, 10_001)
	for i := range descriptors {
		descriptors[i] = desc("k", "x")
	}
	for name, c := range map[string]struct {
		domain string
		list   []*descriptorpb.RateLimitDescriptor
	}{
		"no domain":           {"", []*descriptorpb.RateLimitDescriptor{desc("k", "x")}},
		"no descriptors":      {"d", nil},
		"10,001 descriptors":  {"d", descriptors},
		"2^53 hits":           {"d", []*descriptorpb.RateLimitDescriptor{desc("k", "x"), hits(desc("k", "x"), 1<<53)}},
		"2^63 hits":           {"d", []*descriptorpb.RateLimitDescriptor{desc("k", "x"), {Entries: desc("k", "x").Entries, HitsAddend: wrapperspb.UInt64(1 << 63)}}},
		"a log gives back":    {"d", []*descriptorpb.RateLimitDescriptor{desc("k", "x"), hits(desc("log", "x"), -1)}},
		"a bucket gives back": {"d", []*descriptorpb.RateLimitDescriptor{desc("k", "x"), hits(desc("tb", "x"), -1)}},
	} {
		if _, err := r.trySend(c.domain, 0, c.list...); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v, want InvalidArgument", name, err)
		}
	}
	if _, err := r.trySend("d", 0, desc("k", "a\xffb")); err == nil {
		t.Error("a value that is not UTF-8: got no error")
	}
	if got := r.send("d", 0, desc()).GetOverallCode(); got != rls.RateLimitResponse_OK {
		t.Errorf("a descriptor without entries: %v", got)
	}
	if got := r.send("d", 0, hits(desc("k", "x"), 0)).GetStatuses()[0].GetLimitRemaining(); got != 10 {
		t.Errorf("%d remain, want all 10", got)
	}
	answer := r.send("d", 0, descriptors[:10_000]...)
	passed := 0
	for _, s := range answer.GetStatuses() {
		if s.GetCode() == rls.RateLimitResponse_OK {
			passed++
		}
	}
	if n := len(answer.GetStatuses()); n != 10_000 || passed != 10 {
		t.Errorf("10,000 descriptors: %d statuses, %d OK; want one for each, and 10", n, passed)
	}
}

func TestManyCallersPassExactlyTheLimit(t *testing.T) {
	t.Parallel()
	r := startRig(t, noHeaders, "domain: d\ndescriptors:\n  - {key: k, rate_limit: {unit: hour, requests_per_unit: 1000}}\n")
	var passed atomic.Int64
	var callers sync.WaitGroup
	for range 64 {
		callers.Go(func() {
			for range 30 {
				answer, err := r.trySend("d", 0, desc("k", "x"))
				if err != nil {
					t.Error(err)
					return
				}
				if answer.GetOverallCode() == rls.RateLimitResponse_OK {
					passed.Add(1)
				}
			}
		})
	}
	callers.Wait()
	if got := passed.Load(); got != 1000 {
		t.Errorf("%d of 1920 requests passed, want 1000", got)
	}
}

// TestChargesOfStreams sends what Envoy sends for streams whose cost is known at their end: a check with 0 hits, then
// the true cost, whose answer Envoy ignores. It checks that at most one cost per stream exceeds the budget.
func TestChargesOfStreams(t *testing.T) {
	t.Parallel()
	const budget, cost, inFlight = 1000, 37, 16
	for _, algorithm := range []string{"sliding-window", "fixed-window", "token-bucket"} {
		t.Run(algorithm, func(t *testing.T) {
			t.Parallel()
			r := startRig(t, noHeaders, "domain: d\nalgorithm: "+algorithm+"\ndescriptors:\n"+
				"  - {key: k, rate_limit: {unit: hour, requests_per_unit: 1000}}\n")
			var spent, offered, openCost, maxOpen atomic.Int64
			var streams sync.WaitGroup
			for range inFlight {
				streams.Go(func() {
					for offered.Add(cost) <= 10*budget {
						answer, err := r.trySend("d", 0, hits(desc("k", "x"), 0))
						if err != nil {
							t.Error(err)
							return
						}
						if answer.GetOverallCode() != rls.RateLimitResponse_OK {
							continue
						}
						now := openCost.Add(cost)
						for m := maxOpen.Load(); m < now && !maxOpen.CompareAndSwap(m, now); m = maxOpen.Load() {
						}
						_, err = r.trySend("d", 0, hits(desc("k", "x"), cost))
						openCost.Add(-cost)
						spent.Add(cost)
						if err != nil {
							t.Error(err)
						}
					}
				})
			}
			streams.Wait()
			if got := spent.Load(); got > budget+inFlight*cost || got < budget {
				t.Errorf("spent %d of a budget of %d, with %d in flight at most", got, budget, maxOpen.Load())
			}
			if got := r.send("d", 0, hits(desc("k", "x"), 0)); got.GetOverallCode() != rls.RateLimitResponse_OVER_LIMIT {
				t.Errorf("after the streams: %v, want OVER_LIMIT", got)
			}
			r.advance(3 * time.Hour)
			if got := r.send("d", 0, hits(desc("k", "x"), 0)); got.GetOverallCode() != rls.RateLimitResponse_OK {
				t.Errorf("three hours later: %v, want OK", got)
			}
		})
	}
}

// TestRetryAfterOfARefusalThatWasCharged checks that a request of several hits that does not fit, but is charged
// nevertheless, is answered with the same Retry-After as the next request.
func TestRetryAfterOfARefusalThatWasCharged(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []string{
		"token-bucket", "sliding-window", "fixed-window", "sliding-log", "sliding-log, always",
	} {
		algorithm, chargeMode, _ := strings.Cut(algorithm, ",")
		if chargeMode != "" {
			chargeMode = ", charge: always"
		}
		r := startRig(t, envoy.Headers{Draft: true, Legacy: true}, "domain: d\nalgorithm: "+algorithm+
			"\ndescriptors:\n  - {key: k"+chargeMode+", rate_limit: {unit: hour, requests_per_unit: 1000}}\n")
		r.send("d", 900, desc("k", "x"))
		charged, refused := r.send("d", 200, desc("k", "x")), r.send("d", 1, desc("k", "x"))
		if algorithm == "sliding-log" && chargeMode == "" { // it charges nothing, so the same request is compared
			refused = r.send("d", 200, desc("k", "x"))
		}
		for _, name := range []string{"retry-after", "ratelimit", "x-ratelimit-reset"} {
			if got, want := header(charged, name), header(refused, name); got != want || got == "" {
				t.Errorf("%s: %s is %q, then %q", algorithm, name, got, want)
			}
		}
		got, want := charged.GetStatuses()[0].GetDurationUntilReset(), refused.GetStatuses()[0].GetDurationUntilReset()
		if got.AsDuration() != want.AsDuration() || got.AsDuration() == 0 {
			t.Errorf("%s: it can pass in %v, then in %v", algorithm, got.AsDuration(), want.AsDuration())
		}
	}
}

// TestALimitOfNothingHasNoReset checks that a limit of 0 has no Retry-After, so that clients do not retry for ever.
func TestALimitOfNothingHasNoReset(t *testing.T) {
	t.Parallel()
	r := startRig(t, envoy.Headers{Draft: true, Legacy: true},
		"domain: d\ndescriptors:\n  - {key: k, rate_limit: {unit: hour, requests_per_unit: 0}}\n")
	answer := r.send("d", 1, desc("k", "x"))
	for name, want := range map[string]string{
		"ratelimit-policy": `"k";q=0`, "ratelimit": `"k";r=0`, "retry-after": "",
		"x-ratelimit-limit": "0", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "",
	} {
		if got := header(answer, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// header returns the value of a header that an answer adds to the response.
func header(answer *rls.RateLimitResponse, name string) string {
	for _, h := range answer.GetResponseHeadersToAdd() {
		if h.GetKey() == name {
			return h.GetValue()
		}
	}
	return ""
}
