package grpclimit_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/grpclimit"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/store/memory"
)

// TestARefusalSaysWhatRefusesAndUntilWhen at a store whose clock stands still.
func TestARefusalSaysWhatRefusesAndUntilWhen(t *testing.T) {
	t.Parallel()
	day := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	l := headgate.New(memory.New(&memory.Config{Clock: day.UnixMicro}), nil)
	limit, all := named("calls", "token-bucket 1/4s burst 2"), named("all", "fixed-window 100/1h from-first")
	server := must(t, l, grpclimit.ServerConfig{Charges: charges(
		grpclimit.Charge{Limit: limit, Key: grpclimit.ByMetadata("Api-Key")},
		grpclimit.Charge{Limit: all, Key: grpclimit.ByConst("")},
	)})
	f := (&far{}).start(t, limited(server))
	ctx := metadata.AppendToOutgoingContext(t.Context(), "api-key", "hidden")
	for i, want := range []string{`"calls";r=1;t=4, "all";r=99;t=3600`, `"calls";r=0;t=4, "all";r=98;t=3600`} {
		header, trailer, err := f.call(ctx)
		if err != nil || !slices.Equal(header["ratelimit"], []string{want}) || header["retry-after"] != nil ||
			!slices.Equal(header["ratelimit-policy"], []string{`"calls";q=2;w=8, "all";q=100;w=3600`}) ||
			trailer["ratelimit"] != nil {
			t.Errorf("%d: %v, %v, %v", i, header, trailer, err)
		}
	}
	for _, call := range []func() (metadata.MD, error){
		func() (metadata.MD, error) { _, trailer, err := f.call(ctx); return trailer, err },
		func() (metadata.MD, error) { _, trailer, err := f.talk(ctx, 1); return trailer, err },
	} {
		trailer, err := call()
		st, ok := status.FromError(err)
		const text = "Quota exceeded: limit calls refuses the call, which has charged nothing. It can pass in 4 s."
		if !ok || st.Code() != codes.ResourceExhausted || st.Message() != text {
			t.Errorf("%v", err)
		}
		quota, retry, _ := details(err)
		if len(quota.GetViolations()) != 1 || quota.Violations[0].Subject != "calls" ||
			quota.Violations[0].Description != "0 of 2 units remain." {
			t.Errorf("violations: %v", quota)
		}
		if retry.GetRetryDelay().AsDuration() != 4*time.Second {
			t.Errorf("RetryInfo: %v", retry)
		}
		if !slices.Equal(trailer["retry-after"], []string{"4"}) ||
			!slices.Equal(trailer["grpc-retry-pushback-ms"], []string{"4000"}) ||
			!slices.Equal(trailer["ratelimit"], []string{`"calls";r=0;t=4, "all";r=98;t=3600`}) {
			t.Errorf("trailer: %v", trailer)
		}
		if strings.Contains(st.String(), "hidden") {
			t.Errorf("the key is told: %v", st)
		}
	}
	if n := used(t, l, all, ""); n != "2" {
		t.Errorf("refused calls have charged: %s", n)
	}
}

func TestACostAboveTheCapacityHasNoRetryInfo(t *testing.T) {
	t.Parallel()
	f := (&far{}).start(t, limited(must(t, memoryLimiter(), grpclimit.ServerConfig{Charges: charges(grpclimit.Charge{
		Limit: headgate.MustParse("token-bucket 5/s"), Key: grpclimit.ByPeer,
		Cost: func(*grpclimit.Call) (headgate.Cost, error) { return headgate.Units(6), nil },
	})})))
	_, trailer, err := f.call(t.Context())
	quota, retry, _ := details(err)
	expect(t, "a cost of 6", err, codes.ResourceExhausted)
	if quota == nil || retry != nil || trailer["retry-after"] != nil ||
		!slices.Equal(trailer["grpc-retry-pushback-ms"], []string{"-1"}) || !strings.Contains(err.Error(), "never") {
		t.Errorf("%v, %v, %v", quota, retry, trailer)
	}
}

// TestEachMessageIsCharged beside the start of the stream.
func TestEachMessageIsCharged(t *testing.T) {
	t.Parallel()
	messages := named("messages", "fixed-window 3/1h from-first")
	starts := named("starts", "fixed-window 9/1h from-first")
	for name, f := range map[string]*far{
		"the handler returns the error": {},
		"the handler hides the error":   {silent: true},
		"the handler has another error": {silent: true, err: status.Error(codes.Aborted, "")},
	} {
		l := memoryLimiter()
		f.start(t, limited(must(t, l, grpclimit.ServerConfig{Charges: charges(
			grpclimit.Charge{Limit: messages, Key: grpclimit.ByPeer, PerMessage: true},
			grpclimit.Charge{Limit: starts, Key: grpclimit.ByPeer},
		)})))
		answered, trailer, err := f.talk(t.Context(), 9)
		if answered != 3 || f.messages.Load() != 3 {
			t.Errorf("%s: %d messages answered, %d reached the handler, want 3", name, answered, f.messages.Load())
		}
		if len(trailer["retry-after"]) != 1 || !strings.Contains(trailer["ratelimit"][0], `"messages";r=0`) {
			t.Errorf("%s: trailer: %v", name, trailer)
		}
		if f.err != nil {
			expect(t, name, err, codes.Aborted)
		} else if _, retry, _ := details(err); status.Code(err) != codes.ResourceExhausted || retry == nil ||
			!strings.Contains(err.Error(), "limit messages refuses the message,") {
			t.Errorf("%s: %v", name, err)
		}
		if m, s := used(t, l, messages, "192.0.2.1"), used(t, l, starts, "192.0.2.1"); m != "3" || s != "1" {
			t.Errorf("%s: %s messages and %s starts are charged", name, m, s)
		}
	}
}

// TestCostOfAMessage: a message that costs nothing passes, and a unary call has one message.
func TestCostOfAMessage(t *testing.T) {
	t.Parallel()
	l, limit := memoryLimiter(), headgate.MustParse("fixed-window 10/1h from-first")
	var sizes atomic.Int64
	f := (&far{}).start(t, limited(must(t, l, grpclimit.ServerConfig{Charges: charges(grpclimit.Charge{
		Limit: limit, Key: grpclimit.ByMethod, PerMessage: true,
		Cost: func(c *grpclimit.Call) (headgate.Cost, error) {
			if c.Message == nil {
				t.Error("a cost without a message")
			}
			return headgate.Units(sizes.Add(1) - 1), nil // 0, 1, 2, ...
		},
	})})))
	if n, _, err := f.talk(t.Context(), 4); n != 4 || err != nil {
		t.Errorf("%d answered, %v", n, err)
	}
	if n := used(t, l, limit, duplex); n != "6" {
		t.Errorf("%s units are charged, want 0+1+2+3", n)
	}
	_, _, err := f.call(t.Context())
	expect(t, "a unary call", err, codes.OK)
	if n := used(t, l, limit, unary); n != "4" {
		t.Errorf("%s units are charged for a unary call, want 4", n)
	}
}

// TestLimitsOfMethods: of one method, of a service, of tiers; all that select a call are charged, or none.
func TestLimitsOfMethods(t *testing.T) {
	t.Parallel()
	l := memoryLimiter()
	one, whole := named("one", "fixed-window 2/1h from-first"), named("whole", "fixed-window 4/1h from-first")
	gold := named("gold", "fixed-window 9/1h from-first")
	f := (&far{}).start(t, limited(must(t, l, grpclimit.ServerConfig{
		Skip: func(c *grpclimit.Call) bool { return c.Metadata.Get("skip") != nil },
		Charges: charges(
			grpclimit.Charge{Limit: one, Key: grpclimit.ByMethod, Methods: []string{unary}},
			grpclimit.Charge{Limit: whole, Key: grpclimit.ByConst("all"), Methods: []string{"/other.Service/", service}},
			grpclimit.Charge{
				Limit: named("none", "fixed-window 1/1h from-first"), Key: grpclimit.ByConst("all"),
				Methods: []string{service + "Unary", service + "FullDuplexCall2", "/grpc.testing.Test/"},
			},
			grpclimit.Charge{Key: grpclimit.ByConst("all"), LimitFor: func(c *grpclimit.Call) (headgate.Limit, error) {
				if c.Metadata.Get("tier") == nil {
					return headgate.Limit{}, nil
				}
				return gold, nil
			}},
		),
	})))
	skip := metadata.AppendToOutgoingContext(t.Context(), "skip", "1")
	tier := metadata.AppendToOutgoingContext(t.Context(), "tier", "gold")
	for i, step := range []struct {
		ctx    context.Context
		stream bool
		want   codes.Code
	}{
		{t.Context(), false, codes.OK},
		{tier, false, codes.OK},
		{tier, false, codes.ResourceExhausted}, // by one; nothing of whole and gold is charged
		{skip, false, codes.OK},
		{skip, true, codes.OK},
		{t.Context(), true, codes.OK},
		{tier, true, codes.OK},
		{tier, true, codes.ResourceExhausted}, // by whole
	} {
		var err error
		if step.stream {
			_, _, err = f.talk(step.ctx, 1)
		} else {
			_, _, err = f.call(step.ctx)
		}
		if status.Code(err) != step.want {
			t.Errorf("%d: %v, want %s", i, err, step.want)
		}
	}
	for limit, want := range map[headgate.Limit]string{one: "2", whole: "4", gold: "2"} {
		key := "all"
		if limit == one {
			key = unary
		}
		if n := used(t, l, limit, key); n != want {
			t.Errorf("%s: %s units are charged, want %s", limit.Name(), n, want)
		}
	}
}

// TestHealthIsChargedOnlyByName: a probe is no call of a client's.
func TestHealthIsChargedOnlyByName(t *testing.T) {
	t.Parallel()
	const service = "/grpc.health.v1.Health/"
	for name, methods := range map[string][]string{"": nil, "by name": {service}} {
		l, limit := memoryLimiter(), headgate.MustParse("fixed-window 1/1h from-first")
		server := must(t, l, grpclimit.ServerConfig{
			Charges: charges(grpclimit.Charge{Limit: limit, Key: grpclimit.ByMethod, Methods: methods}),
		})
		want := "0"
		if methods != nil {
			want = "1"
		}
		for range 2 {
			_, err := server.Unary(t.Context(), &grpc_health_v1.HealthCheckRequest{}, &grpc.UnaryServerInfo{
				FullMethod: service + "Check",
			}, func(ctx context.Context, req any) (any, error) {
				return health.NewServer().Check(ctx, req.(*grpc_health_v1.HealthCheckRequest))
			})
			if methods == nil {
				expect(t, name, err, codes.OK)
			}
		}
		if n := used(t, l, limit, service+"Check"); n != want {
			t.Errorf("%s: %s units are charged, want %s", name, n, want)
		}
		for _, version := range []string{"v1", "v1alpha"} {
			reflection := "/grpc.reflection." + version + ".ServerReflection/ServerReflectionInfo"
			_, err := server.Unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: reflection}, nothing)
			expect(t, version, err, codes.OK)
			if n := used(t, l, limit, reflection); n != "0" {
				t.Errorf("reflection %s: %s units are charged", version, n)
			}
		}
	}
}

func nothing(context.Context, any) (any, error) { return nil, nil }

func TestModes(t *testing.T) {
	t.Parallel()
	limit := headgate.MustParse("fixed-window 2/1h from-first")
	for name, tt := range map[string]struct {
		mode    httplimit.Mode
		before  int64 // is charged
		refused int64 // of 5
		charged string
		fields  bool
	}{
		"shadow":              {httplimit.Shadow, 0, 3, "2", false},
		"advise":              {httplimit.Advise, 0, 0, "0", true},
		"advise, almost full": {httplimit.Advise, 1, 0, "1", true},
		"advise, full":        {httplimit.Advise, 2, 5, "2", true},
	} {
		l := memoryLimiter()
		for range tt.before {
			if _, err := l.Allow(t.Context(), limit, "192.0.2.1"); err != nil {
				t.Fatal(err)
			}
		}
		var refused atomic.Int64
		f := (&far{}).start(t, limited(must(t, l, grpclimit.ServerConfig{
			Mode: tt.mode, Charges: charges(grpclimit.Charge{Limit: limit, Key: grpclimit.ByPeer}),
			OnDecision: func(c *grpclimit.Call, d *headgate.Decision) {
				if !d.Allowed && c.Method == unary {
					refused.Add(1)
				}
			},
		})))
		for range 5 {
			header, trailer, err := f.call(t.Context())
			if err != nil || (len(header["ratelimit"]) == 1) != tt.fields || header["retry-after"] != nil ||
				trailer["retry-after"] != nil {
				t.Errorf("%s: %v, %v, %v", name, header, trailer, err)
			}
		}
		if n := used(t, l, limit, "192.0.2.1"); refused.Load() != tt.refused || n != tt.charged || f.served.Load() != 5 {
			t.Errorf("%s: %d refused, %s charged, %d served", name, refused.Load(), n, f.served.Load())
		}
	}
}

func TestNoFields(t *testing.T) {
	t.Parallel()
	f := (&far{}).start(t, limited(must(t, memoryLimiter(), grpclimit.ServerConfig{NoFields: true, Charges: charges(
		grpclimit.Charge{Limit: headgate.MustParse("fixed-window 1/1h from-first"), Key: grpclimit.ByPeer},
	)})))
	header, _, err := f.call(t.Context())
	if err != nil || header["ratelimit"] != nil || header["ratelimit-policy"] != nil {
		t.Errorf("%v, %v", header, err)
	}
	_, trailer, err := f.call(t.Context())
	if trailer["ratelimit"] != nil || trailer["ratelimit-policy"] != nil || len(trailer["retry-after"]) != 1 {
		t.Errorf("%v, %v", trailer, err)
	}
}
