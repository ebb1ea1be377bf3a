package envoy_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	descriptorpb "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/envoy"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store/memory"
)

// FuzzRequest checks that a request has a status for each descriptor, or is INVALID_ARGUMENT without a store call.
func FuzzRequest(f *testing.F) {
	const files = `
domain: d
descriptors:
  - {key: k, rate_limit: {unit: hour, requests_per_unit: 10}, descriptors: [{key: l, value: "a*b", rate_limit: {unlimited: true}}]}
  - {key: k, value: "x*", share_threshold: true, rate_limit: {name: n, replaces: [{name: m}], unit: day, requests_per_unit: 3}}
  - {key: m, charge: always, refunds: true, shadow_mode: true, rate_limit: {name: m, headgate: gcra 5/1h}}
  - {key: q, quota_mode: true, rate_limit: {headgate: sliding-log 5/1h}}
`
	var calls atomic.Int64
	s := &failingStore{Store: memory.New(nil), fail: func([]law.Op) error { calls.Add(1); return nil }}
	svc := service.New(headgate.New(s, nil), &config.Config{}, nil)
	server := envoy.New(svc, slog.New(slog.DiscardHandler), noHeaders)
	c, err := envoy.Parse(false, envoy.File{Name: "f", Text: []byte(files)})
	if err != nil {
		f.Fatal(err)
	}
	server.Use(c)
	for _, list := range [][]*descriptorpb.RateLimitDescriptor{
		nil,
		{desc("k", "v"), desc("k", "v", "l", "acb"), desc()},
		{desc("k", "xyz"), desc("m", "v"), desc("q", "v")},
		{desc("k", strings.Repeat("v", 600)), desc("k", "a\x00")},
		{hits(desc("k", "v"), 0), hits(desc("k", "v"), 5), hits(desc("m", "v"), -1)},
		{{Entries: desc("k", "v").Entries, Limit: &descriptorpb.RateLimitDescriptor_RateLimitOverride{
			RequestsPerUnit: 7, Unit: 3, UnitMultiplier: wrapperspb.UInt32(10),
		}}},
	} {
		for _, domain := range []string{"", "d", "other"} {
			text, err := proto.Marshal(&rls.RateLimitRequest{Domain: domain, Descriptors: list, HitsAddend: 1})
			if err != nil {
				f.Fatal(err)
			}
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		q := &rls.RateLimitRequest{}
		if proto.Unmarshal(text, q) != nil {
			return
		}
		calls.Store(0)
		answer, err := server.ShouldRateLimit(context.Background(), q)
		switch {
		case err == nil && len(answer.GetStatuses()) != len(q.GetDescriptors()):
			t.Errorf("%d statuses for %d descriptors", len(answer.GetStatuses()), len(q.GetDescriptors()))
		case err != nil && status.Code(err) != codes.InvalidArgument:
			t.Errorf("%v is not INVALID_ARGUMENT", err)
		case err != nil && calls.Load() > 0:
			t.Errorf("the store was called %d times before %v", calls.Load(), err)
		}
	})
}
